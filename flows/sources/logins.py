"""The login for a host, from the user's netrc file.

The standard library's reader refuses a whole file for one entry that it does not know. Here an entry that cannot be
read concerns its own host alone: other hosts' files are fetched as if it were not there.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from rnnsearch.flows.sources.checks import SourceError

_MACRO = re.compile(r"^[ \t]*macdef\b.*?(?:\n[ \t]*(?=\n)|\Z)", re.MULTILINE | re.DOTALL)  # to an empty line
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_TOKEN = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+)')
_FIELDS = {"login": "user", "user": "user", "password": "password", "account": "account"}


class Login(NamedTuple):
    """A user name and a password."""

    user: str
    password: str


def netrc_path() -> Path:
    """The netrc file: `NETRC`, or `~/.netrc`. It need not be there."""
    return Path(os.environ.get("NETRC", "~/.netrc")).expanduser()


def login_for(host: str) -> Login | None:
    """Return the login for `host`, or the default one; None where there is neither. Raises SourceError."""
    path = netrc_path()
    if not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as fault:
        raise SourceError(f"{path} cannot be read ({fault.strerror}); mend it or remove it") from fault
    entries = _entries(text)
    fields = entries.get(host, entries.get("", {}))
    if "password" not in fields:
        return None
    return Login(fields.get("user", ""), fields["password"])


def _entries(text: str) -> dict[str, dict[str, str]]:
    """The fields of each host, by its name; of `default` by the empty name. The first entry of a host counts."""
    words = [
        match["plain"] if match["quoted"] is None else re.sub(r"\\(.)", r"\1", match["quoted"])
        for match in _TOKEN.finditer(_COMMENT.sub("", _MACRO.sub("", text)))
    ]
    entries: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    waiting = iter(words)
    for word in waiting:
        if word == "machine":
            fields = {}
            entries.setdefault(next(waiting, "").lower(), fields)
        elif word == "default":
            fields = {}
            entries.setdefault("", fields)
        elif word in _FIELDS:
            fields[_FIELDS[word]] = next(waiting, "")
    return entries
