"""Ray: a small cluster of this machine's own, or the one at RAY_ADDRESS, with the same code."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

T = TypeVar("T")
R = TypeVar("R")

_PROBE_SECONDS = 45.0  # for the first worker of a cluster to start, look for the package and answer
_OBJECT_STORE_BYTES = 200 * 1024**2  # tasks pass digests, so that Ray's memory stays almost empty


class ClusterError(RuntimeError):
    """A cluster that cannot be used; the message says what was found and what to do."""


class Cluster:
    """A connection to Ray, made when it is first needed: a run of nothing but hits starts nothing."""

    def __init__(self, processors: int | None = None, address: str | None = None) -> None:
        """Use the cluster at `address`, or start one with `processors` (all of this machine's by default)."""
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        self.processors = processors or os.cpu_count() or 1
        self._connected = False
        self._closed = False

    def connect(self) -> None:
        """Start or reach Ray and make sure that its workers can import this package. Raises ClusterError."""
        if self._closed:
            raise ClusterError("the run is ending")
        if self._connected:
            return
        quiet: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "namespace": "rnnsearch",
        }
        with _same_sigterm():
            if self.address is None:
                own = {"num_cpus": self.processors, "object_store_memory": _OBJECT_STORE_BYTES}
                ray.init(address="local", include_dashboard=False, **own, **quiet)
            else:
                try:
                    ray.init(address=self.address, **quiet)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise ClusterError(
                        f"no Ray cluster answers at {self.address} ({error}); start it, or unset RAY_ADDRESS to run "
                        "here"
                    ) from error
        self._connected = True
        self._probe()

    def close(self) -> None:
        """Leave Ray, for good; a cluster that was started here ends, and what still waits for it gets an error."""
        self._closed = True
        if self._connected:
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

    def _probe(self) -> None:
        """Workers that lack the package would leave a driver waiting for ever: ask one first."""
        here = (version("rnnsearch"), "{}.{}".format(*sys.version_info))

        def look() -> tuple[str, str] | None:  # pickled by value: it must run where the package is missing
            import importlib.metadata  # noqa: PLC0415
            import sys  # noqa: PLC0415

            try:
                found = importlib.metadata.version("rnnsearch")
            except importlib.metadata.PackageNotFoundError:
                return None
            return found, "{}.{}".format(*sys.version_info)

        try:
            found = ray.get(ray.remote(num_cpus=1)(look).remote(), timeout=_PROBE_SECONDS)
        except GetTimeoutError as error:
            raise ClusterError(
                f"no Ray worker answered within {_PROBE_SECONDS:.0f} s; the cluster may be full or still starting: "
                "look at `ray status`"
            ) from error
        if found != here:
            what = f"has rnnsearch {found[0]} on Python {found[1]}" if found else "cannot import rnnsearch"
            raise ClusterError(
                f"a worker of the Ray cluster {what}, this driver has {here[0]} on Python {here[1]}; "
                "install the same package on every node"
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


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
