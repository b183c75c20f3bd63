"""The stage `train`: from artifacts to a training on Ray, and back into the store."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rnnsearch.flows.job import Finished, Job, events_folder
from rnnsearch.flows.shards import section, whole_table
from rnnsearch.flows.steps import Step
from rnnsearch.flows.train import train_system
from rnnsearch.flows.training_job import TrainingJob
from rnnsearch.flows.training_progress import LAYING_OUT, STARTING, curves, training_progress
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.encode import encode_shard
from rnnsearch.pipeline.schemas import SPECIALS
from rnnsearch.storage.artifacts import FileEntry, read_artifact
from rnnsearch.storage.store import Store

_ANY_LENGTH = 10**9  # words


def train(job: Job, progress: Callable[[Step], None]) -> Finished:
    """Train one system on Ray; a training that was cut off goes on from its newest whole checkpoint."""
    progress(LAYING_OUT)
    store, inputs = job.store, job.inputs
    config = section(job.config, TrainConfig)
    source, target = whole_table(store, inputs["source"]), whole_table(store, inputs["target"])
    workdir = job.workdir()
    dev = workdir / "dev.parquet"
    pq.write_table(encode_dev(whole_table(store, inputs["dev"]), source, target), dev)
    examples = read_artifact(store.blobs, inputs["examples"])
    folder = store.local_folder(inputs["examples"])
    initial = inputs.get("initial_state")
    events = events_folder(store, job.stage, job.key)
    progress(STARTING)
    outcome = train_system(
        TrainingJob(
            examples=[folder / file.path for file in examples.files],
            shard_rows=[file.rows or 0 for file in examples.files],
            dev=dev,
            network=section(job.config, NetworkConfig),
            train=config,
            source_size=source.num_rows + len(SPECIALS),
            target_size=target.num_rows + len(SPECIALS),
            initial_state=None if initial is None else store.local_folder(initial),
            workers=job.place.workers,
            threads=job.place.threads,
            device=job.place.device,
            proof=job.proof,
            name=f"{job.key[:16]}-{job.epoch}",
            workdir=workdir,
            earlier=job.earlier(),
            events=events,
        ),
        training_progress(config.updates, progress),
    )
    files = {
        "model": _tree(store, outcome.model),
        "state": _tree(store, outcome.state),
        "curve": _tree(store, outcome.curve),
    }
    progress(curves(events))
    seen = dict(outcome.observations)
    return Finished(files, seen | {"parts": seen.pop("seconds"), "tensorboard": str(events)})


def encode_dev(pairs: pa.Table, source: pa.Table, target: pa.Table) -> pa.Table:
    """The dev pairs as ids, of whatever length (protocol 2: dev NLL is on unfiltered sentences)."""
    kept = encode_shard(pairs, source, target, EncodeConfig(max_words=_ANY_LENGTH)).kept
    return kept.select(["source", "target"])


def _tree(store: Store, path: Path) -> Sequence[FileEntry]:
    """Store a file, or every file of a folder."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    blobs = [(each.name, store.put_file(each)) for each in paths]
    return [FileEntry(name, blob.digest, blob.size, None) for name, blob in blobs]
