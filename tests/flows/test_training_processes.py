"""Workers as processes with gloo, without Ray: two and four of them train as one alone does, uneven shares included."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_data import Examples, shared_batches
from rnnsearch.flows.training_job import Ending, TrainingJob, Workers
from rnnsearch.model.checkpoint import read_checkpoint
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer

pytestmark = pytest.mark.slow

WORDS = 20
ROWS = 103  # with batches of 10, eleven a window: the last has 3 rows, so that one worker of four gets none
PROCESS = """
import pickle, sys
from pathlib import Path
import torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from test_training_processes import gradients
from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_job import Workers
job, rank, size = pickle.loads(Path(sys.argv[2]).read_bytes()), int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{job.workdir}/meeting", rank=rank, world_size=size)
workers = Workers(rank=rank, size=size)
torch.set_num_threads(1)
torch.save(gradients(job, workers), job.workdir / f"gradients-{rank}")
ending = train_worker(job, workers)
dist.destroy_process_group()
sys.exit(ending.how != "finished")
"""


@pytest.fixture
def job(tmp_path: Path, examples: Callable[..., list[Path]]) -> TrainingJob:
    return TrainingJob(
        examples=examples(tmp_path / "examples", ROWS, words=WORDS, longest=20),
        dev=examples(tmp_path / "dev", 7, words=WORDS, seed=1, longest=15)[0],
        network=NetworkConfig(units=6, embedding=5, alignment_units=4, maxout_units=3),
        train=TrainConfig(
            updates=24, batch=10, window_batches=11, log_every=1, evaluate_every=8, precision="float64"
        ),
        source_size=WORDS,
        target_size=WORDS,
        name="test",
        workdir=tmp_path / "alone",
    )


def gradients(job: TrainingJob, workers: Workers) -> list[torch.Tensor]:
    """The summed gradient of a full global batch and of the short one, as this worker sees it."""
    found = []
    for update in (0, 10):
        network = Network(job.network, job.source_size, job.target_size)
        initialize(network, 1)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(3).add_(0.01)  # so that no gradient is zero
        trainer = Trainer(network.double(), job.train, workers.sum)
        (shared,) = shared_batches(
            Examples(job.examples),
            update,
            update + 1,
            batch=job.train.batch,
            window_batches=job.train.window_batches,
            rank=workers.rank,
            world=workers.size,
        )
        trainer.update(shared.batch)
        found.append(trainer.flat.gradients_P.clone())
    return found


def _numbers(row: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("size", [2, 4])
def test_trap_17_processes_with_gloo_have_the_gradients_and_the_curve_of_one_alone(
    job: TrainingJob, size: int
) -> None:
    job.workdir.mkdir()
    threads = torch.get_num_threads()
    try:
        assert train_worker(job, Workers()) == Ending("finished", 24)
    finally:
        torch.set_num_threads(threads)
    shared = replace(job, workdir=job.workdir.with_name("shared"))
    shared.workdir.mkdir()
    (shared.workdir / "job").write_bytes(pickle.dumps(shared))
    command = [sys.executable, "-c", PROCESS, Path(__file__).parent, shared.workdir / "job"]
    processes = [subprocess.Popen([*command, str(rank), str(size)]) for rank in range(size)]
    try:
        assert [process.wait(240) for process in processes] == [0] * size
    finally:
        for process in processes:
            process.kill()
    expected = gradients(job, Workers())
    for rank in range(size):
        for ours, theirs in zip(torch.load(shared.workdir / f"gradients-{rank}"), expected, strict=True):
            assert theirs.abs().max() > 1
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    curve, alone = (pq.read_table(each.finished / "curve.parquet").to_pylist() for each in (shared, job))
    for row, other in zip(curve, alone, strict=True):
        assert _numbers(row) == pytest.approx(_numbers(other), rel=1e-9)
    ours, theirs = (read_checkpoint(each.finished / "state").parameters for each in (shared, job))
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter, theirs[name], rtol=0, atol=1e-9)
