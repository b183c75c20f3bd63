"""A cache of the digests of local files, keyed by path, size, times and inode.

A log of short lines in the user's cache. It may be lost or torn: then files are hashed again. It decides only which
recipe is looked up; whoever stores the bytes of a file hashes what was stored.
"""

import contextlib
import os
import time
from pathlib import Path

from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.digests import Digest, hash_bytes, hash_file, is_digest

_SMALL = 2**20  # bytes; a smaller file is hashed each time
_SETTLED = 2.0  # seconds; a file changed later than this before its hash may change again at the same dates
_MOST = 10_000  # lines


def content_of(path: Path) -> Digest:
    """The digest of a file's bytes. OSError where it cannot be read."""
    before = path.stat()
    if before.st_size < _SMALL:
        return hash_file(path)
    name, state = hash_bytes(os.fsencode(path.absolute())), _state(before)
    known = _read().get(name)
    if known is not None and known[0] == state:
        return known[1]
    started = time.time()
    digest = hash_file(path)
    settled = max(before.st_mtime, before.st_ctime) < started - _SETTLED
    if settled and _state(path.stat()) == state:
        _append(f"{name} {state} {digest}\n")
    return digest


def forget(path: Path) -> None:
    """Hash the file again when it is next asked for."""
    name = hash_bytes(os.fsencode(path.absolute()))
    if name in _read():
        _append(f"{name} - {'0' * 64}\n")


def _log() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "rnnsearch" / "local-files"


def _state(found: os.stat_result) -> str:
    parts = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)
    return "-".join(map(str, parts))


def _read() -> dict[Digest, tuple[str, Digest]]:
    found: dict[Digest, tuple[str, Digest]] = {}
    with contextlib.suppress(OSError):
        lines = _log().read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        for line in lines:
            fields = line.split()
            if line.endswith("\n") and len(fields) == 3 and is_digest(fields[0]) and is_digest(fields[2]):
                found[Digest(fields[0])] = (fields[1], Digest(fields[2]))
        if len(lines) > _MOST:
            _rewrite(found)
    return found


def _rewrite(found: dict[Digest, tuple[str, Digest]]) -> None:
    """Keep the newer half; what others append meanwhile is hashed again."""
    kept = list(found.items())[-_MOST // 2 :]
    temporary = temporary_path(_log().parent)
    temporary.write_text("".join(f"{name} {state} {digest}\n" for name, (state, digest) in kept), "ascii")
    temporary.replace(_log())


def _append(line: str) -> None:
    with contextlib.suppress(OSError):  # a home that we may only read, a full disk
        _log().parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
