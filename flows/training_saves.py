"""What the first worker of a training writes and reads: checkpoints while it goes on, outputs at the end."""

import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rnnsearch.flows.training_job import TrainingJob
from rnnsearch.flows.training_log import Curve
from rnnsearch.model.checkpoint import (
    CheckpointError,
    Found,
    Snapshot,
    copy_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
    write_model,
)
from rnnsearch.model.step import TrainingError

MODEL, STATE, CURVE, OBSERVATIONS = "model", "state", "curve.parquet", "observations.json"
_SEEN = "seen.json"  # observations beside a checkpoint, no part of it
_UNFINISHED = ".finished"


class Saves:
    """Writes checkpoints by a thread, so that updates go on; one at a time."""

    def __init__(self, job: TrainingJob) -> None:
        """Write into the job's `workdir`."""
        self._job = job
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def find(self) -> Found | None:
        """The newest whole checkpoint of this epoch or an earlier one, or else the state to start from.

        Raises TrainingError where the checkpoint found is not of this training.
        """
        job = self._job
        found = newest_checkpoint(
            [job.checkpoints, *(folder / job.checkpoints.name for folder in job.earlier)]
        )
        if found is None and job.initial_state is not None:
            try:
                found = Found(job.initial_state, read_checkpoint(job.initial_state))
            except CheckpointError as error:
                raise TrainingError(f"the state to start from cannot be used: {error}") from error
        return found

    def seen(self, found: Found) -> Mapping[str, Any] | None:
        """What had been observed when a checkpoint was written, where this training wrote it."""
        try:
            observations: Mapping[str, Any] = json.loads((found.place / _SEEN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return observations

    def save(self, snapshot: Snapshot, observations: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint, once the one before is written; raise what went wrong with that."""
        self.wait()
        self._writing = self._thread.submit(self._write, snapshot, observations)

    def wait(self) -> None:
        """Until the checkpoint that was begun is whole on the disk; raise what went wrong."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def finish(self, snapshot: Snapshot, curve: Curve, observations: Mapping[str, Any]) -> None:
        """Lay the outputs out in `finished`, which appears when all of it is there."""
        self.wait()
        job = self._job
        unfinished = job.workdir / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        found = self.find()
        if found is None or found.snapshot.update != snapshot.update:
            raise TrainingError(f"the last checkpoint in {job.checkpoints} is gone; run again")
        copy_checkpoint(found.place, unfinished / STATE)
        sizes = (job.source_size, job.target_size)
        write_model(unfinished / MODEL, job.network, sizes, snapshot.parameters, snapshot.best)
        curve.write(unfinished / CURVE)
        (unfinished / OBSERVATIONS).write_text(
            json.dumps(observations, indent=1, sort_keys=True), encoding="utf-8"
        )
        for path in (*unfinished.rglob("*"), unfinished):
            _sync(path)
        unfinished.rename(job.finished)
        _sync(job.workdir)

    def close(self) -> None:
        """Wait for what is being written and end the thread."""
        self.wait()
        self._thread.shutdown()

    def _write(self, snapshot: Snapshot, observations: Mapping[str, Any]) -> None:
        place = write_checkpoint(self._job.checkpoints, snapshot)
        (place / _SEEN).write_text(json.dumps(observations), encoding="utf-8")
        prune_checkpoints(self._job.checkpoints)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
