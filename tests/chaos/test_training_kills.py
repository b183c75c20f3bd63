"""Trainings killed with SIGKILL wherever it hurts, then run again: the outcome equals an undisturbed one's."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_job import Ending, TrainingJob, Workers
from rnnsearch.model.checkpoint import newest_checkpoint
from rnnsearch.model.config import NetworkConfig, TrainConfig

pytestmark = [pytest.mark.chaos, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(3_600)]

WORDS = 2_000
TRAIN = TrainConfig(
    updates=300,  # 1,600 examples, so 20 batches of 80 a window: fifteen windows
    log_every=1,
    checkpoint_every=9,
    evaluate_every=50,
    optimizer="adam",
    learning_rate=0.01,
)
DRIVER = """
import logging, pickle, sys
from pathlib import Path
import ray
from rnnsearch.flows.train import train_system
job = pickle.loads(Path(sys.argv[1]).read_bytes())
ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False,
         object_store_memory=100 * 1024**2)
train_system(job)
"""


_started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    yield
    while _started:
        driver = _started.pop()
        if driver.poll() is None:
            _kill_all(driver)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, examples: Callable[..., list[Path]]) -> TrainingJob:
    folder = tmp_path_factory.mktemp("kills")
    return TrainingJob(
        examples=examples(folder / "examples", 1_600, words=WORDS, longest=6),
        dev=examples(folder / "dev", 20, words=WORDS, seed=1)[0],
        network=NetworkConfig(units=48, embedding=64, alignment_units=32, maxout_units=32),
        train=TRAIN,
        source_size=WORDS,
        target_size=WORDS,
        name="kills",
        workdir=folder / "none",
    )


@pytest.fixture(scope="module")
def straight(job: TrainingJob) -> dict[str, bytes]:
    """What an undisturbed training of the same placement makes."""
    undisturbed = replace(job, workdir=job.workdir.with_name("straight"))
    undisturbed.workdir.mkdir()
    before = torch.get_num_threads()
    try:
        assert train_worker(undisturbed, Workers()) == Ending("finished", 300)
    finally:
        torch.set_num_threads(before)
    return _artifacts(undisturbed)


@pytest.fixture
def epochs(job: TrainingJob, tmp_path: Path) -> Iterator[TrainingJob]:
    """The job in folders that a lease's epochs would have, one after the other."""

    def each() -> Iterator[TrainingJob]:
        earlier: list[Path] = []
        while True:
            workdir = tmp_path / f"epoch-{len(earlier)}"
            yield replace(job, workdir=workdir, name=f"kills-{len(earlier)}", earlier=tuple(earlier))
            earlier.append(workdir)

    return each()


def _finished(job: TrainingJob) -> list[Path]:
    places = [folder / job.finished.name for folder in (job.workdir, *job.earlier)]
    return [place for place in places if place.is_dir()]


def _artifacts(job: TrainingJob) -> dict[str, bytes]:
    """The outputs, of whichever epoch finished: workers outlive a killed driver, and may arrive without it."""
    finished = _finished(job)[0]
    paths = [path for path in sorted(finished.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(finished)): path.read_bytes()
        for path in paths
        if path.name != "observations.json"
    }


def _start(job: TrainingJob) -> subprocess.Popen[bytes]:
    job.workdir.mkdir(parents=True)
    (job.workdir / "job").write_bytes(pickle.dumps(job))
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, job.workdir / "job"], env=environment)
    _started.append(driver)
    return driver


def _finish(job: TrainingJob) -> None:
    assert _start(job).wait(900) == 0


def _descendants(driver: subprocess.Popen[bytes], name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _wait_for(condition: Callable[[], bool], driver: subprocess.Popen[bytes], pause: float = 0.002) -> None:
    end = time.monotonic() + 900
    while not condition():
        assert driver.poll() is None, "the driver ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(pause)


def _said(job: TrainingJob, update: int) -> Callable[[], bool]:
    """Whether the workers of this epoch have got so far; a killed driver's go on for two seconds."""

    def said() -> bool:
        lines = job.messages.read_text().splitlines() if job.messages.exists() else []
        updates = [json.loads(line).get("update", 0) for line in lines if line.endswith("}")]
        return bool(updates) and updates[-1] >= update

    return said


def _kill_all(driver: subprocess.Popen[bytes]) -> None:
    everything = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
    for process in everything:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    driver.wait(60)


def test_a_worker_killed_twice_inside_a_window_is_replaced(
    epochs: Iterator[TrainingJob], straight: dict[str, bytes]
) -> None:
    job = next(epochs)
    driver = _start(job)
    for update in (25, 70):
        _wait_for(_said(job, update), driver)
        (worker,) = _descendants(driver, "ray::RayTrainWorker")
        worker.kill()
    assert driver.wait(900) == 0
    assert _artifacts(job) == straight
    assert json.loads((job.finished / "observations.json").read_text())["starts"] == 3


def test_the_whole_cluster_killed_is_gone_on_from(
    epochs: Iterator[TrainingJob], straight: dict[str, bytes]
) -> None:
    first = next(epochs)
    driver = _start(first)
    _wait_for(_said(first, 50), driver)
    _kill_all(driver)
    second = next(epochs)
    _finish(second)
    assert _artifacts(second) == straight


def test_trap_22_a_worker_killed_while_it_writes_a_checkpoint_leaves_the_one_before(
    epochs: Iterator[TrainingJob], straight: dict[str, bytes]
) -> None:
    for _ in range(8):  # until a kill falls into the writing
        job = next(epochs)
        driver = _start(job)

        def writing(job: TrainingJob = job) -> bool:
            return any(job.checkpoints.glob(".unfinished-*")) and any(job.checkpoints.glob("update-*"))

        _wait_for(writing, driver, pause=0)
        _kill_all(driver)
        found = newest_checkpoint([job.checkpoints])
        assert found is not None
        if any(job.checkpoints.glob(".unfinished-*")):
            break
    else:
        pytest.fail("no kill fell into the writing of a checkpoint")
    last = next(epochs)
    _finish(last)
    assert _artifacts(last) == straight


def test_a_driver_killed_again_and_again_costs_nothing_but_time(
    epochs: Iterator[TrainingJob], straight: dict[str, bytes]
) -> None:
    job = next(epochs)
    for update in (3, 100):
        driver = _start(job)
        _wait_for(_said(job, update), driver)
        driver.kill()
        driver.wait(60)
        job = next(epochs)  # at once, while workers of the one before may still be alive
    _finish(job)
    assert _artifacts(job) == straight
    if job.messages.exists():  # nothing that a checkpoint held was done again
        told = [json.loads(line) for line in job.messages.read_text().splitlines()]
        start = next(message for message in told if message["event"] == "start")
        assert start["update"] >= 100 // 9 * 9 - 9


def test_sigterm_to_the_worker_leaves_a_checkpoint_of_its_last_update(epochs: Iterator[TrainingJob]) -> None:
    job = next(epochs)
    driver = _start(job)
    _wait_for(_said(job, 30), driver)
    (worker,) = _descendants(driver, "ray::RayTrainWorker")
    worker.send_signal(signal.SIGTERM)
    assert driver.wait(900) == 1  # TrainingStopped, uncaught
    found = newest_checkpoint([job.checkpoints])
    assert found is not None
    assert found.snapshot.update == found.snapshot.facts["curve"]["rows"][-1]["update"] >= 30
