"""A place for many runs: a Prefect server, a Ray cluster and a process that forks commands, started once.

Every run gets a *case*: a folder with its store. What processes do to the store is watched by `hooks/sitecustomize`.
"""

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import psutil

HERE = Path(__file__).parent
UPDATES = 12
SETTINGS = (
    "systems.rnnencdec.train.updates=6",
    "systems.rnnencdec.train.checkpoint_every=3",
    f"systems.rnnsearch.train.updates={UPDATES}",
    "systems.rnnsearch.train.checkpoint_every=4",
    "placement.threads_per_worker=1",
)
"""A training of a second; all else of the smoke profile is as shipped."""
MARK = "CHAOS_CASE"
"""In the environment of a case's processes, and of all that they start."""
PATIENCE = 600.0
"""Seconds for a command that takes five: the machine may be somebody else's at times."""

_CLUSTER = """
import logging, sys, ray
context = ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR,
                   log_to_driver=False, object_store_memory=100 * 1024**2, _temp_dir=sys.argv[1])
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""

_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Of a node, not of a run: the raylet ends with them."""


class Ended(NamedTuple):
    """A command that ended."""

    code: int  # negative: by this signal
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        """What a failed test shows."""
        return f"exit {self.code} after {self.seconds:.1f} s\n--- out\n{self.out}\n--- err\n{self.err}"


class Started:
    """A command at work."""

    def __init__(self, pid: int, wait: Callable[[float], int], out: Path, err: Path) -> None:
        """Take a process of which `wait` gives the exit status, or raises TimeoutError."""
        self.pid, self._wait, self._out, self._err = pid, wait, out, err
        self._began = time.monotonic()

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """What became of it; it is killed, and TimeoutError raised, if it takes longer."""
        try:
            code = self._wait(seconds)
        except TimeoutError:
            self.kill()
            raise TimeoutError(f"no end after {seconds:.0f} s\n{self.said()}") from None
        return Ended(code, *self.said(), time.monotonic() - self._began)

    def said(self) -> tuple[str, str]:
        """Its standard output and standard error so far."""
        return tuple(path.read_text() if path.exists() else "" for path in (self._out, self._err))  # type: ignore[return-value]

    def ended(self) -> bool:
        """Whether it is gone."""
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """Kill it."""
        self.send(signal.SIGKILL)


class Case:
    """A folder with one store, and what is known of the processes that changed it."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; it need not exist."""
        self.folder = folder
        self.store = folder / "store"
        folder.mkdir(exist_ok=True)

    def plan(self, *words: object) -> None:
        """Ask for a kill: role, event, area, which of them, `before` or `half`."""
        (self.folder / "plan").write_text(" ".join(map(str, words)))

    def remove(self) -> None:
        """Give the disk space back; what failed is kept."""
        shutil.rmtree(self.folder)

    def fired(self) -> int | None:
        """The process that was killed by the plan."""
        path = self.folder / "fired"
        return int(path.read_text().split()[0]) if path.exists() else None

    def calm(self) -> None:
        """Forget the plan and what was counted."""
        for path in [*self.folder.glob("counts.*"), self.folder / "plan", self.folder / "fired"]:
            path.unlink(missing_ok=True)

    def changes(self) -> list[str]:
        """`role event area pid` of each change, in order."""
        path = self.folder / "changes"
        return path.read_text().splitlines() if path.exists() else []

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many changes of each role, event and area there were since `calm`."""
        found = {}
        for path in sorted(self.folder.glob("counts.*")):
            _, role, event, area = path.name.split(".", 3)
            found[role, event, area] = path.stat().st_size
        return found

    def living(self) -> list[psutil.Process]:
        """The processes that changed the store or carry the case's mark, and live."""
        pids = {int(line.split()[-1]) for line in self.changes()}
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.pid in pids or process.environ().get(MARK) == str(self.folder)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def settle(self, seconds: float = 60) -> list[str]:
        """Wait until no process of the case lives; what still does after `seconds`, in words."""
        end = time.monotonic() + seconds
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.1)
        return [_described(process) for process in left]


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return str(process.pid)


class Arena:
    """Long-lived services, and a folder for cases."""

    def __init__(self) -> None:
        """Start everything in a new folder; `close` ends it."""
        self.short = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))  # Ray's sockets need short paths
        self.short.chmod(0o755)  # some runs are another user's
        self.root = self.short / "cases"
        self.root.mkdir()
        self._ends: dict[int, int] = {}
        self._pids: queue.Queue[int] = queue.Queue()
        self._cases = 0
        self._processes: list[subprocess.Popen[str]] = []
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAY_", "PREFECT_", "RNNSEARCH_", "CHAOS_CASE"))
        } | {
            "CHAOS_ROOT": str(self.root),
            "PYTHONPATH": os.pathsep.join(
                [str(HERE / "hooks"), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "PREFECT_HOME": str(self.short / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # beside a busy neighbour they would hardly run
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "chaos" * 8,
        }
        self.broken_disk = self.root / "eio"
        """What fails in Ray's workers: see `eio.c`."""
        self.preload = _compiled(self.short / "eio.so")
        try:
            server = self._start_server()
            cluster = self._start_cluster()
            self.services = {"PREFECT_API_URL": server, "RAY_ADDRESS": cluster}
            self._forks = self._start_forks()
        except BaseException:
            self.close()
            raise

    def case(self, opening: Path | None = None) -> Case:
        """A new case; its store is a copy of `opening`'s, or is not there yet."""
        self._cases += 1
        case = Case(self.root / f"case-{self._cases:04d}")
        if opening is not None:
            shutil.copytree(opening, case.store, symlinks=True)
        return case

    def start(
        self,
        case: Case,
        *words: str,
        settings: Sequence[str] = SETTINGS,
        environment: Mapping[str, str] | None = None,
        mortal: bool = False,
        alone: bool = False,
        package: Path | None = None,
    ) -> Started:
        """Begin a command (`run` of the smoke profile by default); `alone`: with servers of its own; `mortal`: root
        is refused what the modes of files refuse.

        `package` is a folder with another `rnnsearch` in it, for a command that is alone.
        """
        if not words:
            words = ("run", "--profile", "smoke", *(word for each in settings for word in ("--set", each)))
        name = f"command-{time.monotonic_ns()}"
        out, err = case.folder / f"{name}.out", case.folder / f"{name}.err"
        own = {"RNNSEARCH_STORE": str(case.store), MARK: str(case.folder), **(environment or {})}
        if package is not None:
            own["PYTHONPATH"] = f"{package}{os.pathsep}{self.environment['PYTHONPATH']}"
        if alone:
            return self._start_alone(words, own, out, err)
        request = {"words": words, "environment": own, "mortal": mortal, "out": str(out), "err": str(err)}
        _stdin(self._forks).write(json.dumps(request) + "\n")
        _stdin(self._forks).flush()
        pid = self._pids.get(timeout=PATIENCE)
        return Started(pid, lambda seconds: self._end_of(pid, seconds), out, err)

    def run(self, case: Case, *words: str, settings: Sequence[str] = SETTINGS, alone: bool = False) -> Ended:
        """Run a command to its end."""
        return self.start(case, *words, settings=settings, alone=alone).wait()

    def workers(self) -> list[psutil.Process]:
        """The Ray workers of the long-lived cluster that are at work."""
        return [process for process in descendants(self._cluster.pid) if is_worker(process)]

    def close(self, *, keep: bool = False) -> None:
        """End the services, and remove all files unless they are to be looked at."""
        for process in reversed(self._processes):
            self._end(process)
        if keep:
            print(f"cases are kept in {self.root}")
        else:
            shutil.rmtree(self.short, ignore_errors=True)

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        left = descendants(process.pid)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for each in left:
            if each.is_running():
                each.kill()
        _stdin(process).close()
        _stdout(process).close()

    def _start_alone(self, words: Sequence[str], own: Mapping[str, str], out: Path, err: Path) -> Started:
        home = {"RAY_TMPDIR": str(self.short), "PREFECT_HOME": str(self.short / "alone")}
        environment = self.environment | home | own
        with out.open("w", encoding="utf-8") as to_out, err.open("w", encoding="utf-8") as to_err:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("rnnsearch"), *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                start_new_session=True,
            )

        def wait(seconds: float) -> int:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise TimeoutError from None

        return Started(process.pid, wait, out, err)

    def _spawn(
        self, words: Sequence[str | Path], log: str, extra: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        with (self.root / log).open("w") as file:
            process = subprocess.Popen(
                words,
                env=self.environment | extra,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _start_server(self) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = self._spawn([sys.executable, *words, "--no-services"], "server.log", {})
        threading.Thread(target=_stdout(server).read, daemon=True).start()
        url = f"http://127.0.0.1:{port}/api"
        end = time.monotonic() + 600
        while True:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    return url
            except OSError:
                if time.monotonic() > end or server.poll() is not None:
                    raise
                time.sleep(0.2)

    def _start_cluster(self) -> str:
        fragile = {**self._fragile(), "CHAOS_EIO": str(self.broken_disk)}
        self._cluster = self._spawn([sys.executable, "-c", _CLUSTER, self.short], "cluster.log", fragile)
        return _stdout(self._cluster).readline().strip()

    def _start_forks(self) -> subprocess.Popen[str]:
        forks = self._spawn(
            [sys.executable, HERE / "commands.py"], "forks.log", self.services | self._fragile()
        )
        if _stdout(forks).readline().strip() != "ready":
            raise RuntimeError((self.root / "forks.log").read_text())

        def listen() -> None:
            for line in _stdout(forks):
                kind, pid, *status = line.split()
                if kind == "pid":
                    self._pids.put(int(pid))
                else:
                    self._ends[int(pid)] = int(status[0])

        threading.Thread(target=listen, daemon=True).start()
        return forks

    def _fragile(self) -> Mapping[str, str]:
        return {} if self.preload is None else {"LD_PRELOAD": str(self.preload)}

    def _end_of(self, pid: int, seconds: float) -> int:
        end = time.monotonic() + seconds
        while pid not in self._ends:
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.02)
        return self._ends[pid]


def until(said: str, run: Started) -> None:
    """Wait until a run has said something on standard error."""
    while said not in run.said()[1]:
        if run.ended():
            raise AssertionError(f"it never said {said!r}\n{run.wait()}")
        time.sleep(0.01)


def _compiled(library: Path) -> Path | None:
    """The library that makes a disk fail, or None where there is no compiler."""
    words = ["gcc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "eio.c", "-ldl"]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return library


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is a Ray worker that has something to do."""
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return title.startswith("ray::") and not title.startswith(("ray::IDLE", *_AGENTS))


def _stdin(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdin is None:
        raise RuntimeError("started without a pipe")
    return process.stdin


def _stdout(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdout is None:
        raise RuntimeError("started without a pipe")
    return process.stdout
