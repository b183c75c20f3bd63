"""What a fetched file must be: its size, its digests, and room on the disk for it."""

import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

from rnnsearch.flows.sources.config import SourceConfig

CHUNK = 2**20  # bytes read or written at a time
RESERVE = 64 * 2**20  # bytes that must stay free: the store and Ray write to the same disk


class SourceError(ValueError):
    """A file cannot be fetched, or is not the one that was asked for."""


class DigestError(SourceError):
    """The bytes of a whole file are not those of its digest."""

    def __init__(self, message: str, found: str) -> None:
        """Keep the digest that was found."""
        super().__init__(message)
        self.found = found


class ChangedError(SourceError):
    """An origin gives another file than the pinned one, and not by an accident of the transfer."""


class Seen(NamedTuple):
    """What a file was found to be."""

    sha256: str
    size: int  # bytes


def look(path: Path) -> Seen:
    """Return the digest and the size of the file `path`."""
    with path.open("rb") as file:
        return Seen(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def check(path: Path, source: SourceConfig) -> Seen:
    """Return what `path` is; raise SourceError where that is not what `source` declares."""
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        raise SourceError(
            f"{path.name} has {size:,} bytes, not the declared {source.size:,}; "
            "look at the address, or correct the size if the publisher changed the file on purpose"
        )
    seen = look(path)
    if source.sha256 is not None and seen.sha256 != source.sha256:
        raise _other_digest(path, "SHA-256", seen.sha256, source.sha256)
    if source.md5 is not None:
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 != source.md5:
            raise _other_digest(path, "MD5", md5, source.md5)
    return seen


def require_space(folder: Path, needed: int) -> None:
    """Raise SourceError unless `needed` more bytes fit into `folder`, with a reserve left free."""
    free = shutil.disk_usage(folder).free
    if free < needed + RESERVE:
        raise SourceError(
            f"the disk of {folder} has {free:,} bytes free, and {needed:,} are needed beside a reserve of "
            f"{RESERVE:,}; free some, or put the store elsewhere (RNNSEARCH_STORE)"
        )


def _other_digest(path: Path, kind: str, found: str, expected: str) -> DigestError:
    return DigestError(f"the {kind} of {path.name} is {found}, not {expected}", found)
