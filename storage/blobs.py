"""Immutable blobs, named by the digest of their bytes: `blobs/ab/<digest>`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rnnsearch.storage.backends import TEMPORARY, Backend, is_left_over
from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.digests import Digest, hash_bytes, hash_file, is_digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.processes import current_process
from rnnsearch.storage.seen import Seen

Condition = Literal["intact", "missing", "damaged"]

FOLDER = "blobs"
TRASH = "trash"
"""Where gc puts a blob before it is sure: one that is needed after all comes back from there."""

PinKind = Literal["blob", "artifact"]


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

    def __init__(self, backend: Backend, seen: Seen) -> None:
        """Keep blobs in `backend`; `seen` remembers what was hashed."""
        self._backend = backend
        self._seen = seen

    def put_bytes(self, data: bytes) -> Blob:
        """Store bytes; nothing is written if the store has them, intact."""
        blob = Blob(hash_bytes(data), len(data))
        if not self._hold(blob):
            self._backend.put(blob_name(blob.digest), data)
            self._remember(blob.digest)
        return blob

    def put_file(self, path: Path) -> Blob:
        """Store a copy of a local file."""
        try:
            blob = Blob(hash_file(path), path.stat().st_size)
        except OSError as error:
            raise StoreError(f"cannot read {path} to store it: {error.strerror}; check the path") from error
        if not self._hold(blob):
            self._backend.put_file(blob_name(blob.digest), path, blob.digest)
            self._remember(blob.digest)
        return blob

    def get_bytes(self, digest: Digest) -> bytes:
        """The bytes of a blob, verified; MissingError or DamagedError."""
        try:
            data = self._backend.read(blob_name(digest))
        except MissingError:
            self._bring_back(digest)
            data = self._backend.read(blob_name(digest))
        self._judge(digest, hash_bytes(data))
        return data

    def local_file(self, digest: Digest) -> Path:
        """A read-only local file with the bytes of a blob, verified; not to be changed or deleted."""
        own = self._backend.local_path(blob_name(digest))
        if own is not None:
            self._judge(digest, self._hash(digest))
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
        state = self._backend.stat(blob_name(digest))
        if state is None:
            with contextlib.suppress(MissingError):
                self._bring_back(digest)
                return self.intact(digest, size)
            return False
        if size is not None and state.size != size:
            self._seen.forget(digest)
            return False
        return self._seen.matches(digest, state) or self.examine(digest) == "intact"

    def examine(self, digest: Digest) -> Condition:
        """Hash a blob, whatever is remembered of it."""
        try:
            self._judge(digest, self._hash(digest))
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

    def delete(self, digest: Digest) -> None:
        """Remove a blob: one that is damaged, or that gc has judged."""
        self._backend.delete(blob_name(digest))
        self._seen.forget(digest)

    def throw_away(self, digest: Digest) -> None:
        """Put a blob where any use of it brings it back."""
        self._backend.move(blob_name(digest), trash_name(digest))

    def thrown_away(self) -> list[Digest]:
        """The blobs in the trash."""
        return [Digest(name) for name in self._backend.children(TRASH) if is_digest(name)]

    def bring_back(self, digest: Digest) -> None:
        """Take a blob out of the trash, if it is there."""
        with contextlib.suppress(MissingError):
            self._bring_back(digest)

    def empty_trash(self, digest: Digest) -> None:
        """Remove a blob from the trash for good."""
        self._backend.delete(trash_name(digest))

    def pin(self, digest: Digest, kind: PinKind) -> None:
        """Keep gc from a blob, or an artifact with all its blobs, for as long as this process lives."""
        self._backend.create_exclusive(f"{TEMPORARY}/{current_process().token()}.{kind}.{digest}", b"")

    def pinned(self, kind: PinKind) -> frozenset[Digest]:
        """What processes have pinned which may live."""
        names = [name for name in self._backend.children(TEMPORARY) if not is_left_over(name)]
        parts = [name.split(".") for name in names]
        return frozenset(Digest(part[2]) for part in parts if len(part) == 3 and part[1] == kind)

    def _hold(self, blob: Blob) -> bool:
        """Whether the blob is there to stay.

        A gc may be at work that saw no record of it. So it is pinned first and looked at again after: either gc
        reads the pin before it deletes, or the second look finds the blob gone.
        """
        if not self.intact(blob.digest, blob.size):
            return False
        self.pin(blob.digest, "blob")
        return self.intact(blob.digest, blob.size)

    def _hash(self, digest: Digest) -> Digest:
        try:
            return self._backend.digest(blob_name(digest))
        except MissingError:
            self._bring_back(digest)
            return self._backend.digest(blob_name(digest))

    def _bring_back(self, digest: Digest) -> None:
        trashed = trash_name(digest)
        if self._backend.stat(trashed) is None or not self._backend.move(trashed, blob_name(digest)):
            self._seen.forget(digest)
            raise MissingError(
                f"blob {digest[:12]} is missing from {self._backend.location}; run the stage that makes it again"
            )

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
            temporary = temporary_path(self._backend.cache)
            try:
                self._backend.fetch(blob_name(digest), temporary)
                self._judge(digest, hash_file(temporary))
                temporary.chmod(0o444)
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot keep a local copy at {path}: {error.strerror}; make room there, or set XDG_CACHE_HOME"
            ) from error
