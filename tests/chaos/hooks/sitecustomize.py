"""Kills its process at a chosen change of a store. Python imports it first where this folder is on PYTHONPATH.

A case is a folder of CHAOS_ROOT that holds a `store`. Every change that any process is about to make below `store` is
appended to the file `changes` beside it, as `role event area pid`: who (the driver or a Ray worker), what (`open` for
writing, `fsync`, `link`, `rename`, `remove`, …) and where. Where the file `plan` asks for the n-th change of one kind,
the process that is about to make it dies by SIGKILL instead. The plan may say `half` (the file is cut in two before, as
if the kill had come in the middle of its writing) or `sleep` (the process stops until SIGCONT).

CHAOS_CLOCK moves `time.time` by so many seconds.
"""

import os
import signal
import sys
import time
from pathlib import Path
from stat import S_ISREG

_FOLDERS = {"checkpoints": "checkpoint", "finished": "outputs", ".finished": "outputs", "fetched": "fetched"}
_EVENTS = {
    "os.link": 1,
    "os.rename": 1,
    "os.remove": 0,
    "os.mkdir": 0,
    "os.rmdir": 0,
    "os.chmod": 0,
}  # event -> which argument is the path that says where
_DIR_FDS = {"os.link": 3, "os.rename": 3, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1, "os.chmod": 2}
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_root = os.environ.get("CHAOS_ROOT", "") + "/"
_role = "worker" if any(word.endswith("default_worker.py") for word in sys.orig_argv) else "driver"
_plans: dict[tuple[int, str], list[str]] = {}


def area(path: str) -> str:
    """Which part of a store a path below it belongs to."""
    parts = path.split("/")
    if parts[0] == "work":
        return next((_FOLDERS[part] for part in parts if part in _FOLDERS), "work")
    return f"local-{parts[2]}" if parts[0] == "local" and len(parts) > 2 else parts[0]


def _plan(case: str) -> list[str]:
    """The words of a case's plan: role, event, area, which of them, how. Read once in a process."""
    key = os.getpid(), case
    if key not in _plans:
        try:
            _plans[key] = Path(case, "plan").read_text(encoding="utf-8").split()
        except OSError:
            _plans[key] = []
    return _plans[key]


def _append(path: str, line: bytes) -> int:
    """Add a line to a file; its size after that."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line)
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


def _note(event: str, path: str, descriptor: int | None = None) -> None:
    """Count a change, and die if it is the one."""
    case, _, inside = path[len(_root) :].partition("/store/")
    if not inside or "/" in case:
        return
    case, where = _root + case, area(inside)
    try:
        _append(f"{case}/changes", f"{_role} {event} {where} {os.getpid()}\n".encode())
        number = _append(f"{case}/counts.{_role}.{event}.{where}", b".")
    except OSError:  # the case is being removed
        return
    plan = _plan(case)
    if plan[:4] != [_role, event, where, str(number)]:
        return
    _append(f"{case}/fired", f"{os.getpid()}\n".encode())
    if plan[4] == "half" and descriptor is not None and S_ISREG((file := os.fstat(descriptor)).st_mode):
        os.ftruncate(descriptor, file.st_size // 2)  # of a folder there is no half
    os.kill(os.getpid(), signal.SIGSTOP if plan[4] == "sleep" else signal.SIGKILL)


def _open_path(descriptor: int) -> str:
    """The path of an open file or folder."""
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _full(path: object, folder: object) -> str:
    """The path of an event's argument, which may be relative to an open folder."""
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if text.startswith("/") or not isinstance(folder, int) or folder < 0:
        return text
    return f"{_open_path(folder)}/{text}"


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not isinstance(flags, int) or not flags & _CHANGES:
            return
        full = _full(path, None)
    elif event in _EVENTS:
        full = _full(arguments[_EVENTS[event]], arguments[_DIR_FDS[event]])
    else:
        return
    if full.startswith(_root):
        _note(event.removeprefix("os."), full)


def _watched_fsync(descriptor: int) -> None:
    path = _open_path(descriptor)
    if path.startswith(_root):
        _note("fsync", path, descriptor)
    _fsync(descriptor)


def shift_clock() -> None:
    """Let the wall clock of this process be wrong, if it is asked for."""
    if "CHAOS_CLOCK" in os.environ:
        true, shift = time.time, float(os.environ["CHAOS_CLOCK"])
        time.time = lambda: true() + shift


if _root != "/":
    _fsync, os.fsync = os.fsync, _watched_fsync  # no audit event
    sys.addaudithook(_hook)
shift_clock()
