"""Training on Ray (Ray Train V2): the driver's side. The loop itself is in `training.py`."""

import errno
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import ray
import ray.train
import torch.distributed as dist
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem
from ray.exceptions import RayError
from ray.train.torch import TorchConfig
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2.api.callback import RayTrainCallback
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from rnnsearch.flows.proof import CodeMismatchError, check, proved
from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_job import Ending, LostWorkerError, TrainingJob, TrainOutcome, Workers
from rnnsearch.flows.training_saves import CURVE, MODEL, OBSERVATIONS, STATE
from rnnsearch.model.step import TrainingError
from rnnsearch.storage.errors import explained
from rnnsearch.storage.processes import current_process, life_of, parse_token

Progress = Callable[[Mapping[str, Any]], None]

_TAIL_SECONDS = 0.5  # between looks for messages of the workers
_STOP_SECONDS = 1.0  # between looks for a request to stop
_RAY_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # 2 by default: how soon an end or a death is seen
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "86400",  # other stages may hold the processors for long
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one process less: SIGTERM already makes a checkpoint
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
}
_UNUSED_CALLBACKS = ("DatasetsCallback", "PlacementGroupCleanerCallback")
_terminated = threading.Event()  # in a worker's process: SIGTERM has come
_running: dict[str, TrainingJob] = {}  # in the driver's
_DEATH_SECONDS = 5.0  # for a process that was killed
_LOOK_SECONDS = 0.05  # between looks whether they have ended


class TrainingStopped(RuntimeError):  # noqa: N818 - nothing went wrong
    """A training that was asked to stop and left a checkpoint; the same request again goes on from there."""


def train_system(job: TrainingJob, progress: Progress = lambda message: None) -> TrainOutcome:
    """Run a training on the Ray cluster that this process is connected to, and return its outputs.

    A job that an earlier epoch finished is returned as it is; otherwise the newest whole checkpoint of `workdir` and
    `earlier` is gone on from. `progress` gets messages with an `event`: `start`, `update`, `row` (of the curve) or
    `end`. It may be called from any thread, which is not the caller's.

    Raises TrainingError where the training cannot go on, and TrainingStopped where it was asked to stop.
    """
    for folder in (job.workdir, *job.earlier):
        if (done := folder / job.finished.name).is_dir():
            return _outcome(done)
    _check_cluster(job)
    job.workdir.mkdir(exist_ok=True)
    for name, value in _RAY_SETTINGS.items():
        os.environ.setdefault(name, value)  # from where Ray Train takes them, and hands them to its workers
    with _told(job.messages, progress):
        _running[job.name] = job
        try:
            result: Any = _trainer(job).fit()
        except (TrainingFailedError, RayError) as error:
            raise TrainingError(
                f"the training {job.name} could not be kept running ({job.lost_workers} failures of workers are "
                f"repaired); at last: {error}"
            ) from error
        finally:
            del _running[job.name]
            _end_controller(job)
    ending: Ending = result.return_value
    if ending.how == "stopped":
        raise TrainingStopped(
            f"the training was asked to stop and did after update {ending.update}; its checkpoint is in "
            f"{job.checkpoints}: run again to go on"
        )
    if ending.how == "failed":
        raise TrainingError(ending.message)
    return _outcome(job.finished)


def request_stop(job: TrainingJob) -> None:
    """Make a running training stop after its update, with a checkpoint; `train_system` then raises TrainingStopped."""
    job.stop_request.touch()


def stop_trainings(seconds: float) -> None:
    """Make the trainings that run in this process stop with a checkpoint, but wait no longer than so many seconds.

    One whose workers have not begun has nothing to keep, and is not waited for.
    """
    for job in list(_running.values()):
        with suppress(OSError):  # its disk is gone: it ends with Ray
            request_stop(job)
    until = time.monotonic() + seconds
    while any(_begun(job) for job in list(_running.values())) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


class _Trainer(TorchTrainer):
    """Without what this training has no use for: each is a process that takes seconds to start.

    They are Ray Data's shards, and a watcher that frees a dead controller's resources, which end with the driver.
    """

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray Data's, of itself
            callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if type(callback).__name__ not in _UNUSED_CALLBACKS]


def _trainer(job: TrainingJob) -> TorchTrainer:
    on_gpu = job.device == "cuda"
    return _Trainer(
        _run_worker,
        train_loop_config={"job": job},
        torch_config=_ProcessGroup(backend="nccl" if on_gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=job.workers, use_gpu=on_gpu, resources_per_worker=_resources(job)
        ),
        run_config=RunConfig(
            name=job.name,
            storage_path=str((job.workdir / "ray").absolute()),
            storage_filesystem=PyFileSystem(FSSpecHandler(Beneath(str(job.workdir.absolute())))),
            failure_config=FailureConfig(
                max_failures=job.lost_workers, controller_failure_limit=job.lost_workers
            ),
            logging_config=LoggingConfig(log_level="ERROR"),
            callbacks=[_Introduced(job.controller)],
        ),
    )


class _Introduced(ControllerCallback):
    """Writes down which process of this machine is Ray's controller of the training."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def after_controller_start(self, train_run_context: Any) -> None:
        with suppress(OSError):  # a broken disk is told of by who needs it
            self.note.write_text(current_process().token(), encoding="utf-8")


def _end_controller(job: TrainingJob) -> None:
    """Kill the controller, which has nothing left to do: Ray only asks it to end, and at times it never does."""
    try:
        controller = parse_token(job.controller.read_text(encoding="utf-8"))
    except OSError:
        return
    if controller is not None and life_of(controller) == "alive":
        with suppress(ProcessLookupError, PermissionError):  # gone just now; of another user
            os.kill(controller.pid, signal.SIGKILL)
        until = time.monotonic() + _DEATH_SECONDS  # a busy machine takes its time
        while life_of(controller) == "alive" and time.monotonic() < until:
            time.sleep(0.01)


class Beneath(LocalFileSystem):
    """The file system for Ray's own notes, which makes nothing once the folder `base` is gone.

    Where the disk of a store vanished, Ray would make folders in its place, and it could not be put back by its name.
    """

    cachable = False

    def __init__(self, base: str, **options: Any) -> None:
        """`base` is there when a training begins."""
        super().__init__(**options)
        self.base = base

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """FileNotFoundError where `base` is not there."""
        if not Path(self.base).is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.base)
        super().makedirs(path, exist_ok=exist_ok)


def _run_worker(config: dict[str, Any]) -> Ending:
    """The training function of every worker; runs in a thread of the worker's process."""
    job: TrainingJob = config["job"]
    context = ray.train.get_context()
    looked = 0.0

    def stopping() -> bool:
        nonlocal looked
        if _terminated.is_set():
            return True
        if time.monotonic() - looked < _STOP_SECONDS:
            return False
        looked = time.monotonic()
        return job.stop_request.exists()

    workers = Workers(rank=context.get_world_rank(), size=context.get_world_size(), stopping=stopping)
    if (error := workers.agree(_repeated(job.errors))) is not None:
        return Ending(
            "failed", 0, f"a worker of the training {job.name} failed twice in the same way: {error}"
        )
    if (fault := _first_fault(job, workers)) is not None:
        return Ending("failed", 0, fault)
    try:
        with nullcontext() if job.proof is None else proved(job.proof):
            return train_worker(job, workers)
    except LostWorkerError:
        raise
    except Exception as error:
        if isinstance(error, CodeMismatchError) and workers.size == 1:
            return Ending("failed", 0, str(error))
        if workers.size == 1 and isinstance(error, OSError):  # a new worker would find the same disk
            return Ending("failed", 0, str(explained(error, f"use {error.filename or job.workdir}")))
        with suppress(OSError), job.errors.open("a", encoding="utf-8") as file:
            file.write(json.dumps(f"{type(error).__name__}: {error}") + "\n")
        raise


def _first_fault(job: TrainingJob, workers: Workers) -> str | None:
    """What the first worker of other code than the key counts says of itself; a collective: all end by it."""
    fault: str | None = None
    if job.proof is not None:
        try:
            check(job.proof)
        except CodeMismatchError as error:
            fault = str(error)
    faults: list[str | None] = [fault] * workers.size
    if workers.size > 1:
        dist.all_gather_object(faults, fault)
    return next((each for each in faults if each is not None), None)


def _begun(job: TrainingJob) -> bool:
    try:
        return job.messages.stat().st_size > 0
    except OSError:
        return False


def _repeated(errors: Path) -> str | None:
    """An error that workers met more than once: starting them again does not mend it."""
    lines = errors.read_text(encoding="utf-8").splitlines() if errors.exists() else []
    twice = [line for number, line in enumerate(lines) if line in lines[:number]]
    return str(json.loads(twice[0])) if twice else None


@dataclass
class _ProcessGroup(TorchConfig):
    """A process group where there is more than one worker, and SIGTERM as a request to stop in each of them."""

    @property
    def backend_cls(self) -> type:
        return _Backend


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(_listen)  # in the main thread of each worker, which may set signal handlers
        if len(worker_group) > 1:
            super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        if len(worker_group) > 1:
            super().on_shutdown(worker_group, backend_config)


def _listen() -> None:
    def note(number: int, frame: FrameType | None) -> None:
        _terminated.set()

    signal.signal(signal.SIGTERM, note)


def _resources(job: TrainingJob) -> dict[str, float]:
    resources = {"CPU": float(job.threads)}
    if job.device == "cuda":
        resources["GPU"] = 1.0
    return resources


def _check_cluster(job: TrainingJob) -> None:
    """Ray would wait for ever for what the cluster does not have."""
    has: dict[str, float] = ray.cluster_resources()
    for name, each in _resources(job).items():
        if has.get(name, 0.0) < each * job.workers:
            raise TrainingError(
                f"the training needs {each * job.workers:g} {name} ({job.workers} workers of {each:g}), the Ray "
                f"cluster has {has.get(name, 0.0):g}; lower train_workers or threads_per_worker, or add nodes"
            )


@contextmanager
def _told(messages: Path, progress: Progress) -> Iterator[None]:
    """Hand every message that appears in a file from now on to `progress`."""
    messages.touch()
    ended = threading.Event()

    def tail() -> None:
        with messages.open(encoding="utf-8") as lines:
            lines.seek(0, os.SEEK_END)
            line = ""
            while True:
                last_look = ended.is_set()
                while part := lines.readline():
                    line += part
                    if line.endswith("\n"):
                        progress(json.loads(line))
                        line = ""
                if last_look:
                    return
                ended.wait(_TAIL_SECONDS)

    thread = threading.Thread(target=tail, name="training messages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _outcome(folder: Path) -> TrainOutcome:
    observations = json.loads((folder / OBSERVATIONS).read_text(encoding="utf-8"))
    return TrainOutcome(folder / MODEL, folder / STATE, folder / CURVE, observations)
