"""Immutable blobs, named by the digest of their bytes: `blobs/ab/<digest>`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from rnnsearch.storage.backends import Backend, FileState
from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.digests import Digest, hash_bytes, hash_file, is_digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.pins import Pins
from rnnsearch.storage.seen import Seen

Condition = Literal["intact", "missing", "damaged"]

FOLDER = "blobs"
TRASH = "trash"
"""Where gc puts a blob before it is sure: one that is needed after all comes back from there."""

_LOOKS = 3  # where a blob may be, before it counts as missing: in its place, in the trash, and back
_T = TypeVar("_T")


class Blob(NamedTuple):
    """A stored blob."""

    digest: Digest
    size: int  # bytes


def blob_name(digest: Digest) -> str:
    """Where a blob lies."""
    return f"{FOLDER}/{digest[:2]}/{digest}"


def trash_name(digest: Digest) -> str:
    """Where gc keeps a blob before it deletes it."""
    return f"{TRASH}/{digest}"


class Blobs:
    """The blobs of one store: writes are whole, reads are verified."""

    def __init__(self, backend: Backend, seen: Seen, pins: Pins) -> None:
        """Keep blobs in `backend`; `seen` remembers what was hashed; `pins` keep what is written from gc."""
        self._backend = backend
        self._pins = pins
        self._seen = seen

    def put_bytes(self, data: bytes) -> Blob:
        """Store bytes; nothing is written if the store has them, intact."""
        blob = Blob(hash_bytes(data), len(data))
        self._pins.pin(blob.digest, "blob")
        if not self.intact(blob.digest, blob.size):
            self._backend.put(blob_name(blob.digest), data)
            self._remember(blob.digest)
        return blob

    def put_file(self, path: Path) -> Blob:
        """Store a copy of a local file."""
        try:
            blob = Blob(hash_file(path), path.stat().st_size)
        except OSError as error:
            raise StoreError(f"cannot read {path} to store it: {error.strerror}; check the path") from error
        self._pins.pin(blob.digest, "blob")
        if not self.intact(blob.digest, blob.size):
            self._backend.put_file(blob_name(blob.digest), path, blob.digest)
            self._remember(blob.digest)
        return blob

    def get_bytes(self, digest: Digest) -> bytes:
        """The bytes of a blob, verified; MissingError or DamagedError."""
        data = self._there(digest, self._backend.read)
        self._judge(digest, hash_bytes(data))
        return data

    def local_file(self, digest: Digest) -> Path:
        """A read-only local file with the bytes of a blob, verified; not to be changed or deleted."""
        own = self._backend.local_path(blob_name(digest))
        if own is not None:
            self._judge(digest, self._there(digest, self._backend.digest))
            return own
        path = self._backend.cache / FOLDER / digest[:2] / digest
        if not (path.is_file() and hash_file(path) == digest):
            self._fetch(digest, path)
        return path

    def size(self, digest: Digest) -> int | None:
        """Bytes of a blob as it lies there, or None if it is missing."""
        state = self._backend.stat(blob_name(digest))
        return None if state is None else state.size

    def intact(self, digest: Digest, size: int | None = None) -> bool:
        """Whether a blob is there, has `size` and the state that was last verified; else it is hashed again."""
        try:
            state = self._there(digest, self._state)
        except MissingError:
            return False
        if size is not None and state.size != size:
            self._seen.forget(digest)
            return False
        return self._seen.matches(digest, state) or self.examine(digest) == "intact"

    def examine(self, digest: Digest) -> Condition:
        """Hash a blob, whatever is remembered of it."""
        try:
            self._judge(digest, self._there(digest, self._backend.digest))
        except MissingError:
            return "missing"
        except DamagedError:
            return "damaged"
        return "intact"

    def digests(self) -> Iterator[Digest]:
        """The digests of all blobs, sorted."""
        for name in self._backend.names(FOLDER):
            digest = name.rpartition("/")[2]
            if is_digest(digest):
                yield Digest(digest)

    def sizes(self) -> dict[Digest, int]:
        """The bytes of every blob as it lies there, in the order of `digests`, from listings alone."""
        found = {name.rpartition("/")[2]: state.size for name, state in self._backend.states(FOLDER).items()}
        return {Digest(digest): found[digest] for digest in sorted(found) if is_digest(digest)}

    def delete(self, digest: Digest) -> None:
        """Remove a blob: one that is damaged, or that gc has judged."""
        self._backend.delete(blob_name(digest))
        self._seen.forget(digest)

    def forget_states(self) -> None:
        """Give the space back that the memory of what was hashed takes, on a disk with no other room."""
        self._seen.drop()

    def throw_away(self, digest: Digest) -> None:
        """Put a blob where any use of it brings it back."""
        self._backend.move(blob_name(digest), trash_name(digest))

    def thrown_away(self) -> list[Digest]:
        """The blobs in the trash."""
        return [Digest(name) for name in self._backend.children(TRASH) if is_digest(name)]

    def bring_back(self, digest: Digest) -> None:
        """Take a blob out of the trash, if it is there."""
        if self._backend.stat(trash_name(digest)) is not None:
            self._backend.move(trash_name(digest), blob_name(digest))

    def empty_trash(self, digest: Digest) -> None:
        """Remove a blob from the trash for good."""
        self._backend.delete(trash_name(digest))

    def _there(self, digest: Digest, action: Callable[[str], _T]) -> _T:
        """What `action` returns for the blob's name; gc may just be moving the blob to and fro."""
        for _ in range(_LOOKS):
            try:
                return action(blob_name(digest))
            except MissingError:
                self.bring_back(digest)
        self._seen.forget(digest)
        raise MissingError(
            f"blob {digest[:12]} is missing from {self._backend.location}; run the stage that makes it again"
        )

    def _state(self, name: str) -> FileState:
        state = self._backend.stat(name)
        if state is None:
            raise MissingError(name)
        return state

    def _judge(self, digest: Digest, actual: Digest) -> None:
        if actual != digest:
            self._seen.forget(digest)
            raise DamagedError(
                f"blob {digest[:12]} in {self._backend.location} was changed after it was stored: its bytes hash to "
                f"{actual[:12]}; run the stage that makes it again, and `rnnsearch verify` for what else is damaged"
            )
        self._remember(digest)

    def _remember(self, digest: Digest) -> None:
        state = self._backend.stat(blob_name(digest))
        if state is not None:
            self._seen.remember(digest, state)

    def _fetch(self, digest: Digest, path: Path) -> None:
        try:
            temporary = temporary_path(self._backend.cache, self._backend.make_folder)
            try:
                self._there(digest, lambda name: self._backend.fetch(name, temporary))
                self._judge(digest, hash_file(temporary))
                temporary.chmod(0o444)
                self._backend.make_folder(path.parent)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot keep a local copy at {path}: {error.strerror}; make room there, or set XDG_CACHE_HOME"
            ) from error
