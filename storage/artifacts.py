"""An artifact: one named output of a stage, a tree of blobs; its manifest is a blob whose digest names it."""

import itertools
import json
from collections.abc import Iterable
from typing import NamedTuple

from rnnsearch.storage.backends import check_name
from rnnsearch.storage.blobs import Blobs
from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes, is_digest
from rnnsearch.storage.errors import DamagedError, StoreError

_VERSION = 1


class FileEntry(NamedTuple):
    """One file of an artifact."""

    path: str  # relative, with /
    digest: Digest
    size: int  # bytes
    rows: int | None = None  # of a table


class Artifact(NamedTuple):
    """A tree of files, by path."""

    digest: Digest
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    @property
    def rows(self) -> int | None:
        """Rows of all tables, or None if a file is no table."""
        counts = [entry.rows for entry in self.files if entry.rows is not None]
        return sum(counts) if len(counts) == len(self.files) else None


class Manifest(NamedTuple):
    """An artifact and the bytes that name it."""

    artifact: Artifact
    data: bytes


def write_artifact(blobs: Blobs, files: Iterable[FileEntry]) -> Artifact:
    """Store the manifest of these files, whose blobs are stored already."""
    manifest = make_manifest(files)
    blobs.put_bytes(manifest.data)
    return manifest.artifact


def read_artifact(blobs: Blobs, digest: Digest) -> Artifact:
    """The artifact of this digest; MissingError or DamagedError."""
    return parse_manifest(digest, blobs.get_bytes(digest))


def make_manifest(files: Iterable[FileEntry]) -> Manifest:
    """The manifest of these files, in order of their paths; StoreError for a bad or repeated path."""
    entries = tuple(sorted(files))
    for entry, following in itertools.pairwise(entries):
        if entry.path == following.path:
            raise StoreError(f"an artifact has {entry.path} twice; give each file a path of its own")
    for entry in entries:
        check_name(entry.path)
    data = canonical_json({"artifact": _VERSION, "files": [entry._asdict() for entry in entries]})
    return Manifest(Artifact(hash_bytes(data), entries), data)


def parse_manifest(digest: Digest, data: bytes) -> Artifact:
    """The artifact of a manifest's bytes; DamagedError if they are none."""
    try:
        body = json.loads(data)
        if body["artifact"] != _VERSION:
            raise ValueError
        entries = tuple(FileEntry(**entry) for entry in body["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(
            f"blob {digest[:12]} is no artifact of layout {_VERSION}; name the artifact itself"
        ) from error
    if not all(is_digest(entry.digest) for entry in entries):
        raise DamagedError(f"artifact {digest[:12]} names a file by something that is no digest")
    return Artifact(digest, entries)
