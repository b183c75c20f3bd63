"""Output paths given by the user: checked before work starts, written completely or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rnnsearch.flows.errors import UsageError
from rnnsearch.storage.backends import Backend
from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.errors import explained
from rnnsearch.storage.processes import current_process, life_of, parse_token

_UNFINISHED = ".rnnsearch-export~"  # a folder that is being copied to another disk; a process's token follows


def check_new_folder(folder: Path) -> None:
    """Raise UsageError where `folder` is there already or cannot be made."""
    if _exists(folder):
        raise UsageError(f"{folder} is there already; name a folder that is not, or remove it")
    there = next(each for each in folder.absolute().parents if _exists(each))
    if not there.is_dir():
        raise UsageError(f"{folder} cannot be written: {there} is not a folder; name another place")
    _check_writable(folder, there)


def check_folder(folder: Path) -> None:
    """Raise UsageError where files cannot be written into `folder`, which is made if it is not there."""
    if not _exists(folder):
        check_new_folder(folder)
    elif folder.is_dir():
        _check_writable(folder, folder)
    else:
        raise UsageError(f"{folder} is a file; name a folder")


def check_file(path: Path) -> None:
    """Raise UsageError where the file `path` cannot be written; its folder must be there."""
    there = _exists(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {path.parent} is not a folder; make it first")
    _check_writable(path, path if there else path.parent)


@contextmanager
def new_folder(folder: Path, backend: Backend) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `folder` when the block ends without an error.

    It is filled in the cache of the store, where the next command removes it if this process is killed. Raises
    UsageError where `folder` cannot be made, StoreError where the disk fails.
    """
    check_new_folder(folder)
    try:
        building = temporary_path(backend.cache, backend.make_folder)
        building.mkdir()
        try:
            yield building
            for path in (*building.rglob("*"), building):
                _sync(path)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _move(building, folder)
            _sync(folder.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise explained(error, f"write {folder}") from error


def _move(building: Path, folder: Path) -> None:
    """Rename, or copy to another disk and rename there."""
    _sweep(folder.parent)
    try:
        building.rename(folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = folder.with_name(_UNFINISHED + current_process().token())
        try:
            shutil.copytree(building, near)
            for path in (*near.rglob("*"), near):
                _sync(path)
            near.rename(folder)
        finally:
            shutil.rmtree(near, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove partial copies that killed processes left in `folder`."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        owner = parse_token(path.name.removeprefix(_UNFINISHED))
        if owner is not None and life_of(owner) == "dead":
            shutil.rmtree(path, ignore_errors=True)


def _check_writable(wanted: Path, there: Path) -> None:
    """Check by writing: permissions say nothing about read-only file systems."""
    try:
        if there.is_dir():
            tempfile.TemporaryDirectory(prefix=".rnnsearch-", dir=there).cleanup()
        else:
            there.open("ab").close()
    except OSError as error:
        raise UsageError(f"{wanted} cannot be written: {error.strerror}; name another place") from error


def _exists(path: Path) -> bool:
    """Whether something is there, a broken link included. Raises UsageError for what cannot be a path."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # too long, or with a null byte
        raise UsageError(f"{str(path)!r} cannot be used: {_reason(error)}; name another place") from error
    return True


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
