"""One member of a wheel, zip or tar, taken out by streaming under a name that we choose."""

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, NamedTuple

from rnnsearch.flows.sources.checks import CHUNK, SourceError, require_space
from rnnsearch.pipeline.formats.sniff import HEAD, sniff


class _Member(NamedTuple):
    size: int  # bytes, as the archive declares
    data: IO[bytes]


def extract(archive: Path, member: str, target: Path, limit: int) -> None:
    """Write the file `member` of `archive` to `target`.

    Nothing else of the archive touches the disk, and its own paths, modes and links are never followed.
    Of two members of one name the first counts. `limit` is in bytes: a larger member is refused before
    it is unpacked, and one that is larger than it says, while it is.
    """
    part = target.with_name(f"{target.name}.part")
    with archive.open("rb") as file:
        opened = _zip_member if sniff(file.read(HEAD)) == "zip" else _tar_member
    try:
        with opened(archive, member) as found:
            if found.size > limit:
                raise SourceError(
                    f"{member} in {archive.name} has {found.size:,} bytes, above the limit of {limit:,}; "
                    "raise member_limit if that is right"
                )
            require_space(target.parent, found.size)
            _write(found, part, f"{member} in {archive.name}")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as fault:
        part.unlink(missing_ok=True)
        if isinstance(fault, OSError) and fault.errno is not None:
            raise  # the disk, not the archive
        raise SourceError(
            f"{archive.name} cannot be unpacked ({fault}); it is damaged or no archive"
        ) from fault
    part.replace(target)


def _write(found: _Member, part: Path, what: str) -> None:
    written = 0
    with part.open("wb") as out:
        while chunk := found.data.read(CHUNK):
            written += len(chunk)
            if written > found.size:
                break
            out.write(chunk)
    if written != found.size:
        raise SourceError(
            f"{what} unpacks to {written:,} bytes or more, not {found.size:,}; the archive lies"
        )


@contextmanager
def _zip_member(archive: Path, member: str) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        entry = next((entry for entry in entries if _same(entry.filename, member)), None)
        if entry is None:
            raise _missing(archive, member, [entry.filename for entry in entries])
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or kind not in (0, stat.S_IFREG):
            raise _not_a_file(archive, member)
        if entry.flag_bits & 1:
            raise SourceError(f"{member} in {archive.name} is encrypted; unpack it yourself and use file://")
        try:
            data = opened.open(entry)
        except NotImplementedError as fault:
            raise SourceError(
                f"{member} in {archive.name}: {fault}; unpack it yourself and use file://"
            ) from fault
        with data:
            yield _Member(entry.file_size, data)


@contextmanager
def _tar_member(archive: Path, member: str) -> Iterator[_Member]:
    names: list[str] = []
    with tarfile.open(archive, "r|*") as opened:  # a stream: one pass, compressed or not
        for entry in opened:
            names.append(entry.name)
            if not _same(entry.name, member):
                continue
            data = opened.extractfile(entry) if entry.isreg() else None
            if data is None:
                raise _not_a_file(archive, member)
            with data:
                yield _Member(entry.size, data)
            return
    raise _missing(archive, member, names)


def _same(listed: str, wanted: str) -> bool:
    return listed.removeprefix("./") == wanted.removeprefix("./")


def _missing(archive: Path, member: str, names: list[str]) -> SourceError:
    near = get_close_matches(member, names, n=3, cutoff=0.3) or names[:3]
    return SourceError(f"{archive.name} has no member {member} among its {len(names)}; near it are {near}")


def _not_a_file(archive: Path, member: str) -> SourceError:
    return SourceError(f"{member} in {archive.name} is a folder, a link or a device; name a regular file")
