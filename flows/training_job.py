"""What a training is given, and what its workers are to one another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch.distributed as dist
from torch import Tensor

from rnnsearch.flows.proof import Proof
from rnnsearch.model.config import NetworkConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training: what decides its outcome, where it runs, where it works. All workers see its folders."""

    # What decides the outcome.
    examples: Sequence[Path]  # EXAMPLES shards, in training order
    dev: Path | None  # one Parquet file of columns `source` and `target`, ids without </s>, of any length
    network: NetworkConfig
    train: TrainConfig
    source_size: int  # vocabulary, </s> and [UNK] counted
    target_size: int
    initial_state: Path | None = None  # `state` of a training that this one continues
    # Where it runs.
    workers: int = 1
    threads: int = 1  # of each worker
    device: Literal["cpu", "cuda"] = "cpu"
    lost_workers: int = 20  # deaths of workers that are repaired before the training gives up
    # Where it works.
    name: str  # of the Ray run: recipe and epoch
    workdir: Path  # of this epoch alone: a late writer of an earlier one works elsewhere
    earlier: Sequence[Path] = ()  # folders of earlier epochs: only read
    proof: Proof | None = None  # what the key counted; the workers compare it with what they loaded
    shard_rows: Sequence[int] | None = None  # rows of each shard, where the artifact knows them
    events: Path | None = None  # TensorBoard's folder, one for all epochs; None: inside `workdir`

    @property
    def checkpoints(self) -> Path:
        """Where this epoch's checkpoints are."""
        return self.workdir / "checkpoints"

    @property
    def finished(self) -> Path:
        """Where the outputs appear, all at once."""
        return self.workdir / "finished"

    @property
    def messages(self) -> Path:
        """A line of JSON for each sign of life, from the first worker to the driver."""
        return self.workdir / "messages.jsonl"

    @property
    def errors(self) -> Path:
        """A line for each error that ended a worker, lost neighbours left out."""
        return self.workdir / "errors"

    @property
    def controller(self) -> Path:
        """Who Ray's controller is: a token of its process."""
        return self.workdir / "controller"

    @property
    def stop_request(self) -> Path:
        """A file that, once there, makes the training stop with a checkpoint."""
        return self.workdir / "stop"


class TrainOutcome(NamedTuple):
    """The outputs of a finished training, as local folders and a file, and what was seen."""

    model: Path
    state: Path
    curve: Path
    observations: Mapping[str, Any]


class LostWorkerError(RuntimeError):
    """A collective that could not be completed: another worker is gone."""


class Ending(NamedTuple):
    """How the workers left off; the same on each of them."""

    how: Literal["finished", "stopped", "failed"]
    update: int
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The workers of a training, as one of them sees them. One alone needs no process group."""

    rank: int = 0
    size: int = 1
    stopping: Callable[[], bool] = lambda: False  # this worker was asked to stop

    @property
    def sum(self) -> Callable[[Tensor], None] | None:
        """Adds up the same tensor of all workers, in place; None for a worker alone."""
        return None if self.size == 1 else _sum

    def agree(self, value: Any) -> Any:
        """What the first worker has; a collective."""
        if self.size == 1:
            return value
        box = [value]
        with _neighbours():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def spread(self, tensor: Tensor) -> None:
        """Overwrite the tensor with the first worker's; a collective."""
        if self.size > 1:
            with _neighbours():
                dist.broadcast(tensor, src=0)


def _sum(tensor: Tensor) -> None:
    with _neighbours():
        dist.all_reduce(tensor)


@contextmanager
def _neighbours() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostWorkerError(f"another worker of the training is gone: {error}") from error
