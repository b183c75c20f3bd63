"""The stage `train`: from artifacts to a training on Ray, and back into the store."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rnnsearch.flows.job import Finished, Job, events_folder
from rnnsearch.flows.settings import PlacementConfig
from rnnsearch.flows.shards import section, whole_table
from rnnsearch.flows.steps import Step
from rnnsearch.flows.train import train_system
from rnnsearch.flows.training_job import TrainingJob
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.kernels.bfloat16 import WITHOUT_PRODUCTS
from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.encode import encode_shard
from rnnsearch.pipeline.schemas import SPECIALS
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.store import Store

_ANY_LENGTH = 10**9  # words


def train(job: Job, progress: Callable[[Step], None]) -> Finished:
    """Train one system on Ray; a training that was cut off goes on from its newest whole checkpoint."""
    progress(Step("laying out the examples"))
    store, inputs = job.store, job.inputs
    config = section(job.config, TrainConfig)
    source, target = whole_table(store, inputs["source"]), whole_table(store, inputs["target"])
    workdir = job.workdir()
    dev = workdir / "dev.parquet"
    pq.write_table(encode_dev(whole_table(store, inputs["dev"]), source, target), dev)
    examples = store.read_artifact(inputs["examples"])
    folder = store.local_folder(inputs["examples"])
    initial = inputs.get("initial_state")
    events = events_folder(store, job.stage, job.key)
    progress(Step("starting the workers"))
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
            workers=job.placement.train_workers,
            threads=job.placement.threads(),
            device=_device(job.placement),
            name=f"{job.key[:16]}-{job.epoch}",
            workdir=workdir,
            earlier=job.earlier(),
            events=events,
        ),
        _teller(config.updates, progress),
    )
    files = {
        "model": _tree(store, outcome.model),
        "state": _tree(store, outcome.state),
        "curve": _tree(store, outcome.curve),
    }
    progress(Step(f"curves: tensorboard --logdir {shlex.quote(str(events))}", lasting=True))
    seen = dict(outcome.observations)
    return Finished(files, seen | {"parts": seen.pop("seconds"), "tensorboard": str(events)})


def _teller(updates: int, progress: Callable[[Step], None]) -> Callable[[Mapping[str, Any]], None]:
    """A listener that says how far a training is: every message has a speed, some have losses and BLEU."""
    losses = {"loss_per_token": "", "dev_loss_per_token": ""}
    translated = ""

    def tell(message: Mapping[str, Any]) -> None:
        nonlocal translated
        if message["event"] == "work":
            progress(Step(message["doing"]))
        if message["event"] == "start":
            if (message["device"], message["kernels"]) == ("cpu", "plain"):
                slow = (
                    "plain kernels; where a C++ compiler is found the compiled ones are about twice as fast"
                )
                progress(Step(slow, lasting=True))
            if message.get("bfloat16") == "rounded":
                progress(Step(f"bfloat16: {WITHOUT_PRODUCTS}", lasting=True))
            after = f" after update {message['update']:,}" if message["update"] else ""
            progress(Step(f"first updates{after}", message["update"], updates))
        if message.get("dev_bleu") is not None:
            translated = f", dev BLEU {message['dev_bleu']:.1f}"
        for name, what in (("loss_per_token", "train"), ("dev_loss_per_token", "dev")):
            if message.get(name) is not None:
                losses[name] = f", {what} {message[name]:.3f}"
        if message["event"] in ("update", "row"):
            speed, done = message["tokens_per_second"], message["update"]
            shown = "".join(losses.values())
            unit = " nats a token" if shown else ""
            text = f"update {done:,} of {updates:,}{shown}{unit}{translated}, {speed:,.0f} target tokens/s"
            progress(Step(text, done, updates))

    return tell


def encode_dev(pairs: pa.Table, source: pa.Table, target: pa.Table) -> pa.Table:
    """The dev pairs as ids, of whatever length (protocol 2: dev NLL is on unfiltered sentences)."""
    kept = encode_shard(pairs, source, target, EncodeConfig(max_words=_ANY_LENGTH)).kept
    return kept.select(["source", "target"])


def _device(placement: PlacementConfig) -> Literal["cpu", "cuda"]:
    if placement.device != "auto":
        return placement.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _tree(store: Store, path: Path) -> Sequence[FileEntry]:
    """Store a file, or every file of a folder."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    blobs = [(each.name, store.put_file(each)) for each in paths]
    return [FileEntry(name, blob.digest, blob.size, None) for name, blob in blobs]
