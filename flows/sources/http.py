"""A file over HTTP: continued where it broke off, and never mixed out of two versions.

Continuing uses a range request (RFC 9110, 14) with `If-Range`, so that a server whose file has changed
sends the whole new one. Where neither a strong ETag nor a date was given, the part is continued only if a
digest is known beforehand, which then decides.
"""

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version as installed_version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from rnnsearch.flows.sources.checks import ChangedError, SourceError, require_space
from rnnsearch.flows.sources.logins import login_for, netrc_path
from rnnsearch.flows.sources.secrets import MissingSecretError, resolved
from rnnsearch.flows.sources.sniff import Answer

Progress = Callable[[int, int | None], None]
_NO_ENTRY = (
    "put a login for the host into {netrc}, name a token in the query as token=${{NAME}}, or fetch the file by "
    "hand and give its path as the url"
)
_REMEDIES = {
    401: _NO_ENTRY,
    403: f"the server lets this file go to some only, or not to programs: {_NO_ENTRY}",
    404: "the file is not there (any more): look at the address in a browser, or give a mirror",
    407: "the proxy wants a login: set it in https_proxy",
    410: "the publisher removed the file: give a mirror",
}
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a second try makes sense


class Patience(NamedTuple):
    """How long to wait for a server, in seconds, and how often to try it."""

    attempts: int = 5  # in a row that bring no byte beyond those that were there at some time
    pause: float = 1.0  # before the second attempt; doubles with each
    longest_pause: float = 30.0
    longest_wait: float = 600.0  # that a server may ask for (Retry-After)
    connect: float = 20.0
    read: float = 60.0


PATIENCE = Patience()


class Wanted(NamedTuple):
    """What is known beforehand of the file."""

    size: int | None  # bytes
    pinned: bool  # a digest is known, and is checked by the caller


class _PassingError(Exception):
    """A fault that may be gone at the next attempt."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait  # seconds that the server asked for


@dataclass(frozen=True)
class _Version:
    """Which version of the file the part belongs to."""

    url: str
    validator: str | None  # strong ETag or Last-Modified
    total: int | None  # bytes


class _Part:
    """The bytes so far, and beside them the version that they belong to."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._record = target.with_name(f"{target.name}.part.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> _Version | None:
        try:
            return _Version(**json.loads(self._record.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # none, or torn by a kill: the part is not trusted

    def begin(self, version: _Version) -> None:
        """Start anew: the old bytes go before the new version is named."""
        self.path.write_bytes(b"")
        self._record.write_text(json.dumps(asdict(version)), encoding="utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)

    def finish(self, target: Path) -> None:
        self.path.replace(target)
        self._record.unlink(missing_ok=True)


class Received(NamedTuple):
    """How a file arrived."""

    continued: bool  # bytes of an earlier attempt were kept
    answer: Answer


def download(
    url: str, target: Path, wanted: Wanted, progress: Progress, patience: Patience = PATIENCE
) -> Received:
    """Bring the file at `url` to `target`.

    Raises SourceError for what another attempt would not mend, and when `patience` is at its end. No message, file
    or log holds the secrets that the query of `url` names.
    """
    part, failures, continued, longest = _Part(target), 0, False, 0
    try:
        address = resolved(url)
    except MissingSecretError as fault:
        raise SourceError(str(fault)) from fault
    timeout = httpx.Timeout(patience.read, connect=patience.connect)
    headers = {"User-Agent": f"rnnsearch/{installed_version('rnnsearch')}"}
    login = login_for(urlsplit(url).hostname or "")
    auth = None if login is None else httpx.BasicAuth(*login)
    with (
        _queries_unlogged(),
        httpx.Client(follow_redirects=True, timeout=timeout, auth=auth, headers=headers) as client,
    ):
        while True:
            longest = max(longest, part.size())
            try:
                got = _attempt(client, url, address, part, wanted=wanted, progress=progress)
                continued = got.continued or continued
                break
            except _PassingError as fault:
                failures = 1 if part.size() > longest else failures + 1
                if failures >= patience.attempts:
                    raise SourceError(f"{fault}, {failures} times in a row; try again later") from fault
                if fault.wait > patience.longest_wait:
                    raise SourceError(
                        f"{fault} and asks to wait {fault.wait:,.0f} s; try again then"
                    ) from fault
                pause = min(patience.pause * 2 ** (failures - 1), patience.longest_pause)
                time.sleep(max(pause, fault.wait))
    part.finish(target)
    return Received(continued, got.answer)


def _attempt(
    client: httpx.Client, url: str, address: str, part: _Part, *, wanted: Wanted, progress: Progress
) -> Received:
    """Ask `address`, which messages call `url`, once for what is missing."""
    offset, version = part.size(), part.version()
    same_place = version is not None and version.url == url
    if version is None or not (wanted.pinned or (same_place and version.validator)):
        offset, version = 0, None
    headers = {"Accept-Encoding": "identity"}  # the bytes of the file, not of a transfer
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if version and same_place and version.validator:
            headers["If-Range"] = version.validator
    try:
        with client.stream("GET", address, headers=headers) as response:
            known = version if offset else None
            kept = _receive(response, url, part, known, wanted=wanted, progress=progress)
            declared: str = response.headers.get("Content-Type", "")
            return Received(kept, Answer(url, declared))
    except httpx.UnsupportedProtocol as fault:
        raise SourceError(f"is redirected to an address that is not HTTP ({fault})") from fault
    except httpx.TransportError as fault:
        if (untrusted := _certificate_fault(fault)) is not None:
            raise SourceError(
                f"its certificate is not trusted ({untrusted}); set SSL_CERT_FILE if your network has an "
                "authority of its own"
            ) from fault
        raise _PassingError(f"the connection failed ({fault or type(fault).__name__})") from fault
    except (httpx.TooManyRedirects, httpx.InvalidURL) as fault:
        raise SourceError(f"leads nowhere ({fault})") from fault


def _receive(
    response: httpx.Response,
    url: str,
    part: _Part,
    version: _Version | None,
    *,
    wanted: Wanted,
    progress: Progress,
) -> bool:
    """Write the body of `response` into `part`; `version` is that of the bytes it continues, if it does."""
    _refuse_downgrade(url, response)
    offset = part.size() if version else 0
    if version and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        if response.headers.get("Content-Range", "") == f"bytes */{offset}":
            return True  # killed between the last byte and the renaming
        part.drop()
        raise _PassingError(f"has no byte {offset:,} and later, so the file became shorter")
    if response.status_code in _PASSING:
        raise _PassingError(f"answers {response.status_code} {response.reason_phrase}", _wait_asked(response))
    if version and response.status_code == httpx.codes.PARTIAL_CONTENT:
        total = _continued_total(response, offset, version.total)
        if total is None or not _same_version(version, url, _validator(response), total):
            part.drop()
            raise _PassingError("sent a piece of another version of the file")
    elif response.status_code == httpx.codes.OK:
        version, offset = None, 0
        total = _number(response.headers.get("Content-Length", ""))
    else:
        remedy = _REMEDIES.get(response.status_code, "look at the address").format(netrc=netrc_path())
        raise SourceError(f"answers {response.status_code} {response.reason_phrase}; {remedy}")
    if wanted.size is not None and total not in (None, wanted.size):
        raise ChangedError(f"has {total:,} bytes, not the declared {wanted.size:,}: the file changed there")
    total = total if total is not None else wanted.size
    require_space(part.path.parent, (total or 0) - offset)
    if version is None:
        part.begin(_Version(url, _validator(response), total))
    _append(response, part, offset, total, progress)
    return version is not None


def _append(
    response: httpx.Response, part: _Part, offset: int, total: int | None, progress: Progress
) -> None:
    done = offset
    progress(done, total)
    with part.path.open("ab") as file:
        for chunk in response.iter_raw():
            done += len(chunk)
            if total is not None and done > total:
                raise SourceError(f"sent more than the {total:,} bytes of the file")
            file.write(chunk)
            file.flush()  # what arrived survives a kill
            progress(done, total)
    if total is not None and done != total:
        raise _PassingError(f"closed the connection after {done:,} of {total:,} bytes")


def _validator(response: httpx.Response) -> str | None:
    """Return what names the version in If-Range (RFC 9110, 13.1.5): a strong ETag, or a date."""
    etag: str | None = response.headers.get("ETag")
    if etag is not None:
        return None if etag.startswith("W/") else etag
    date: str | None = response.headers.get("Last-Modified")
    return date


def _same_version(version: _Version, url: str, validator: str | None, total: int) -> bool:
    if version.total not in (None, total):
        return False
    return version.url != url or validator is None or version.validator in (None, validator)


def _continued_total(response: httpx.Response, offset: int, known: int | None) -> int | None:
    """Return the size of the file if the piece runs from `offset` to its end; `known` if the server leaves it open."""
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    span, _, size = rest.partition("/")
    total = known if size == "*" else _number(size)
    if unit != "bytes" or total is None or span != f"{offset}-{total - 1}":
        return None
    return total


def _wait_asked(response: httpx.Response) -> float:
    """Return the seconds of Retry-After (RFC 9110, 10.2.3): a number, or a date by the server's own clock."""
    asked: str = response.headers.get("Retry-After", "").strip()
    seconds = _number(asked)
    if seconds is not None:
        return float(seconds)
    until = _date(asked)
    now = _date(response.headers.get("Date", "")) or datetime.now(UTC)
    return 0.0 if until is None else max(0.0, (until - now).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _refuse_downgrade(url: str, response: httpx.Response) -> None:
    hops = [httpx.URL(url), *(hop.url for hop in response.history[1:]), response.url]
    if any(a.scheme == "https" and b.scheme == "http" for a, b in pairwise(hops)):
        raise SourceError(
            f"is redirected from https to {response.url.copy_with(query=None)}; use another address"
        )


def _certificate_fault(fault: BaseException) -> ssl.SSLCertVerificationError | None:
    link: BaseException | None = fault
    while link is not None:
        if isinstance(link, ssl.SSLCertVerificationError):
            return link
        link = link.__cause__ or link.__context__
    return None


@contextmanager
def _queries_unlogged() -> Iterator[None]:
    """Keep queries out of httpx's log of requests: they may hold secrets, also those of a redirect."""

    def strip(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        record.args = tuple(
            each.copy_with(query=None) if isinstance(each, httpx.URL) else each for each in arguments
        )
        return True

    logger = logging.getLogger("httpx")
    logger.addFilter(strip)
    try:
        yield
    finally:
        logger.removeFilter(strip)
