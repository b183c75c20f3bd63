"""Ray: a small cluster of this machine's own, or the one at RAY_ADDRESS, with the same code."""

import contextlib
import ctypes
import hashlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import rnnsearch

T = TypeVar("T")
R = TypeVar("R")

_ANSWER_SECONDS = 5.0  # for something to listen at an address
_CONNECT_SECONDS = 60.0  # for Ray to become of it; ray.init itself waits for many minutes
_PROBE_SECONDS = 45.0  # for the first worker of each node to start, look for the package and answer
_OBJECT_STORE_BYTES = 200 * 1024**2  # tasks pass digests, so that Ray's memory stays almost empty


class ClusterError(RuntimeError):
    """A cluster that cannot be used; the message says what was found and what to do."""


class Installed(NamedTuple):
    """What a process computes with. A recipe names the driver's: every node must have the same."""

    python: str
    package: str  # version
    code: str  # digest of the package's files
    libraries: Mapping[str, str]  # versions of what the package requires


def installed() -> Installed:
    """What this process computes with."""
    required = [text for text in requires("rnnsearch") or () if "extra ==" not in text]
    names = sorted(re.split(r"[^A-Za-z0-9._-]", text)[0] for text in required)
    return Installed(
        python="{}.{}".format(*sys.version_info),
        package=version("rnnsearch"),
        code=_code(Path(rnnsearch.__path__[0])),
        libraries={name: version(name) for name in names},
    )


class Cluster:
    """A connection to Ray, made when it is first needed: a run of nothing but hits starts nothing."""

    def __init__(self, processors: int | None = None, address: str | None = None) -> None:
        """Use the cluster at `address`, or start one with `processors` (all of this machine's by default).

        A process that is connected to Ray already keeps that connection.
        """
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        self.processors = processors or os.cpu_count() or 1
        self._connected = False
        self._borrowed = False
        self._closed = False
        self._refused: ClusterError | None = None
        self._connecting = threading.Lock()  # stages may run side by side

    def connect(self) -> None:
        """Start or reach Ray and make sure that its workers can import this package. Raises ClusterError."""
        with self._connecting:
            if self._closed:
                raise ClusterError("the run is ending")
            if self._refused is not None:
                raise self._refused
            if self._connected:
                return
            try:
                with _same_sigterm():
                    self._reach()
                self._connected = True
                if self._closed:  # meanwhile: a signal came
                    self.close()
                    raise ClusterError("the run is ending")
                self._probe()
            except ClusterError as error:
                self._refused = error
                raise

    def close(self) -> None:
        """Leave Ray, for good; a cluster that was started here ends, and what still waits for it gets an error."""
        self._closed = True
        if self._connected and not self._borrowed:
            ray.shutdown()
        self._connected = False

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], processors: float = 1.0
    ) -> Iterator[tuple[int, R]]:
        """Run `function` on every task; yield (position, result) as they finish, in any order.

        An error of the function is raised as itself. A lost worker's task is tried again by Ray.
        """
        self.connect()
        remote = ray.remote(num_cpus=processors, max_retries=3)(function)
        capacity = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = iter(enumerate(tasks))
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < capacity and (item := next(waiting, None)) is not None:
                    running[remote.remote(item[1])] = item[0]
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    yield running.pop(reference), _result(reference)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def run(self, function: Callable[[T], R], task: T, processors: float = 1.0) -> R:
        """Run one task on the cluster and return its result."""
        return next(result for _, result in self.map(function, [task], processors))

    def nodes(self) -> int:
        """How many machines the cluster has."""
        self.connect()
        return sum(1 for node in ray.nodes() if node["Alive"])

    def _reach(self) -> None:
        self._borrowed = ray.is_initialized()
        if self._borrowed:
            return
        quiet: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "namespace": "rnnsearch",
        }
        if self.address is None:
            own = {"num_cpus": self.processors, "object_store_memory": _OBJECT_STORE_BYTES}
            ray.init(address="local", include_dashboard=False, **own, **quiet)
            return
        try:
            _knock(self.address)
            _within(_CONNECT_SECONDS, lambda: ray.init(address=self.address, **quiet))
        except (OSError, ValueError, RuntimeError, RayError) as error:
            raise ClusterError(
                f"no Ray cluster answers at {self.address} ({error}); start it, or unset RAY_ADDRESS to run here"
            ) from error

    def _probe(self) -> None:
        """Ask one worker of each node: without the package it would leave a driver waiting for ever."""

        def look() -> tuple[Any, ...] | None:  # pickled by value: it must run where the package is missing
            try:
                from rnnsearch.flows.cluster import installed  # noqa: PLC0415
            except ImportError:
                return None
            return tuple(installed())

        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        ask = ray.remote(num_cpus=0)(look)
        asked = [ask.options(scheduling_strategy=place).remote() for place in places]
        try:
            found = ray.get(asked, timeout=_PROBE_SECONDS)
        except GetTimeoutError as error:
            raise ClusterError(
                f"not every node's Ray worker answered within {_PROBE_SECONDS:.0f} s; the cluster may be starting, or "
                "lack Python there: look at `ray status`"
            ) from error
        here = installed()
        for node, answer in zip(nodes, found, strict=True):
            if (fault := _difference(answer and Installed(*answer), here)) is not None:
                raise ClusterError(
                    f"a worker of the Ray cluster at {node['NodeManagerAddress']} {fault}; "
                    "install the same package, with the same constraints, on every node"
                )


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
    """Keep the handler of SIGTERM: the one that Ray puts over it aborts the process three seconds after.

    `signal.signal` works in the main thread alone, and stages run in others.
    """
    get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get.argtypes, get.restype = [ctypes.c_int], ctypes.c_void_p
    put.argtypes, put.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = get(signal.SIGTERM)
    try:
        yield
    finally:
        put(signal.SIGTERM, before)
        signal.alarm(0)  # Ray's handler sets it, should the signal have come just now


def _difference(there: Installed | None, here: Installed) -> str | None:
    """What a worker has that this driver has not; nothing if they are the same."""
    if there is None:
        return "cannot import rnnsearch, or has one that is not this driver's"
    if there.python != here.python:
        return f"has Python {there.python}, this driver {here.python}"
    if there.package != here.package:
        return f"has rnnsearch {there.package}, this driver {here.package}"
    if there.code != here.code:
        return f"has other code under the name of rnnsearch {here.package} than this driver"
    for name, wanted in here.libraries.items():
        if there.libraries.get(name) != wanted:
            return f"has {name} {there.libraries.get(name)}, this driver {wanted}"
    return None


def _code(folder: Path) -> str:
    """The digest of every file of the package that can decide bytes."""
    digest = hashlib.sha256()
    for root, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".cpp")):
                path = Path(root) / name
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _knock(address: str) -> None:
    """OSError unless something listens at an address of host and port."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), _ANSWER_SECONDS).close()


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Do work that may never end; RuntimeError if it takes longer."""
    failed: list[Exception] = []

    def guarded() -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, name="connecting to Ray", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise RuntimeError(f"nothing that speaks Ray's protocol within {seconds:.0f} s")
    if failed:
        raise failed[0]


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
