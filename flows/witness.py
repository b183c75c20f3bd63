"""The hardware and software that ran a task, as observed by its process. Not part of any key."""

import functools
import platform
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import rnnsearch


class AsRun(NamedTuple):
    """Host, CPU, threads, kernels and device of one task."""

    host: str
    cpu: str  # kind of processor
    threads: int | None = None  # of torch, where the task used it
    kernels: str | None = None
    device: str = "cpu"

    @staticmethod
    def now() -> "AsRun":
        """What this process computes with. Looks only at what is imported already."""
        torch, choice = sys.modules.get("torch"), sys.modules.get("rnnsearch.model.kernels.choice")
        return AsRun(
            host=socket.gethostname(),
            cpu=platform.machine(),
            threads=None if torch is None or choice is None else torch.get_num_threads(),
            kernels=None if torch is None or choice is None else choice.kernels_for(torch.device("cpu")).name,
        )


def summary(seen: Iterable[AsRun]) -> Mapping[str, Any]:
    """What the tasks of a stage ran on: one value where all had the same, else a sorted list."""
    tasks = list(seen)
    found = {name: {getattr(each, name) for each in tasks} - {None} for name in AsRun._fields}
    return {
        name: next(iter(values)) if len(values) == 1 else sorted(values)
        for name, values in found.items()
        if values
    }


@functools.cache
def package_as_run() -> Mapping[str, Any]:
    """The version of the package; where it lies in a checkout of its own, the commit and whether files differ."""
    found: dict[str, Any] = {"package": version("rnnsearch")}
    folder = Path(rnnsearch.__path__[0])
    try:
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")  # another repository may hold a venv
        top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
        found["commit"] = _git(folder, "rev-parse", "HEAD").strip()
        found["dirty"] = bool(_git(top, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return found
    return found


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    ).stdout
