"""Unfinished files and folders in the cache of a host: named by the process that makes them, moved when whole."""

import contextlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from rnnsearch.storage.processes import current_process, life_of, parse_token

MakeFolder = Callable[[Path], None]

_FOLDER = "tmp"
_COUNTER = itertools.count()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    folder.mkdir(parents=True, exist_ok=True)


def temporary_path(cache: Path, make: MakeFolder = make_folder) -> Path:
    """A new path for something unfinished. Its folder is created by `make`, the path itself is not created.

    For the cache of a store `make` is the backend's `make_folder`, which never creates the folder of the store.
    """
    folder = cache / _FOLDER
    make(folder)
    return folder / f"{current_process().token()}.{next(_COUNTER)}"


def move_folder(folder: Path, to: Path, make: MakeFolder) -> bool:
    """Rename a folder, if nothing but an empty folder is in its place. `make` is that of `temporary_path`."""
    make(to.parent)
    try:
        folder.rename(to)
    except (FileExistsError, FileNotFoundError):
        return False
    except OSError:
        if to.exists():  # ENOTEMPTY
            return False
        raise
    return True


def sweep_cache(cache: Path) -> None:
    """Remove what dead processes of this host left unfinished."""
    with contextlib.suppress(OSError):
        for path in list((cache / _FOLDER).iterdir()):
            owner = parse_token(path.name.split(".")[0])
            if owner is None or life_of(owner) != "dead":
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
