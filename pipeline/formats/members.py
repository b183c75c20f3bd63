"""Streams of the files that a corpus comes in: alone, or inside a folder, a tar or a zip; unpacked on the way.

Kinds are told by their first bytes (`sniff`). Compression is taken off, layer by layer and through concatenated
members. Nothing is ever extracted to disk.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple, cast

import pyarrow as pa

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.sniff import ARCHIVES, COMPRESSED, HEAD, REMEDIES, sniff

_BUFFER = 1 << 17  # bytes
_UNPACK: Mapping[str, Callable[[IO[bytes]], IO[bytes]]] = {
    "gzip": lambda stream: cast("IO[bytes]", gzip.GzipFile(fileobj=stream)),
    "bzip2": lambda stream: cast("IO[bytes]", bz2.BZ2File(stream)),
    "xz": lambda stream: cast("IO[bytes]", lzma.LZMAFile(stream)),  # noqa: SIM115
    "zstd": lambda stream: cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd")),
}
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


class Place(NamedTuple):
    """Where one file of a corpus is."""

    path: Path
    name: str = ""  # of the member, where `path` is an archive or a folder
    alone: bool = False  # `path` may be the file itself: then the name only labels it

    def __str__(self) -> str:
        """The place as an error names it."""
        return f"{self.name!r} in {self.path}" if self.name else str(self.path)


class Opened(NamedTuple):
    """A file of a corpus, unpacked."""

    stream: BinaryIO
    kind: str  # as `sniff` tells it


@contextmanager
def opened(place: Place, *kinds: str) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file, which must be of one of `kinds`, `text` or `empty` if none is given.

    Raises FormatError where there is no such file, where it is of another kind, and where it is damaged.
    """
    with looked_into(place) as found:
        require_kind(place, found.kind, kinds or ("text",))
        yield found.stream


@contextmanager
def looked_into(place: Place) -> Iterator[Opened]:
    """The unpacked bytes of a file and its kind."""
    with ExitStack() as stack:
        try:
            yield _open(place, stack)
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, not the file
            raise FormatError(f"{place.path} is damaged: {error}; delete it and download it again") from error


def require_kind(place: Place, kind: str, kinds: tuple[str, ...]) -> None:
    """Raise FormatError unless `kind` is among `kinds`; an empty file passes as text."""
    if kind in kinds or (kind == "empty" and "text" in kinds):
        return
    if kind == "empty":
        raise FormatError(f"{place} is empty")
    remedy = REMEDIES.get(kind, f"is {kind}")
    raise FormatError(f"{place} {remedy}; expected was {' or '.join(kinds)}")


def members(path: Path) -> tuple[str, ...]:
    """The names of the regular files in an archive, empty where `path` is none."""
    with ExitStack() as stack:
        try:
            stream, kind = _peeled(stack.enter_context(path.open("rb")), stack)
            if kind == "zip":
                return tuple(entry.filename for entry in _zip(path, stack).infolist() if not entry.is_dir())
            if kind == "tar":
                tar = stack.enter_context(tarfile.open(fileobj=stream, mode="r|"))
                return tuple(entry.name.removeprefix("./") for entry in tar if entry.isfile())
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise FormatError(f"{path} is damaged: {error}") from error
    return ()


def is_archive(path: Path) -> bool:
    """Whether `path` is a folder, a zip or a tar, compressed or not."""
    if path.is_dir():
        return True
    with path.open("rb") as file, ExitStack() as stack:
        return _peeled(file, stack).kind in ARCHIVES


def _open(place: Place, stack: ExitStack) -> Opened:
    path, name = place.path, place.name
    if path.is_dir():
        return _peeled(stack.enter_context(_in_folder(path, _inside(name, path)).open("rb")), stack)
    stream, kind = _peeled(stack.enter_context(path.open("rb")), stack)
    if kind == "zip":
        return _nested(place, _in_zip(path, _zip(path, stack), name, stack), stack)
    if kind == "tar":
        # A stream, not a seekable archive: one pass, and memory for one block only.
        tar = stack.enter_context(tarfile.open(fileobj=stream, mode="r|"))  # noqa: SIM115
        return _nested(place, _in_tar(path, tar, name), stack)
    if not place.alone:
        raise FormatError(
            f"{path} is neither a folder nor a tar nor a zip, so it cannot contain {name!r}; "
            "give a source for each side"
        )
    return Opened(stream, kind)


def _nested(place: Place, member: IO[bytes], stack: ExitStack) -> Opened:
    found = _peeled(member, stack)
    if found.kind in ARCHIVES:
        raise FormatError(f"{place} is itself a {found.kind} archive; take it out and make it a source")
    return found


def _peeled(stream: IO[bytes], stack: ExitStack) -> Opened:
    """The stream without its compression, and what it begins with."""
    while True:
        head = _first(stream)
        whole = _buffered(_Rejoined(head, stream), stack)
        kind = sniff(head)
        if kind not in COMPRESSED:
            return Opened(whole, kind)
        stream = stack.enter_context(_UNPACK[kind](whole))


def _first(stream: IO[bytes]) -> bytes:
    parts, wanted = [], HEAD
    while wanted and (part := stream.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _buffered(stream: io.RawIOBase, stack: ExitStack) -> BinaryIO:
    return cast("BinaryIO", stack.enter_context(io.BufferedReader(stream, _BUFFER)))


class _Rejoined(io.RawIOBase):
    """A stream with the bytes that were read from it put back: a decompressor's cannot seek."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        """Read `head` first, then `rest`."""
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed: a private protocol
        """Fill the buffer as far as one read does."""
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _inside(name: str, path: Path) -> str:
    """The name, if it stays inside the folder `path`."""
    inside = PurePosixPath(name)
    if not name or inside.is_absolute() or ".." in inside.parts:
        raise FormatError(f"{path}: {name!r} is not the name of a file inside it")
    return name


def _in_folder(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise _missing(
            folder, name, sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        )
    return file


def _zip(path: Path, stack: ExitStack) -> zipfile.ZipFile:
    return stack.enter_context(zipfile.ZipFile(path))


def _in_zip(path: Path, archive: zipfile.ZipFile, name: str, stack: ExitStack) -> IO[bytes]:
    files = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in files]
    entry = next((e for e in files if _same(e.filename, name)), None) if name else _only(path, files, names)
    if entry is None:
        raise _missing(path, name, names)
    if entry.flag_bits & 1:
        raise FormatError(f"{path}: {entry.filename!r} is encrypted; unpack the archive yourself")
    try:
        return stack.enter_context(archive.open(entry))
    except NotImplementedError as error:
        raise FormatError(f"{path}: {entry.filename!r}: {error}; unpack the archive yourself") from error


def _only(path: Path, files: list[zipfile.ZipInfo], names: list[str]) -> zipfile.ZipInfo:
    if len(files) != 1:
        raise _unnamed(path, names)
    return files[0]


def _in_tar(path: Path, tar: tarfile.TarFile, name: str) -> IO[bytes]:
    if not name:
        raise FormatError(f"{path} is a tar archive; name the file in it that is meant")
    seen = []
    for member in tar:
        if _same(member.name, name):
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                raise FormatError(f"{path}: {name!r} is not a regular file but a link, folder or device")
            return stream
        seen.append(member.name)
    raise _missing(path, name, seen)


def _same(listed: str, wanted: str) -> bool:
    return listed.removeprefix("./") == wanted.removeprefix("./")


def _unnamed(path: Path, present: list[str]) -> FormatError:
    return FormatError(
        f"{path} is an archive of {len(present)} files, and none is named; it has {', '.join(present[:5])}"
    )


def _missing(path: Path, name: str, present: list[str]) -> FormatError:
    near = get_close_matches(name, present, n=3) or present[:3]
    return FormatError(
        f"{path} has no file {name!r} among its {len(present)}; nearest: {', '.join(near) or 'none'}"
    )
