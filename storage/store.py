"""The store: everything of `storage` behind one door."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from rnnsearch.storage.artifacts import Artifact, FileEntry, read_artifact, write_artifact
from rnnsearch.storage.backends import TEMPORARY, Backend
from rnnsearch.storage.blobs import Blob, Blobs
from rnnsearch.storage.cache import move_folder, sweep_cache, temporary_path
from rnnsearch.storage.code import CodeDigest
from rnnsearch.storage.digests import Digest, canonical_json, hash_file
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError, explained
from rnnsearch.storage.leases import Leases
from rnnsearch.storage.ledger import Ledger
from rnnsearch.storage.local import LocalBackend
from rnnsearch.storage.parquet import ROWS_PER_GROUP, get_table, put_table
from rnnsearch.storage.parts import Sourced, pack_sources, unpack_sources
from rnnsearch.storage.pins import Pins
from rnnsearch.storage.runs import Runs
from rnnsearch.storage.seen import Seen

LAYOUT = 1
"""Version of the layout of names inside a store."""

_LAYOUT_NAME = "store.json"
_NOT_OF_A_STORE = frozenset({TEMPORARY, "local"})  # an empty place may hold these


class Store:
    """Blobs, artifacts, the ledgers of stages and of shards, runs and leases of one place.

    A store may be pickled: it opens itself again where it is unpickled.
    """

    def __init__(self, backend: Backend) -> None:
        """Use a backend whose layout has been checked; `Store.open` is the way in."""
        self.backend = backend
        self.pins = Pins(backend)
        self.blobs = Blobs(backend, Seen(backend.cache / "seen", backend.make_folder), self.pins)
        self.ledger = Ledger(backend, "ledger")
        self.shards = Ledger(backend, "shards", fan_out=True)
        self.runs = Runs(backend)
        self.leases = Leases(backend)

    def __reduce__(self) -> tuple[Callable[[str], "Store"], tuple[str]]:
        """Pickle as the location."""
        return Store.open, (self.location,)

    @property
    def location(self) -> str:
        """What `Store.open` takes."""
        return self.backend.location

    @staticmethod
    def open(location: str | Path, *, create: bool = True) -> "Store":
        """Open the store at a folder or `s3://bucket/prefix`, and make it if there is none and `create`.

        StoreError if it cannot be, if the place holds something else, or a layout that this version does not know.
        """
        backend = open_backend(location, create=create)
        _check_layout(backend, create=create)
        with contextlib.suppress(StoreError):  # a store that we may only read
            backend.sweep()
        sweep_cache(backend.cache)
        return Store(backend)

    @staticmethod
    def peek(location: str | Path) -> "Store | None":
        """The store of a location as it is, or None if none has been made there: makes and sweeps nothing.

        StoreError if the place holds something else or a layout that this version does not know, or cannot be read.
        """
        try:
            backend = open_backend(location, create=False)
        except MissingError:
            if str(location).startswith("s3://"):  # a bucket is never made
                raise
            return None
        if not set(backend.children("")) - _NOT_OF_A_STORE:
            return None
        _check_layout(backend, create=False)
        return Store(backend)

    def close(self) -> None:
        """Take this process's pins away, and remove what dead processes left unfinished.

        What relied on the pins must be recorded by now. StoreError where the place fails.
        """
        self.pins.release()
        self.backend.sweep()
        sweep_cache(self.backend.cache)

    def put_bytes(self, data: bytes) -> Blob:
        """Store bytes."""
        return self.blobs.put_bytes(data)

    def put_file(self, path: Path) -> Blob:
        """Store a copy of a local file."""
        return self.blobs.put_file(path)

    def put_table(self, table: pa.Table, row_group_size: int = ROWS_PER_GROUP) -> Blob:
        """Store a table as Parquet: equal rows of equal schema give equal digests."""
        return put_table(self.blobs, table, row_group_size)

    def get_bytes(self, digest: Digest) -> bytes:
        """The bytes of a blob, verified; MissingError or DamagedError."""
        return self.blobs.get_bytes(digest)

    def get_table(self, digest: Digest) -> pa.Table:
        """The table of a blob, verified; MissingError or DamagedError."""
        return get_table(self.blobs, digest)

    def local_file(self, digest: Digest) -> Path:
        """A read-only local file with the bytes of a blob, verified."""
        return self.blobs.local_file(digest)

    def write_artifact(self, files: Iterable[FileEntry]) -> Artifact:
        """Store the manifest of these files, whose blobs are stored already."""
        return write_artifact(self.blobs, files)

    def read_artifact(self, digest: Digest) -> Artifact:
        """The artifact of this digest; MissingError or DamagedError."""
        return read_artifact(self.blobs, digest)

    def local_folder(self, digest: Digest) -> Path:
        """An artifact laid out as a folder of read-only files, verified; links to the blobs where that can be."""
        artifact = self.read_artifact(digest)
        folder = self.backend.cache / "folders" / digest
        if folder.is_dir() and _holds(folder, artifact):
            return folder
        files = {entry.path: self.blobs.local_file(entry.digest) for entry in artifact.files}
        try:
            self._lay_out(artifact, files, folder)
        except OSError as error:
            raise explained(error, f"lay out artifact {digest[:12]} at {folder}") from error
        return folder

    def intact(self, digest: Digest) -> bool:
        """Whether an artifact can be used: its manifest and every blob are there, as they were last verified.

        Looks at presence, size and fingerprint, and hashes what has another fingerprint than remembered.
        """
        if not self.blobs.intact(digest):
            return False
        try:
            artifact = self.read_artifact(digest)
        except (MissingError, DamagedError):
            return False
        return all(self.blobs.intact(entry.digest, entry.size) for entry in artifact.files)

    def keep(self, digest: Digest) -> bool:
        """Whether an artifact is intact; if so gc does not touch it until `pins.release` or this process's end."""
        self.pins.pin(digest, "artifact")
        return self.intact(digest)

    def _lay_out(self, artifact: Artifact, files: Mapping[str, Path], folder: Path) -> None:
        make = self.backend.make_folder
        building, damaged = (temporary_path(self.backend.cache, make) for _ in range(2))
        try:
            _fill(building, files)
            in_place = move_folder(building, folder, make) or _holds(
                folder, artifact
            )  # another one may have been quicker
            if not in_place:
                move_folder(folder, damaged, make)
                move_folder(building, folder, make)
        finally:
            shutil.rmtree(building, ignore_errors=True)
            shutil.rmtree(damaged, ignore_errors=True)

    def put_code(self, code: CodeDigest) -> None:
        """Store the parts of a code digest and their sources: a later `plan` and `diff` say what changed.

        They are under the digest and not blobs of it: a definition may be renamed, and its digest stays.
        """
        self.bring_code(code.digest, code.parts, code.sources)

    def bring_code(
        self, digest: Digest, parts: Mapping[str, str], sources: Mapping[str, str] | None = None
    ) -> None:
        """Store the parts of a code digest, such as those of another store, and their sources if they are known."""
        if sources is not None:
            self._bring(_sources_name(digest), pack_sources(sources), self.code_sources(digest) is None)
        self._bring(_code_name(digest), canonical_json(dict(parts)), self.code_parts(digest) is None)

    def _bring(self, name: str, data: bytes, lacking: bool) -> None:
        """Write a record that is not there or is damaged."""
        if lacking and not self.backend.create_exclusive(name, data):
            self.backend.delete(name)
            self.backend.create_exclusive(name, data)

    def code_parts(self, digest: Digest) -> Mapping[str, str] | None:
        """The parts of a code digest, or None if they were not stored."""
        try:
            return dict(json.loads(self.backend.read(_code_name(digest))))
        except (MissingError, ValueError):
            return None

    def code_sources(self, digest: Digest) -> Mapping[str, str] | None:
        """The text of each definition that a code digest counts, or None if it was not stored or is damaged.

        Names and texts are those of the first time that code of this digest ran here.
        """
        try:
            return unpack_sources(self.backend.read(_sources_name(digest)))
        except (MissingError, DamagedError):
            return None

    def code(self, digest: Digest) -> Sourced | None:
        """Parts and sources of a code digest, or None where one of them is not stored."""
        parts, sources = self.code_parts(digest), self.code_sources(digest)
        return None if parts is None or sources is None else Sourced(parts, sources)

    def damaged_code(self) -> list[str]:
        """The names of stored parts and sources that cannot be read."""
        names = [
            f"{folder}/{name}" for folder in ("code", "sources") for name in self.backend.children(folder)
        ]
        found = []
        for name, data in zip(names, self.backend.read_many(names), strict=True):
            try:
                if data is not None:
                    dict(unpack_sources(data) if name.startswith("sources/") else json.loads(data))
            except (DamagedError, ValueError, TypeError):
                found.append(name)
        return found


def _code_name(digest: Digest) -> str:
    return f"code/{digest}"


def _sources_name(digest: Digest) -> str:
    return f"sources/{digest}"


def open_backend(location: str | Path, *, create: bool) -> Backend:
    """The backend of a location; a local folder is made if `create`."""
    text = str(location)
    scheme, mark, rest = text.partition("://")
    if mark and scheme == "s3":
        # Inside the function: s3fs is an optional dependency, and slow to import for all who have a folder.
        from rnnsearch.storage.s3 import S3Backend  # noqa: PLC0415

        return S3Backend(rest)
    if mark and scheme != "file":
        raise StoreError(f"{text} is no place for a store; give a folder or s3://bucket/prefix")
    try:
        root = Path(rest if mark else text).expanduser().absolute()
    except RuntimeError as error:  # ~name of nobody
        raise StoreError(f"{text} is not a folder: {error}; write the whole path") from error
    if os.path.isfile(root):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        raise StoreError(f"{root} is a file; a store is a folder")
    if create:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explained(error, f"make the store's folder {root}") from error
    return LocalBackend(root)


def _check_layout(backend: Backend, *, create: bool) -> None:
    """Write the layout's version into an empty place, or check the one that is there."""
    try:
        data = backend.read(_LAYOUT_NAME)
    except MissingError:
        others = sorted(set(backend.children("")) - _NOT_OF_A_STORE)
        if others or not create:
            found = f"it holds {others[0]}" if others else "it is empty"
            raise StoreError(
                f"{backend.location} is no store: {found} and has no {_LAYOUT_NAME}; name an empty folder, "
                "or mount the store"
            ) from None
        backend.create_exclusive(_LAYOUT_NAME, canonical_json({"layout": LAYOUT}))
        data = backend.read(_LAYOUT_NAME)
    try:
        layout = json.loads(data)["layout"]
    except (ValueError, KeyError, TypeError):
        raise DamagedError(
            f'{backend.location}/{_LAYOUT_NAME} is damaged; write {{"layout": {LAYOUT}}} into it'
        ) from None
    if layout != LAYOUT:
        raise StoreError(
            f"{backend.location} has layout {layout}, this version of rnnsearch knows {LAYOUT}; "
            "use the version that made it, or another store"
        )


def _holds(folder: Path, artifact: Artifact) -> bool:
    """Whether a folder has just the artifact's files."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    wanted = {entry.path for entry in artifact.files}
    return there == wanted and all(hash_file(folder / entry.path) == entry.digest for entry in artifact.files)


def _fill(building: Path, files: Mapping[str, Path]) -> None:
    """Fill a new folder with links to files, or copies where they lie on another file system."""
    building.mkdir(parents=True)
    for path, source in files.items():
        target = building / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, target)
            target.chmod(0o444)
