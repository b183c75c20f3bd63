"""Training on a real Ray: one and two workers, a killed worker, SIGTERM, stops and errors."""

import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow.fs import FSSpecHandler, PyFileSystem

from rnnsearch.flows import kinds
from rnnsearch.flows.proof import proof_of
from rnnsearch.flows.train import Beneath, TrainingStopped, stop_trainings, train_system
from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_job import Ending, TrainingJob, TrainOutcome, Workers
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.step import TrainingError
from rnnsearch.storage.digests import Digest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

WORDS = 20
TRAIN = TrainConfig(
    updates=40,
    batch=8,
    window_batches=6,
    log_every=1,
    checkpoint_every=7,
    evaluate_every=20,
    optimizer="adam",
    learning_rate=0.01,
)
LONG = {"updates": 300}  # long enough to be caught in the middle


def _job(folder: Path, examples: Callable[..., list[Path]]) -> TrainingJob:
    return TrainingJob(
        examples=examples(folder / "examples", 100, shards=3, words=WORDS),
        dev=examples(folder / "dev", 7, words=WORDS, seed=1)[0],
        network=NetworkConfig(units=6, embedding=5, alignment_units=4, maxout_units=3),
        train=TRAIN,
        source_size=WORDS,
        target_size=WORDS,
        name=folder.name,
        workdir=folder / "work",
    )


@pytest.fixture
def job(tmp_path: Path, examples: Callable[..., list[Path]]) -> TrainingJob:
    return _job(tmp_path, examples)


@pytest.fixture(scope="module")
def straight(
    tmp_path_factory: pytest.TempPathFactory, examples: Callable[..., list[Path]], ray_cluster: None
) -> TrainOutcome:
    """A long training of two workers that nothing disturbed."""
    job = _job(tmp_path_factory.mktemp("straight"), examples)
    return train_system(_elsewhere(job, "straight", workers=2, train=LONG))


def _elsewhere(job: TrainingJob, name: str, **changes: Any) -> TrainingJob:
    train = job.train.model_copy(update=changes.pop("train", {}))
    workdir = job.workdir.parent / name
    return replace(job, workdir=workdir, name=f"{job.name}-{name}", train=train, **changes)


def _artifacts(outcome: TrainOutcome) -> dict[str, bytes]:
    folder = outcome.model.parent
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in paths if "observations" not in path.name
    }


def _processes(title: str) -> list[psutil.Process]:
    """Those of this test's own Ray that do such work."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith(title):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@contextmanager
def _at_update(job: TrainingJob, update: int, act: Callable[[], None]) -> Iterator[None]:
    """Do something once, soon after this update of a job that runs inside."""
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            end = time.monotonic() + 120
            while time.monotonic() < end:
                if job.messages.exists() and f'"update": {update},' in job.messages.read_text():
                    act()
                    return
                time.sleep(0.002)
            raise TimeoutError("the update did not come")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()
    if failures:
        raise failures[0]


def _send(number: signal.Signals) -> Callable[[], None]:
    def act() -> None:
        workers = _processes("ray::RayTrainWorker")
        assert workers
        os.kill(workers[-1].pid, number)

    return act


def test_one_worker_makes_the_bytes_of_the_plain_loop_and_tells_what_it_does(job: TrainingJob) -> None:
    messages: list[Any] = []
    with ThreadPoolExecutor(1) as threads:  # Prefect runs tasks in threads: so does this
        outcome = threads.submit(train_system, job, messages.append).result()
    assert _processes("ray::TrainController") == []
    events = [message["event"] for message in messages]
    assert events[0] == "work"
    assert "start" in events
    assert events[-1] == "end"
    assert events.count("row") == 40
    assert outcome.observations["updates"] == 40
    assert outcome.observations["workers"] == 1
    assert pq.read_table(outcome.curve).num_rows == 40
    plain = _elsewhere(job, "plain")
    plain.workdir.mkdir()
    before = torch.get_num_threads()
    try:
        assert train_worker(plain, Workers()) == Ending("finished", 40)
    finally:
        torch.set_num_threads(before)
    assert _artifacts(outcome) == _artifacts(outcome._replace(model=plain.finished / "model"))
    assert train_system(job) == outcome  # nothing is done again
    later = _elsewhere(job, "later", earlier=[job.workdir])
    assert train_system(later) == outcome
    assert not later.workdir.exists()


def test_a_killed_worker_costs_seconds_and_not_a_bit(job: TrainingJob, straight: TrainOutcome) -> None:
    killed = _elsewhere(job, "killed", workers=2, train=LONG)
    with _at_update(killed, 100, _send(signal.SIGKILL)):
        outcome = train_system(killed)
    assert outcome.observations["starts"] == 2
    assert _artifacts(outcome) == _artifacts(straight)


def test_sigterm_to_one_worker_ends_all_with_a_checkpoint_and_a_rerun_goes_on(
    job: TrainingJob, straight: TrainOutcome
) -> None:
    stopped = _elsewhere(job, "stopped", workers=2, train=LONG)
    with (
        _at_update(stopped, 100, _send(signal.SIGTERM)),
        pytest.raises(TrainingStopped, match="after update"),
    ):
        train_system(stopped)
    checkpoints = [
        json.loads(path.read_text())["update"] for path in stopped.checkpoints.glob("*/progress.json")
    ]
    assert 100 <= max(checkpoints) < 300
    assert max(checkpoints) % 7  # not one that was due
    rerun = _elsewhere(job, "rerun", workers=2, train=LONG, earlier=[stopped.workdir])
    assert _artifacts(train_system(rerun)) == _artifacts(straight)


def test_the_trainings_of_a_driver_that_ends_are_stopped_with_a_checkpoint_within_a_bounded_wait(
    job: TrainingJob,
) -> None:
    began = time.monotonic()
    stop_trainings(60)
    assert time.monotonic() - began < 1  # none runs: nothing to wait for
    long = _elsewhere(job, "ending", train={"updates": 100_000, "checkpoint_every": 90_000})
    with ThreadPoolExecutor(1) as threads:
        training = threads.submit(train_system, long)
        with _at_update(long, 20, _send(signal.SIGSTOP)):  # its worker hears nothing now
            pass
        began = time.monotonic()
        stop_trainings(1)
        assert 1 <= time.monotonic() - began < 5
        assert not training.done()
        _send(signal.SIGCONT)()
        stop_trainings(60)
        with pytest.raises(TrainingStopped):
            training.result(timeout=5)
    assert len(list(long.checkpoints.glob("update-*"))) == 1


def test_ray_makes_nothing_where_the_folder_of_a_training_was(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "epoch", tmp_path / "elsewhere"
    base.mkdir()
    sent = pickle.dumps(PyFileSystem(FSSpecHandler(Beneath(str(base)))))  # to the controller and the workers
    files = pickle.loads(sent)
    files.create_dir(str(base / "ray" / "run"))
    with files.open_output_stream(str(base / "ray" / "run" / "note")) as note:
        note.write(b"1")
    base.rename(elsewhere)
    with pytest.raises(FileNotFoundError, match=base.name):
        files.create_dir(str(base / "ray" / "run"))
    with pytest.raises(FileNotFoundError):
        files.open_output_stream(str(base / "ray" / "run" / "note"))
    assert list(tmp_path.iterdir()) == [elsewhere]


def test_what_the_cluster_does_not_have_is_an_error_at_once(job: TrainingJob) -> None:
    with pytest.raises(TrainingError, match="needs 64 CPU"):
        train_system(replace(job, workers=8, threads=8))
    with pytest.raises(TrainingError, match="needs 1 GPU"):
        train_system(replace(job, device="cuda"))


def test_a_training_that_cannot_go_on_is_told_once_and_not_tried_again(
    job: TrainingJob, straight: TrainOutcome
) -> None:
    other = _elsewhere(job, "other", train={"batch": 4}, initial_state=straight.state)
    with pytest.raises(TrainingError, match="its batch is 8, here it is 4"):
        train_system(other)


def test_an_error_that_comes_again_ends_the_training_and_says_what_it_was(job: TrainingJob) -> None:
    gone = _elsewhere(job, "gone", examples=[job.workdir.parent / "gone.parquet"], workers=2)
    with pytest.raises(
        TrainingError, match=r"failed twice in the same way: FileNotFoundError: .*gone\.parquet"
    ):
        train_system(gone)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_loaded_other_code_than_the_key_counts_end_the_training_at_once(
    job: TrainingJob, workers: int
) -> None:
    known, other = proof_of(kinds.TRAIN.roots), Digest("0" * 64)
    module = "rnnsearch.model.step"
    proof = known._replace(code=other, modules={**known.modules, module: other})
    refused = _elsewhere(job, f"refused-{workers}", workers=workers, proof=proof)
    with pytest.raises(
        TrainingError, match=r"^a worker on \S+ has another rnnsearch\.model\.step than the key"
    ):
        train_system(refused)
    assert not refused.finished.exists()
    assert not list(refused.checkpoints.glob("*"))
    assert not refused.errors.exists()  # no worker was started again
