"""The stages that are one long piece of work: what the bridge does around the pure code of the islands."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter

from rnnsearch.flows.job import Files, Finished, Job
from rnnsearch.flows.shards import section, shard_name, stored, whole_table
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.flows.sources.fetch import fetch
from rnnsearch.flows.steps import Step
from rnnsearch.pipeline.config import EncodeConfig, Format, IngestConfig, LanguageModelConfig
from rnnsearch.pipeline.formats.reader import read_pairs
from rnnsearch.pipeline.order import bucket_count, ordered
from rnnsearch.pipeline.selection import estimate_models
from rnnsearch.storage.artifacts import FileEntry

_ORDER_ROW_GROUP = 1_600  # rows that are read at once: the paper's window (App. B.2)
_BUCKETS_AT_ONCE = 64  # in one pass over the encoded shards: 1.6 million examples, about 1 GB


def download(job: Job, progress: Callable[[Step], None]) -> Finished:
    """Fetch one source; what an interrupted download has on disk is kept and continued."""
    source = SourceConfig.model_validate(job.config["source"])
    workdir = job.workdir()
    for folder in job.earlier():
        _inherit(folder, workdir)
        shutil.rmtree(folder, ignore_errors=True)

    def show(done: int, total: int | None) -> None:
        of = f" of {total / 1e6:.1f}" if total else ""
        progress(Step(f"{done / 1e6:.1f}{of} MB", done, total or 0))

    fetched = fetch(source, workdir, show)
    blob = job.store.put_file(fetched.path)
    file = FileEntry(fetched.path.name, blob.digest, blob.size, None)
    return Finished(
        {"file": [file]}, {"sha256": fetched.sha256, "bytes": fetched.size, "origin": fetched.origin}
    )


def ingest(job: Job) -> Files:
    """Read one corpus into Parquet shards, a shard in memory at a time."""
    config = section(job.config, IngestConfig)
    style: Format = TypeAdapter(Format).validate_python(job.config["format"])
    files = [file for digest in job.inputs.values() for file in job.store.read_artifact(digest).files]
    path = job.store.local_folder(job.store.write_artifact(files).digest)
    if len(files) == 1:
        path /= files[0].path
    tables = read_pairs(path, job.config["corpus"], style, config.rows_per_shard)
    return {"pairs": [stored(job.store, shard_name(place), table) for place, table in enumerate(tables)]}


def language_models(job: Job) -> Files:
    """Estimate the four language models of the selection."""
    tables = {name: whole_table(job.store, digest) for name, digest in job.inputs.items()}
    models = estimate_models(**tables, config=section(job.config, LanguageModelConfig))
    files = []
    for name, data in models.files().items():
        blob = job.store.put_bytes(data)
        files.append(FileEntry(name, blob.digest, blob.size, None))
    return {"models": files}


def order(job: Job) -> Files:
    """Sort all examples by their seeded hash, some equal ranges of hashes in memory at a time."""
    store, config = job.store, section(job.config, EncodeConfig)
    shards = store.read_artifact(job.inputs["examples"]).files
    buckets = bucket_count(sum(file.rows or 0 for file in shards), config)
    files: list[FileEntry] = []
    for first in range(0, buckets, _BUCKETS_AT_ONCE):
        last = min(first + _BUCKETS_AT_ONCE, buckets)
        for examples in ordered((store.get_table(file.digest) for file in shards), first, last, buckets):
            files.append(stored(store, shard_name(len(files)), examples, _ORDER_ROW_GROUP))
    return {"examples": files}


def _inherit(old: Path, new: Path) -> None:
    """Copy what an earlier epoch fetched: should its writer have slept, it goes on in files of its own."""
    fetched, copy = new / "fetched", new / "copying"
    if (old / "fetched").is_dir():
        shutil.copytree(old / "fetched", copy, copy_function=_copy)
        shutil.rmtree(fetched, ignore_errors=True)
        copy.rename(fetched)  # whole: a kill in the midst loses nothing of the old one


def _copy(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # that writer renamed it just now
        shutil.copyfile(source, target)
