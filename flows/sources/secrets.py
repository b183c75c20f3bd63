"""Secrets in addresses: settings name an environment variable as `${NAME}`, which is read when a file is fetched.

Addresses are kept in recipes, ledgers and reports and printed by `plan`: a secret in one would be too.
"""

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit, urlunsplit

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME = re.compile(
    r"(?:.*[_.-])?(?:token|accesstoken|key|apikey|authkey|sig|sign|signature|secret|passw(?:or)?d|pwd|auth"
    r"|authorization|credentials?|session|sessionid|jwt|hmac|policy)"
    r"|x-(?:amz|goog|oss|cos|obs)-.*|awsaccesskeyid|googleaccessid|key-pair-id",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=//)[^/?#\s'\"]*@")
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;\s'\"]+)=([^&;#\s'\"]+)")
_UNSAFE = re.compile(r"[\x00-\x20\x7f#]")


class MissingSecretError(ValueError):
    """An environment variable that an address names is not set, or cannot stand in one."""


def check_query(url: str) -> None:
    """Raise ValueError where a query holds a secret itself, or a placeholder stands outside the query."""
    parts = urlsplit(url)
    if "${" in urlunsplit(parts._replace(query="")):
        raise ValueError(
            f"{redacted(url)} has a ${{NAME}} outside its query; only values of the query may be named so"
        )
    if "${" in _PLACEHOLDER.sub("", parts.query):
        raise ValueError(f"the query of {redacted(url)} has a ${{ that does not begin a ${{NAME}}")
    for name, value in _parameters(parts.query):
        if _is_secret(name) and not _PLACEHOLDER.fullmatch(value):
            variable = re.sub(r"\W", "_", name).upper()
            raise ValueError(
                f"the query of the address at {parts.hostname} holds a value of {name!r}, which looks like a secret, "
                f"and settings are kept in the ledger and shown in reports; write {name}=${{{variable}}} and set "
                f"the environment variable {variable}"
            )


def resolved(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return `url` with the values that its query names. Raises MissingSecretError, which never holds a value.

    A value is percent-encoded where it must be; what is encoded already stays. A placeholder that is the whole
    query stands for `name=value&…` as it is.
    """
    if not _PLACEHOLDER.search(url):
        return url
    parts = urlsplit(url)
    whole = _PLACEHOLDER.fullmatch(parts.query)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        found = environment.get(name, "").strip()
        if not found:
            raise MissingSecretError(
                f"its query needs the environment variable {name}, which is not set; set it and run again"
            )
        if whole is None:
            return quote(found, safe="%")
        if _UNSAFE.search(found):
            raise MissingSecretError(
                f"the environment variable {name} is not a query: it holds a space or a #"
            )
        return found

    return urlunsplit(parts._replace(query=_PLACEHOLDER.sub(value, parts.query)))


def redacted(text: str) -> str:
    """Return `text` without the user names, passwords and secret query values of the addresses in it."""

    def value(match: re.Match[str]) -> str:
        hidden = _is_secret(match[1]) and not _PLACEHOLDER.fullmatch(match[2])
        return f"{match[1]}=…" if hidden else match[0]

    return _PARAMETER.sub(value, _USER.sub("…@", text))


def _parameters(query: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in re.split("[&;]", query)]
    return [(name, value) for name, equals, value in pairs if equals and value]


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.fullmatch(unquote(name)) is not None
