"""Stages that set something from outside beside our test set: another system's output, links made by people."""

from pathlib import PurePosixPath
from typing import Any

from rnnsearch.flows.job import Files, Job
from rnnsearch.flows.shards import section, shard_name, stored, whole_table
from rnnsearch.pipeline.alignment_scores import alignment_scores
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.external import as_our_tokens, external_hypotheses
from rnnsearch.pipeline.formats.lines import read_lines
from rnnsearch.storage.artifacts import FileEntry, read_artifact
from rnnsearch.storage.parquet import get_table


def external(job: Job) -> Files:
    """Another system's output as hypotheses, shard by shard beside the test pairs."""
    lines = _lines(job, "file")
    if not job.config["tokens"]:
        lines = as_our_tokens(lines, section(job.config, CleanConfig), section(job.config, TokenizeConfig))
    shards = [
        get_table(job.store.blobs, file.digest)
        for file in read_artifact(job.store.blobs, job.inputs["tokens"]).files
    ]
    tables = external_hypotheses(lines, shards)
    return {"hypotheses": [stored(job.store, shard_name(k), table) for k, table in enumerate(tables)]}


def evaluate_alignment(job: Job) -> Files:
    """Scores of a system's alignments of the references."""
    found = whole_table(job.store, job.inputs["alignments"])
    beside: dict[str, Any] = {name: _links(job, name) for name in ("gold", "backward") if name in job.inputs}
    blob = job.store.put_bytes(alignment_scores(found, **beside))
    return {"scores": [FileEntry("scores.json", blob.digest, blob.size, None)]}


def _links(job: Job, name: str) -> list[str]:
    """The links of a file, or of a system that was trained beside ours."""
    files = read_artifact(job.store.blobs, job.inputs[name]).files
    if all(file.path == shard_name(position) for position, file in enumerate(files)):
        links: list[str] = whole_table(job.store, job.inputs[name])["links"].to_pylist()
        return links
    return _lines(job, name)


def _lines(job: Job, name: str) -> list[str]:
    (file,) = read_artifact(job.store.blobs, job.inputs[name]).files
    return read_lines(job.store.local_folder(job.inputs[name]), PurePosixPath(file.path).as_posix())
