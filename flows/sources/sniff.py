"""Detect error pages by the first bytes of a download, so that they are not taken for a corpus."""

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rnnsearch.pipeline.formats.sniff import sniff

_HEAD = 512  # bytes that are looked at
_SHOWN = 40  # bytes that a message shows
_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark, blanks

_KINDS = {"html": "a web page", "lfs": "a Git LFS pointer, not the file itself"}
_PAGES = (  # what `sniff` takes for text
    (re.compile(rb"<(?:head|script)[\s>]", re.IGNORECASE), "a web page"),
    (re.compile(rb"(?:<\?xml[^>]*>\s*)?<error[\s>]", re.IGNORECASE), "a server's error message"),
    (re.compile(rb'\{\s*"(?:error|errors|message|detail)"\s*:', re.IGNORECASE), "a server's error message"),
)
_PACKED = frozenset({".gz", ".tgz", ".zip", ".whl", ".xz", ".bz2", ".zst", ".tar", ".db", ".sqlite"})


class Answer(NamedTuple):
    """How a server described a file."""

    url: str
    type: str  # of the content, as declared; may be empty

    def described(self, path: Path) -> str:
        """The address, type, length and first bytes, for a message."""
        begin = _head(path)[:_SHOWN].decode("latin-1").encode("unicode_escape").decode()
        declared = self.type or "no declared type"
        return f"{self.url}: {declared}, {path.stat().st_size:,} bytes, which begin '{begin}'"


def fault_of(path: Path, answer: Answer) -> str | None:
    """Return what is wrong with an unpinned file that came over HTTP, or None."""
    head = _head(path).lstrip(_BLANK)
    suffix = PurePosixPath(unquote(urlsplit(answer.url).path)).suffix.lower()
    if suffix not in (".html", ".htm", ".xhtml"):
        if (kind := _KINDS.get(sniff(head))) is not None:
            return f"gives {kind}"
        for pattern, page in _PAGES:
            if pattern.match(head):
                return f"gives {page}"
    if suffix in _PACKED and _is_text(_head(path)):
        return f"gives text, not a {suffix} file"
    return None


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", "replace").rstrip("\ufffd")  # the end may be half a letter
    return all(letter.isprintable() or letter.isspace() for letter in text)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)
