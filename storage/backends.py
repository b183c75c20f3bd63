"""Where bytes lie: the contract that every backend keeps.

Two primitives carry all safety. `create_exclusive` makes a record once: of many racers one wins. `replace_if`
changes a register only while it still has the version that the caller saw. All else is immutable blobs, of which
equal names hold equal bytes. Names are relative, with `/` between their parts; a name is a record, a register or a
blob for ever. No process waits for another: one that is stopped or killed in the middle of a write blocks nobody.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.processes import life_of, parse_token

TEMPORARY = "tmp"
"""Folder of unfinished writes and of pins; a file's name there begins with the token of the process that owns it."""


class FileState(NamedTuple):
    """What is known of a file without reading it."""

    size: int  # bytes
    fingerprint: str  # another one whenever the file may have changed: mtime, ctime and inode, or an ETag


class Versioned(NamedTuple):
    """What a register holds, and the version that `replace_if` asks for."""

    data: bytes
    version: str


class Backend(Protocol):
    """A place for named bytes. All methods raise StoreError where the place fails."""

    @property
    def location(self) -> str:
        """How `Store.open` finds this place again."""

    @property
    def cache(self) -> Path:
        """A folder of this host, outside of what is stored: may be lost at any time. It may not exist yet."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder of the cache and those above it, but never the folder of the store itself."""

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Make `name` hold `data` if there is no such name; of many racers exactly one gets True."""

    def replace_if(self, name: str, data: bytes, expected: str | None) -> str | None:
        """Give a register new data if its version is `expected` (None: if there is none); the new version, or None.

        Versions on S3 stand for content: who must tell A-B-A from A writes a counter into the data.
        """

    def read_versioned(self, name: str) -> Versioned | None:
        """The data and the version of a register, or None."""

    def read(self, name: str) -> bytes:
        """The bytes of a record or blob; MissingError if it is not there."""

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """The bytes of each name, None for a missing one."""

    def put(self, name: str, data: bytes) -> None:
        """Write an immutable blob, whole or not at all; replaces what is there."""

    def put_file(self, name: str, path: Path, digest: Digest) -> None:
        """Write an immutable blob from a local file; StoreError if the file's bytes are not those of `digest`."""

    def fetch(self, name: str, destination: Path) -> None:
        """Copy a blob into a new local file."""

    def local_path(self, name: str) -> Path | None:
        """The local file of a name, or None where there is none."""

    def digest(self, name: str) -> Digest:
        """The digest of the bytes as they are now; MissingError if there are none."""

    def stat(self, name: str) -> FileState | None:
        """Size and fingerprint, or None if it is not there."""

    def names(self, prefix: str) -> list[str]:
        """All names inside the folder `prefix`, at any depth, sorted."""

    def states(self, prefix: str) -> dict[str, FileState]:
        """Size and fingerprint of every name inside the folder `prefix`, at any depth."""

    def children(self, prefix: str) -> list[str]:
        """The first parts of the names inside the folder `prefix`, without the prefix, sorted."""

    def move(self, name: str, to: str) -> bool:
        """Give a blob another name, replacing it; False if it was not there."""

    def delete(self, name: str) -> bool:
        """Remove a name; False if it was not there."""

    def sweep(self) -> list[str]:
        """Remove what dead processes of this host left unfinished; the names removed."""


def check_name(name: str) -> str:
    """The name itself; StoreError if it could leave the store."""
    if not {"", ".", ".."}.isdisjoint(
        name.split("/")
    ):  # no PurePath: this is called for every look at a name
        raise StoreError(f"{name!r} is no name in a store: expected relative parts with one / between them")
    return name


def left_over_files(names: Sequence[str]) -> list[str]:
    """Those files of the folder of temporaries whose process is known to be dead."""
    alive = set(living_files(names))
    return [name for name in names if name not in alive]


def living_files(names: Sequence[str]) -> list[str]:
    """Those files of the folder of temporaries whose process may live."""
    tokens = {name.split(".")[0] for name in names}
    owners = {token: parse_token(token) for token in tokens}
    dead = {token for token, owner in owners.items() if owner is not None and life_of(owner) == "dead"}
    return [name for name in names if name.split(".")[0] not in dead]
