"""What a stage of shape run is given, and what it gives back."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rnnsearch.flows.proof import Proof
from rnnsearch.flows.shards import open_store
from rnnsearch.flows.witness import AsRun
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.store import Store

Files = Mapping[str, Sequence[FileEntry]]


class Place(NamedTuple):
    """Where a process runs: for a training."""

    workers: int = 1
    threads: int = 1  # of each worker
    device: Literal["cpu", "cuda"] = "cpu"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One stage to run: everything by digest, and a place of its own to work in."""

    location: str  # of the store
    stage: str
    key: Digest
    epoch: int  # of the lease: a late writer of an earlier epoch works elsewhere
    inputs: Mapping[str, Digest]
    config: Mapping[str, Any]
    place: Place
    proof: Proof  # what the key counted
    code: str = ""  # the digest of the stage's code
    unkeyed: Mapping[str, Any] = field(default_factory=dict)  # of the stage: not in its recipe

    @property
    def store(self) -> Store:
        """The store, opened once in a process."""
        return open_store(self.location)

    def workdir(self) -> Path:
        """A folder for this epoch's unfinished work, made if it is not there."""
        folder = self._work() / f"epoch-{self.epoch:05d}"
        if self.store.backend.local_path("work") is None:
            folder.mkdir(parents=True, exist_ok=True)
        else:  # one by one: a store whose disk has vanished must not be made anew
            for each in (folder.parent.parent, folder.parent, folder):
                each.mkdir(exist_ok=True)
        return folder

    def earlier(self) -> Sequence[Path]:
        """The folders that earlier epochs of the same recipe left, oldest first."""
        own = f"epoch-{self.epoch:05d}"
        return sorted(folder for folder in self._work().glob("epoch-*") if folder.name < own)

    def _work(self) -> Path:
        return work_folder(self.store, self.key)


class Finished(NamedTuple):
    """The files of each output, and what was seen while they were made."""

    files: Files
    observations: Mapping[str, Any] = {}
    as_run: AsRun | None = None


def events_folder(store: Store, stage: str, key: Digest) -> Path:
    """TensorBoard's events of a training; all of a store lie in one folder, which TensorBoard can show as a whole."""
    name = f"tensorboard/{stage.rpartition('/')[2]}-{key[:12]}"
    return store.backend.local_path(name) or store.backend.cache / name


def work_folder(store: Store, key: Digest) -> Path:
    """Where the unfinished work of a recipe lies, a folder for each epoch of its lease."""
    name = f"work/{key}"  # beside the blobs, so that a run on another host finds it
    return store.backend.local_path(name) or store.backend.cache / name


def clear_work(store: Store, key: Digest) -> None:
    """Remove all unfinished work of a recipe: its outputs are in the store."""
    shutil.rmtree(work_folder(store, key), ignore_errors=True)
