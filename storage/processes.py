"""Who a process is, so that another one can tell whether it still lives.

A process id alone is reused; with the start time (ticks since boot on Linux, no wall clock), the boot and the
namespace of ids it is not.
"""

import functools
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

import psutil

Life = Literal["alive", "dead", "unknown"]

_SEPARATOR = "~"


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of one boot of one host."""

    host: str
    boot: str
    namespace: str  # of process ids: two containers of one host have different ones
    pid: int
    start: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def token(self) -> str:
        """This identity as a piece of a file name; `parse_token` reads it."""
        fields = (self.host, self.boot, self.namespace, str(self.pid), self.start)
        return _SEPARATOR.join(
            quote(field, safe="").replace(".", "%2E").replace("~", "%7E") for field in fields
        )


def parse_token(token: str) -> ProcessIdentity | None:
    """The identity that `token` writes down, or None if it is none."""
    fields = [unquote(field) for field in token.split(_SEPARATOR)]
    if len(fields) != 5 or not fields[3].isdigit():
        return None
    return ProcessIdentity(fields[0], fields[1], fields[2], int(fields[3]), fields[4])


def current_process() -> ProcessIdentity:
    """This process."""
    return _identity_of(os.getpid())


def life_of(process: ProcessIdentity) -> Life:
    """Whether a process lives; unknown where it ran on another host, boot or in another container."""
    if (process.host, process.boot, process.namespace) != _place():
        return "unknown"
    return "alive" if _start_of(process.pid) == process.start else "dead"


@functools.lru_cache(maxsize=4)
def _identity_of(pid: int) -> ProcessIdentity:
    return ProcessIdentity(*_place(), pid, _start_of(pid) or "")


@functools.cache
def _place() -> tuple[str, str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a link's text, not a path
    except OSError:  # no procfs: macOS
        boot, namespace = str(int(psutil.boot_time())), ""
    return platform.node(), boot, namespace


def _start_of(pid: int) -> str | None:
    """When a process began, or None if it is gone; one that ended and waits for its parent is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    else:
        fields = stat.rpartition(")")[2].split()  # after the command's name, which may hold anything
        return None if fields[0] in "ZX" else fields[19]  # state; start time in ticks since boot
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.NoSuchProcess:
        return None
