"""Compiling the kernels for this processor, once."""

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import torch

from rnnsearch.model.kernels.bfloat16 import cpu_flags

_SOURCE = Path(__file__).with_name("kernels.cpp")
_FLAGS = (
    "-std=c++20", "-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp", "-shared", "-fPIC",
)  # fmt: skip
_SECONDS = 300  # a compiler that takes longer hangs


class BuildError(RuntimeError):
    """The kernels could not be compiled or loaded; the message says why."""


def load() -> ctypes.CDLL:
    """Return the compiled kernels, from the cache or the compiler (`CXX`, else g++).

    They lie in `$XDG_CACHE_HOME/rnnsearch/kernels` (`~/.cache` by default), one file for each source, set of
    flags, torch and processor. A file is written under another name and renamed when it is whole, so there is no
    lock: a build that is killed leaves a temporary folder, and two at a time do the same work twice.

    Raises BuildError.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnsearch" / "kernels"
    target = folder / f"{_fingerprint()}.so"
    try:
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
                made = Path(scratch) / "kernels.so"
                _compile(made)
                made.replace(target)
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise BuildError(f"the kernels in {folder} cannot be written or loaded: {error}") from error


def _fingerprint() -> str:
    parts = [
        _SOURCE.read_text(encoding="utf-8"),
        *_FLAGS,
        _compiler(),
        torch.__version__,
        platform.machine(),
        cpu_flags(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _compiler() -> str:
    return os.environ.get("CXX") or "g++"


def _compile(target: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    command = [
        *_compiler().split(), *_FLAGS, f"-I{torch_folder / 'include'}", str(_SOURCE), "-o", str(target),
        f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"no compiler ran: {error}; install g++ or set CXX to one") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-20:]
        raise BuildError(f"{command[0]} refused the kernels:\n" + "\n".join(last))
