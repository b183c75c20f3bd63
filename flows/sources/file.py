"""A file on this machine, or on a disk that it shares."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rnnsearch.flows.sources.checks import CHUNK, SourceError, require_space


def copy(url: str, target: Path, progress: Callable[[int, int | None], None]) -> None:
    """Copy the file at `url` (`file:///…`) to `target`.

    A copy, so that what is checked and unpacked afterwards cannot change under us.
    """
    origin = Path(url2pathname(urlsplit(url).path))
    if not origin.is_file():
        found = "is a folder" if origin.is_dir() else "is not there"
        raise SourceError(f"{origin} {found}; give the path of one file")
    before = origin.stat()
    require_space(target.parent, before.st_size)
    part = target.with_name(f"{target.name}.part")
    done = 0
    with origin.open("rb") as read, part.open("wb") as write:
        while chunk := read.read(CHUNK):
            write.write(chunk)
            done += len(chunk)
            progress(done, before.st_size)
    after = origin.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or done != before.st_size:
        raise SourceError(f"{origin} changed while it was read; run again when nothing writes to it")
    part.replace(target)
