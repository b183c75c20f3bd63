"""Stages that set something from outside beside our test set: another system's output, links made by people."""

from pathlib import PurePosixPath
from typing import Any

from rnnsearch.flows.job import Files, Job
from rnnsearch.flows.shards import section, shard_name, stored, whole_table
from rnnsearch.pipeline.alignment_scores import alignment_scores
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.external import as_our_tokens, external_hypotheses
from rnnsearch.pipeline.formats.lines import read_lines
from rnnsearch.storage.artifacts import FileEntry


def external(job: Job) -> Files:
    """Another system's output as hypotheses, shard by shard beside the test pairs."""
    lines = _lines(job, "file")
    if not job.config["tokens"]:
        lines = as_our_tokens(lines, section(job.config, CleanConfig), section(job.config, TokenizeConfig))
    shards = [
        job.store.get_table(file.digest) for file in job.store.read_artifact(job.inputs["tokens"]).files
    ]
    tables = external_hypotheses(lines, shards)
    return {"hypotheses": [stored(job.store, shard_name(k), table) for k, table in enumerate(tables)]}


def evaluate_alignment(job: Job) -> Files:
    """Scores of a system's alignments of the references, and its links as text: the backward ones of another run."""
    found = whole_table(job.store, job.inputs["alignments"])
    beside: dict[str, Any] = {name: _lines(job, name) for name in ("gold", "backward") if name in job.inputs}
    made = {
        "scores": ("scores.json", alignment_scores(found, **beside)),
        "links": ("links.txt", "".join(f"{line}\n" for line in found["links"].to_pylist()).encode()),
    }
    files = {}
    for output, (name, data) in made.items():
        blob = job.store.put_bytes(data)
        files[output] = [FileEntry(name, blob.digest, blob.size, None)]
    return files


def _lines(job: Job, name: str) -> list[str]:
    (file,) = job.store.read_artifact(job.inputs[name]).files
    return read_lines(job.store.local_folder(job.inputs[name]), PurePosixPath(file.path).as_posix())
