"""The stages that are one long piece of work: what the bridge does around the pure code of the islands."""

from pydantic import TypeAdapter

from rnnsearch.flows.job import Files, Job
from rnnsearch.flows.shards import section, shard_name, stored, whole_table
from rnnsearch.pipeline.config import EncodeConfig, Format, IngestConfig, LanguageModelConfig
from rnnsearch.pipeline.formats.reader import read_pairs
from rnnsearch.pipeline.order import bucket_count, ordered
from rnnsearch.pipeline.selection import estimate_models
from rnnsearch.storage.artifacts import FileEntry, read_artifact
from rnnsearch.storage.parquet import get_table

_ORDER_ROW_GROUP = 1_600  # rows that are read at once: the paper's window (App. B.2)
_BUCKETS_AT_ONCE = 64  # in one pass over the encoded shards: 1.6 million examples, about 1 GB


def ingest(job: Job) -> Files:
    """Read one corpus into Parquet shards, a shard in memory at a time, beside what was dropped of each."""
    config = section(job.config, IngestConfig)
    style: Format = TypeAdapter(Format).validate_python(job.config["format"])
    files = [file for digest in job.inputs.values() for file in read_artifact(job.store.blobs, digest).files]
    paths = [job.store.local_file(file.digest) for file in files]  # by side or source; names only label
    found: dict[str, list[FileEntry]] = {"pairs": [], "dropped": []}
    read = read_pairs(paths, job.config["corpus"], style, config.rows_per_shard, config.longest)
    for place, (pairs, dropped) in enumerate(read):
        found["pairs"].append(stored(job.store, shard_name(place), pairs))
        if dropped.num_rows:
            found["dropped"].append(stored(job.store, shard_name(place), dropped))
    return found


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
    shards = read_artifact(store.blobs, job.inputs["examples"]).files
    buckets = bucket_count(sum(file.rows or 0 for file in shards), config)
    files: list[FileEntry] = []
    for first in range(0, buckets, _BUCKETS_AT_ONCE):
        last = min(first + _BUCKETS_AT_ONCE, buckets)
        for examples in ordered(
            (get_table(store.blobs, file.digest) for file in shards), first, last, buckets
        ):
            files.append(stored(store, shard_name(len(files)), examples, _ORDER_ROW_GROUP))
    return {"examples": files}
