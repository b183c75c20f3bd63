"""A wheel from the Python package index, fetched by pip itself.

So the indexes, proxies, certificates and caches that are set up for pip apply as they are. pip cannot
continue a broken download: after a kill it starts again, or takes the wheel from its cache.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rnnsearch.flows.sources.checks import SourceError, require_space
from rnnsearch.flows.sources.config import package_of

_LOOK_EVERY = 0.2  # seconds between two looks at what pip has written
_LAST_LINES = 8  # of pip's output, in an error


def wheel(url: str, target: Path, size: int | None, progress: Callable[[int, int | None], None]) -> None:
    """Fetch the wheel of `pypi:name==version` to `target`, without its dependencies.

    `size` in bytes is for the check of the disk and for the progress only.
    """
    name, version = package_of(url)
    require_space(target.parent, 2 * (size or 0))  # pip writes a temporary file, then its copy
    for left in target.parent.glob("pip-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
    with tempfile.TemporaryDirectory(prefix="pip-", dir=target.parent) as folder:
        home = Path(folder)
        wheels, scratch, log = home / "wheels", home / "tmp", home / "log"
        wheels.mkdir()
        scratch.mkdir()
        code = _pip_download(
            f"{name}=={version}", home, lambda: progress(max(map(_bytes_below, (wheels, scratch))), size)
        )
        if code:
            raise SourceError(_failure(name, version, code, log))
        found = sorted(wheels.iterdir())
        if len(found) != 1 or found[0].suffix != ".whl":
            raise SourceError(
                f"pip left {[path.name for path in found]} for {name}=={version}, not one wheel"
            )
        found[0].replace(target)
    progress(target.stat().st_size, target.stat().st_size)


def _pip_download(requirement: str, home: Path, look: Callable[[], None]) -> int:
    """Run pip, calling `look` now and then; return its exit status."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--dest", str(home / "wheels"), requirement]
    environment = {**os.environ, "TMPDIR": str(home / "tmp")}
    with (home / "log").open("wb") as log:
        pip = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while True:
                try:
                    return pip.wait(_LOOK_EVERY)
                except subprocess.TimeoutExpired:
                    look()
        finally:
            if pip.poll() is None:  # `look` was interrupted
                pip.kill()
                pip.wait()


def _bytes_below(folder: Path) -> int:
    """Return the size of all files below `folder`; pip moves and removes some meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _failure(name: str, version: str, code: int, log: Path) -> str:
    """Return what went wrong, in pip's last words."""
    lines = [line for line in log.read_text(errors="replace", encoding="utf-8").splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return (
            f"{sys.executable} has no pip, which fetches {name}=={version}; run {sys.executable} -m ensurepip"
        )
    said = "\n  ".join(lines[-_LAST_LINES:]) or "nothing"
    return (
        f"pip could not fetch a wheel of {name}=={version} (exit status {code}); check the version and pip's "
        f"index settings (pip config list). pip's last lines:\n  {said}"
    )
