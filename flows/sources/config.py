"""Where the bytes of a corpus come from. Imports pydantic only, apart from the sections' base."""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from rnnsearch.flows.sources.secrets import check_query
from rnnsearch.pipeline.config import Section

_PACKAGE = re.compile(r"pypi:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):")  # two letters at least: one is a drive


def _known_origin(url: str) -> str:
    """Return `url` if it is of a kind that we can fetch."""
    if not url.isprintable():
        raise ValueError(f"{url!r} holds a character that cannot be printed; write it as %XX")
    scheme = scheme_of(url)
    if scheme == "pypi":
        package_of(url)
    elif scheme in ("http", "https"):
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError(f"{url} names no host; write http(s)://host/path")
        if parts.username or parts.password:
            raise ValueError(
                f"the address at {parts.hostname} holds a user name or a password, and settings are kept in "
                "the ledger and shown in reports; put them into ~/.netrc"
            )
        check_query(url)
    elif scheme == "file":
        if urlsplit(url).netloc not in ("", "localhost"):
            raise ValueError(f"{url} names another host; a file address is file:///absolute/path")
    elif scheme:
        raise ValueError(
            f"{url} has the scheme {scheme}; known are pypi:name==version, http://, https://, file:// "
            "and a path relative to the profile"
        )
    elif not url:
        raise ValueError("an address is empty; give one, or leave the key out")
    return url


Origin = Annotated[str, AfterValidator(_known_origin)]


class SourceConfig(Section):
    """One file to fetch, and how to know that it is the right one.

    The digests, the size and the order of mirrors speak of the file as it is fetched (for `pypi:` the
    wheel), before `member` is taken out of it. Mirrors hold the same bytes and are tried in turn. In the
    query of an address `${NAME}` stands for the value of an environment variable, read when it is fetched.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Origin
    mirrors: tuple[Origin, ...] = ()
    sha256: str | None = None  # without it the digest is learned on the first fetch
    md5: str | None = None  # where a publisher gives no better one; checked beside sha256
    size: int | None = Field(default=None, gt=0)  # bytes
    member: str | None = None  # a file inside the wheel, zip or tar that was fetched
    member_limit: int = Field(default=16 * 2**30, gt=0)  # bytes that the member may have, unpacked

    @field_validator("sha256", "md5")
    @classmethod
    def _is_digest(cls, value: str | None, info: object) -> str | None:
        """Refuse what cannot be a digest; capitals are accepted."""
        if value is None:
            return None
        length = {"sha256": 64, "md5": 32}[getattr(info, "field_name", "sha256")]
        if not re.fullmatch(rf"[0-9a-fA-F]{{{length}}}", value):
            raise ValueError(f"{value!r} has not {length} hexadecimal digits; copy the publisher's digest")
        return value.lower()

    @field_validator("member")
    @classmethod
    def _is_inside(cls, value: str | None) -> str | None:
        """Refuse a member that no honest archive holds."""
        if value is None:
            return None
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise ValueError(
                f"{value!r} is no name inside an archive; write folder/file as the archive lists it"
            )
        return value

    @property
    def local(self) -> Path | None:
        """The file on this machine that a `file://` address names."""
        if scheme_of(self.url) != "file":
            return None
        return Path(unquote(urlsplit(self.url).path))

    @property
    def name(self) -> str:
        """The name of the file or member, for people: it decides nothing."""
        if self.member is None and scheme_of(self.url) == "pypi":
            return "-".join(package_of(self.url)) + ".whl"
        return PurePosixPath(self.member or unquote(urlsplit(self.url).path)).name

    @property
    def pinned(self) -> bool:
        """Whether a digest is known beforehand, so that any origin's bytes can be trusted or refused."""
        return self.sha256 is not None or self.md5 is not None

    def resolved(self, base: Path) -> "SourceConfig":
        """Return this source with relative paths made `file://` addresses below the folder `base`."""

        def absolute(url: str) -> str:
            return url if scheme_of(url) else (base / url).resolve().as_uri()

        return self.model_copy(
            update={"url": absolute(self.url), "mirrors": tuple(map(absolute, self.mirrors))}
        )


def scheme_of(url: str) -> str:
    """Return the scheme in lower case, or nothing for a path."""
    match = _SCHEME.match(url)
    return match["scheme"].lower() if match else ""


def package_of(url: str) -> tuple[str, str]:
    """Return the name and the version that `pypi:name==version` names, or raise ValueError."""
    match = _PACKAGE.fullmatch(url)
    if not match:
        raise ValueError(f"{url} is not of the form pypi:name==version; the version must be exact")
    return match["name"], match["version"]
