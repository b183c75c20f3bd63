"""NIST SGML test sets: the text of every `<seg>`, in order.

Empty segments are kept, since dropping them on one side would shift the lines (PAPER trap 33).
"""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.sides import Pair, Sides, gathered

_SEGMENT = re.compile(r"<seg\b([^>]*)>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<seg\b", re.IGNORECASE)
_ID = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")


class Segment(NamedTuple):
    """One segment; `id` is empty where the file gives none."""

    id: str
    text: str


def read_sgml(source: Place, target: Place, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time. Raises FormatError where the sides do not belong to each other."""
    sources, targets = segments(source), segments(target)
    if len(sources) != len(targets):
        raise FormatError(
            f"{source.path}: {_label(source)} has {len(sources):,} segments but "
            f"{_label(target)} has {len(targets):,}; they cannot be pairs"
        )
    for position, (one, other) in enumerate(zip(sources, targets, strict=True), 1):
        if one.id and other.id and one.id != other.id:
            raise FormatError(
                f"{source.path}: segment {position:,} is called {one.id!r} in {_label(source)} "
                f"but {other.id!r} in {_label(target)}; are these two sides of one text?"
            )
    pairs = (Pair(one.text, other.text) for one, other in zip(sources, targets, strict=True))
    yield from gathered(pairs, rows, longest)


def segments(place: Place) -> list[Segment]:
    """The segments of a file; entities such as `&amp;` resolved, outer spaces removed."""
    with opened(place, "text", "sgml") as stream:
        raw = stream.read()
    try:
        text = raw.decode()
    except UnicodeDecodeError as bad:
        raise FormatError(
            f"{place.path}: {_label(place)} is not UTF-8 at byte {bad.start:,}: {bad.reason}"
        ) from bad
    found = [Segment(_id(m[1]), _resolved(m[2]).strip(" \t\r\n")) for m in _SEGMENT.finditer(text)]
    if len(found) != len(_OPENING.findall(text)):
        raise FormatError(
            f"{place.path}: {_label(place)} has a <seg> without its end: {len(found):,} whole ones; is it cut off?"
        )
    if not found:
        raise FormatError(f"{place.path}: {_label(place)} has no <seg>; is it SGML of a test set?")
    return found


def _label(place: Place) -> str:
    return repr(place.name or place.path.name)


def _id(attributes: str) -> str:
    match = _ID.search(attributes)
    return match[1] if match else ""


def _resolved(text: str) -> str:
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)
