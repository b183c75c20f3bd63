"""Fetch one source, from the first of its origins that gives the right bytes."""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rnnsearch.flows.sources import file, http, package_index
from rnnsearch.flows.sources.archive import extract
from rnnsearch.flows.sources.checks import ChangedError, DigestError, Seen, SourceError, check, look
from rnnsearch.flows.sources.config import SourceConfig, package_of, scheme_of
from rnnsearch.flows.sources.sniff import fault_of

Progress = Callable[[int, int | None], None]
_TRANSFERS = 3  # of a file whose digest is not the pinned one
_LOCK_WAIT = 30.0  # seconds; the workers of a killed driver go on for about two


class Fetched(NamedTuple):
    """A file that was fetched and checked."""

    path: Path  # the file, or its member if one was asked for
    sha256: str  # of the file as fetched: what `SourceConfig.sha256` may be set to
    size: int  # bytes of the file as fetched
    origin: str  # the address that gave it


def fetch(
    source: SourceConfig, workdir: Path, progress: Progress, patience: http.Patience = http.PATIENCE
) -> Fetched:
    """Bring `source` into the folder `workdir`, which belongs to this source alone.

    A second call after a kill continues, or takes what is already whole. `progress` is told the bytes
    so far and, where it is known, their number. Raises SourceError, with the fault of each origin, when
    none gives the file; nothing wrong is left under the returned name.
    """
    workdir = workdir.absolute()  # pip runs in a folder of its own
    folder = workdir / "fetched"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(workdir / "lock"):
        target = folder / _file_name(source.url)
        found = _already_there(source, target) or _from_any(source, target, progress, patience)
        if source.member is None:
            return found
        unpacked = workdir / "member"
        unpacked.mkdir(exist_ok=True)
        name = _plain_name(PurePosixPath(source.member).name)
        extract(found.path, source.member, unpacked / name, source.member_limit)
        return found._replace(path=unpacked / name)


def _from_any(source: SourceConfig, target: Path, progress: Progress, patience: http.Patience) -> Fetched:
    faults, changed = [], False
    for origin in (source.url, *source.mirrors):
        try:
            seen = _from_one(origin, source, target, progress, patience)
        except SourceError as fault:
            faults.append(f"{origin}: {fault}")
            changed = changed or isinstance(fault, ChangedError)
            continue
        found = Fetched(target, seen.sha256, seen.size, origin)
        _remember(found)
        return found
    kind = ChangedError if changed else SourceError
    raise kind("no origin gives the file\n" + "\n".join(faults))


def _from_one(
    origin: str, source: SourceConfig, target: Path, progress: Progress, patience: http.Patience
) -> Seen:
    """Fetch and check. After a wrong digest the file is fetched anew: two transfers that agree were not damaged."""
    digests: list[str] = []
    while True:
        received = _bring(origin, source, target, progress, patience)
        try:
            return _checked(source, target, received)
        except DigestError as fault:
            target.unlink()
            if received is None:
                raise
            if fault.found in digests:
                raise ChangedError(f"{fault}; two transfers agree, so the file changed there") from fault
            digests.append(fault.found)
            if len(digests) == _TRANSFERS:
                raise SourceError(
                    f"{fault}; {_TRANSFERS} transfers differ, so the file is damaged on its way: try again"
                ) from fault
        except SourceError:
            target.unlink()
            raise


def _checked(source: SourceConfig, target: Path, received: http.Received | None) -> Seen:
    """Return what the file is. Without a digest that decides, its first bytes must be plausible."""
    try:
        seen = check(target, source)
    except DigestError as fault:
        if received is None:
            raise
        raise DigestError(f"{fault} ({received.answer.described(target)})", fault.found) from fault
    if received is not None and not source.pinned and (wrong := fault_of(target, received.answer)):
        raise SourceError(
            f"{wrong} ({received.answer.described(target)}); look at the address in a browser, or if these bytes are "
            f'right, set sha256 = "{seen.sha256}"'
        )
    return seen


def _bring(
    origin: str, source: SourceConfig, target: Path, progress: Progress, patience: http.Patience
) -> http.Received | None:
    """Fetch unchecked bytes; return how they arrived, where that was over HTTP."""
    match scheme_of(origin):
        case "http" | "https":
            wanted = http.Wanted(source.size, source.pinned)
            return http.download(origin, target, wanted, progress, patience)
        case "pypi":
            package_index.wheel(origin, target, source.size, progress)
        case "file":
            file.copy(origin, target, progress)
        case _:
            raise SourceError("is a relative path; the caller resolves those against the profile's folder")
    return None


def _already_there(source: SourceConfig, target: Path) -> Fetched | None:
    """Return the whole file of an earlier call, if it is still what it was and what is asked for.

    A local file is read again: it may have changed since.
    """
    if scheme_of(source.url) == "file" or not target.exists():
        return None
    try:
        record = json.loads(_record(target).read_text(encoding="utf-8"))
        if record["origin"] not in (source.url, *source.mirrors) or look(target).sha256 != record["sha256"]:
            return None
        seen = check(target, source)
        return Fetched(target, seen.sha256, seen.size, record["origin"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # SourceError is a ValueError
        return None


def _remember(found: Fetched) -> None:
    """Note the digest beside the file, last: what was learned holds for the next call too."""
    record = _record(found.path)
    fresh = record.with_name(f"{record.name}.part")
    fresh.write_text(json.dumps({"sha256": found.sha256, "origin": found.origin}), encoding="utf-8")
    fresh.replace(record)


def _record(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _file_name(url: str) -> str:
    """Return the name under which the file is kept: the same for every mirror."""
    if scheme_of(url) == "pypi":
        name, version = package_of(url)
        return _plain_name(f"{name}-{version}.whl")
    return _plain_name(PurePosixPath(unquote(urlsplit(url).path)).name)


def _plain_name(name: str) -> str:
    """Return a file name without surprises: no separators, no leading dot, not too long."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name).lstrip(".")[-100:] or "file"


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep other processes out of the folder; a lock of a killed one is gone with it."""
    deadline = time.monotonic() + _LOCK_WAIT
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"another process is fetching into {lock.parent}; wait for it"
                    ) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
