"""Named files inside one local path: a folder, a tar (also compressed) or a zip; `.gz` files are unpacked.

Kinds are told by their first bytes, since a blob has no file name. Nothing is ever extracted to disk.
"""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, BinaryIO, cast

from rnnsearch.pipeline.errors import FormatError

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"


@contextmanager
def opened(path: Path, name: str) -> Iterator[BinaryIO]:
    """The bytes of the file `name` in the folder or archive `path`, as a stream; `.gz` contents are unpacked.

    Raises FormatError where `path` is neither, has no such file, or has something else under that name.
    """
    with ExitStack() as stack:
        try:
            yield _unpacked(_open(path, name, stack), stack)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise FormatError(f"{path} is damaged: {error}; delete it and download it again") from error


def _open(path: Path, name: str, stack: ExitStack) -> IO[bytes]:
    if not name:
        raise FormatError(f"{path}: the configuration names no file for this side; set `source` and `target`")
    if path.is_dir():
        return stack.enter_context(_in_folder(path, name).open("rb"))
    if _begins(path, _ZIP):
        archive = stack.enter_context(zipfile.ZipFile(path))
        if name not in archive.namelist():
            raise _missing(path, name, archive.namelist())
        return stack.enter_context(archive.open(name))
    try:
        # A stream, not a seekable archive: one pass, and memory for one block only.
        tar = stack.enter_context(tarfile.open(path, mode="r|*"))  # noqa: SIM115  # the stack closes it
    except tarfile.TarError as error:
        raise FormatError(
            f"{path} is neither a folder nor a tar nor a zip, so it cannot contain {name!r}"
        ) from error
    return _in_tar(path, tar, name)


def _in_folder(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise _missing(
            folder, name, sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        )
    return file


def _in_tar(path: Path, tar: tarfile.TarFile, name: str) -> IO[bytes]:
    seen = []
    for member in tar:
        if member.name.removeprefix("./") == name.removeprefix("./"):
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                raise FormatError(f"{path}: {name!r} is not a regular file but a link, folder or device")
            return stream
        seen.append(member.name)
    raise _missing(path, name, seen)


def _unpacked(stream: IO[bytes], stack: ExitStack) -> BinaryIO:
    # For `peek`: a tar's stream cannot go back. The stack keeps it, else it would close when first let go.
    buffered = stack.enter_context(io.BufferedReader(cast("io.RawIOBase", stream)))
    if buffered.peek(len(_GZIP)).startswith(_GZIP):
        return cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=buffered)))
    return cast("BinaryIO", buffered)


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _missing(path: Path, name: str, present: list[str]) -> FormatError:
    near = get_close_matches(name, present, n=3) or present[:3]
    return FormatError(
        f"{path} has no file {name!r} among its {len(present)}; nearest: {', '.join(near) or 'none'}"
    )
