"""A folder as a backend, on this disk or on one that hosts share.

fsspec's local "create" mode lets two racers win, so files are written aside, flushed to the disk, and linked.
"""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from io import BufferedWriter
from pathlib import Path

from rnnsearch.storage.backends import TEMPORARY, FileState, Versioned, check_name, left_over_files
from rnnsearch.storage.digests import Digest, hash_file
from rnnsearch.storage.errors import MissingError, StoreError, VanishedError, explained
from rnnsearch.storage.processes import current_process

_HISTORY = 8  # versions of a register that are kept below the newest
_PIECE = 1 << 20  # bytes copied at a time
_COUNTER = itertools.count()  # of unfinished files: of the process, which may have opened a folder twice


class LocalBackend:
    """Names below a folder; its file system needs hard links."""

    def __init__(self, root: Path) -> None:
        """Take an existing folder; MissingError if there is none."""
        self._root = root
        try:
            self._identity = _folder_identity(root)
        except FileNotFoundError:
            raise MissingError(f"there is no folder {root}; create it, or name another store") from None
        except OSError as error:
            raise explained(error, f"look at {root}") from error

    @property
    def location(self) -> str:
        """The folder's path."""
        return str(self._root)

    @property
    def cache(self) -> Path:
        """A folder inside the store, one a host."""
        return self._root / "local" / current_process().host

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Make `name` hold `data` if there is no such name; of many racers exactly one gets True."""
        path = self._path(name)
        return self._link(path, data) if data else self._touch(path)

    def replace_if(self, name: str, data: bytes, expected: str | None) -> str | None:
        """Give a register new data if its version is `expected` (None: if there is none); the new version, or None.

        A register is a folder of numbered versions, of which the highest counts; to replace is to create the next.
        """
        folder, version = self._path(name), int(expected or 0) + 1
        if expected is not None and not (folder / _version_name(int(expected))).exists():
            return None
        if not self._link(folder / _version_name(version), data):
            return None
        versions = self._versions(name)
        with self._failing(f"remove old versions of {folder}"):
            if versions[-1] >= version + _HISTORY:
                # The number may have been in use and deleted before: this writer slept since it read.
                (folder / _version_name(version)).unlink(missing_ok=True)
                return None
            for old in versions:  # lowest first
                if old <= versions[-1] - _HISTORY:
                    (folder / _version_name(old)).unlink(missing_ok=True)
        return str(version)

    def read_versioned(self, name: str) -> Versioned | None:
        """The data and the version of a register, or None."""
        while versions := self._versions(name):
            with contextlib.suppress(MissingError):  # it was replaced, and more than once, since we looked
                return Versioned(self.read(f"{name}/{_version_name(versions[-1])}"), str(versions[-1]))
        return None

    def read(self, name: str) -> bytes:
        """The bytes of a record or blob; MissingError if it is not there."""
        path = self._path(name)
        with self._failing(f"read {path}"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                raise MissingError(f"{path} is missing") from None

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """The bytes of each name, None for a missing one."""
        found: list[bytes | None] = []
        for name in names:
            try:
                found.append(self.read(name))
            except MissingError:
                found.append(None)
        return found

    def put(self, name: str, data: bytes) -> None:
        """Write an immutable blob, whole or not at all; replaces what is there."""
        target = self._path(name)
        with self._failing(f"write {target}"), self._temporary() as temporary:
            _write(temporary, data)
            self._place(temporary, target)

    def put_file(self, name: str, path: Path, digest: Digest) -> None:
        """Write an immutable blob from a local file; StoreError if the file's bytes are not those of `digest`."""
        target = self._path(name)
        with self._failing(f"write {target}"), self._temporary() as temporary:
            copied = hashlib.sha256()
            with path.open("rb") as source, temporary.open("xb") as file:
                while piece := source.read(_PIECE):
                    copied.update(piece)
                    file.write(piece)
                _flush(file)
            if copied.hexdigest() != digest:
                raise StoreError(
                    f"{path} changed while it was being stored; store it again when it is finished"
                )
            self._place(temporary, target)

    def fetch(self, name: str, destination: Path) -> None:
        """Copy a blob into a new local file."""
        path = self._path(name)
        with self._failing(f"copy {path} to {destination}"):
            try:
                source = path.open("rb")
            except FileNotFoundError:
                self._check_root()
                raise MissingError(f"{path} is missing") from None
            with source, destination.open("xb") as file:
                while piece := source.read(_PIECE):
                    file.write(piece)

    def local_path(self, name: str) -> Path | None:
        """The local file of a name."""
        return self._path(name)

    def digest(self, name: str) -> Digest:
        """The digest of the bytes as they are now; MissingError if there are none."""
        path = self._path(name)
        with self._failing(f"read {path}"):
            try:
                return hash_file(path)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                raise MissingError(f"{path} is missing") from None

    def stat(self, name: str) -> FileState | None:
        """Size and fingerprint, or None if it is not there."""
        path = self._path(name)
        with self._failing(f"look at {path}"):
            try:
                state = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return None
        return _state_of(state)

    def names(self, prefix: str) -> list[str]:
        """All names inside the folder `prefix`, at any depth, sorted."""
        found: list[str] = []
        waiting = [prefix]
        while waiting:
            folder = waiting.pop()
            for name, is_folder in self._entries(folder):
                (waiting if is_folder else found).append(f"{folder}/{name}")
        return sorted(found)

    def states(self, prefix: str) -> dict[str, FileState]:
        """Size and fingerprint of every name inside the folder `prefix`, at any depth."""
        found: dict[str, FileState] = {}
        waiting = [prefix]
        root = str(self._path(prefix))[: -len(prefix)]
        while waiting:
            folder = waiting.pop()
            path = f"{root}{folder}"  # no Path: there are thousands
            with self._failing(f"list {path}"):
                try:
                    with os.scandir(path) as entries:
                        for entry in entries:
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(f"{folder}/{entry.name}")
                            else:
                                with contextlib.suppress(FileNotFoundError):  # deleted just now
                                    found[f"{folder}/{entry.name}"] = _state_of(entry.stat())
                except (FileNotFoundError, NotADirectoryError):
                    self._check_root()
        return found

    def children(self, prefix: str) -> list[str]:
        """The first parts of the names inside the folder `prefix`, without the prefix, sorted."""
        return sorted(name for name, _ in self._entries(prefix))

    def move(self, name: str, to: str) -> bool:
        """Give a blob another name, replacing it; False if it was not there."""
        source, target = self._path(name), self._path(to)
        with self._failing(f"move {source} to {target}"):
            self.make_folder(target.parent)
            try:
                source.replace(target)
            except FileNotFoundError:
                return False
        return True

    def delete(self, name: str) -> bool:
        """Remove a name; False if it was not there."""
        path = self._path(name)
        with self._failing(f"delete {path}"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def sweep(self) -> list[str]:
        """Remove what dead processes of this host left unfinished; the names removed."""
        left = [f"{TEMPORARY}/{name}" for name in left_over_files(self.children(TEMPORARY))]
        return [name for name in left if self.delete(name)]

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    def _versions(self, name: str) -> list[int]:
        return sorted(int(entry) for entry, _ in self._entries(name) if entry.isdigit())

    def _touch(self, target: Path) -> bool:
        """Make an empty file, which is always whole, if there is none of its name."""
        with self._failing(f"create {target}"):
            self.make_folder(target.parent)
            try:
                target.touch(exist_ok=False)
            except FileExistsError:
                return False
        return True

    def _link(self, target: Path, data: bytes) -> bool:
        """Make a file, whole, if there is none of its name."""
        with self._failing(f"create {target}"), self._temporary() as temporary:
            _write(temporary, data)
            self.make_folder(target.parent)
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                # Over NFS the answer to a first, successful link may be lost and the link tried again.
                if temporary.stat().st_nlink != 2:
                    return False
            _flush_folder(target.parent)
        return True

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        path = self._path(folder) if folder else self._root
        with self._failing(f"list {path}"):
            try:
                with os.scandir(path) as entries:
                    return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return []

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A path for an unfinished file; what is there at the end is removed."""
        self._check_root()
        folder = self._root / TEMPORARY
        self.make_folder(folder)
        path = folder / f"{current_process().token()}.{next(_COUNTER)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _place(self, temporary: Path, target: Path) -> None:
        temporary.chmod(temporary.stat().st_mode & ~0o222)
        self.make_folder(target.parent)
        temporary.replace(
            target
        )  # if the power fails before the folder is written the blob is missing: made again

    def make_folder(self, folder: Path) -> None:
        """Make a folder inside the root, and never the root itself: if that is gone, a mount may be.

        Raises VanishedError where the root is gone, or another folder is in its place.
        """
        missing = []
        while folder != self._root and not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        self._check_root()
        for path in reversed(missing):
            path.mkdir(exist_ok=True)

    def _check_root(self) -> None:
        try:
            present = _folder_identity(self._root) == self._identity
        except OSError:
            present = False
        if not present:
            raise VanishedError(
                f"the store's folder {self._root} vanished, or another one is in its place; "
                "mount it or bring it back, then run again: what was finished is kept"
            )

    @contextlib.contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            self._check_root()
            raise explained(error, doing) from error
        except OSError as error:
            raise explained(error, doing) from error


def _state_of(state: os.stat_result) -> FileState:
    return FileState(state.st_size, f"{state.st_mtime_ns}-{state.st_ctime_ns}-{state.st_ino}")


def _folder_identity(folder: Path) -> tuple[int, int]:
    state = folder.stat()
    return state.st_dev, state.st_ino


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        _flush(file)


def _flush(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _version_name(version: int) -> str:
    return f"{version:010}"
