"""NIST SGML test sets: the text of every `<seg>`, in order.

Empty segments are kept, since dropping them on one side would shift the lines (protocol trap 33).
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rnnsearch.pipeline.config import SgmlFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import opened
from rnnsearch.pipeline.formats.plain import Sides

_SEGMENT = re.compile(r"<seg\b([^>]*)>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<seg\b", re.IGNORECASE)
_ID = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")


class Segment(NamedTuple):
    """One segment; `id` is empty where the file gives none."""

    id: str
    text: str


def read_sgml(path: Path, config: SgmlFormat, rows: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time. Raises FormatError where the sides do not belong to each other."""
    sources, targets = segments(path, config.source), segments(path, config.target)
    if len(sources) != len(targets):
        raise FormatError(
            f"{path}: {config.source!r} has {len(sources):,} segments but "
            f"{config.target!r} has {len(targets):,}; they cannot be pairs"
        )
    for position, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        if source.id and target.id and source.id != target.id:
            raise FormatError(
                f"{path}: segment {position:,} is called {source.id!r} in {config.source!r} "
                f"but {target.id!r} in {config.target!r}; are these two sides of one text?"
            )
    for start in range(0, len(sources), rows):
        texts = [[s.text for s in side[start : start + rows]] for side in (sources, targets)]
        yield Sides(pa.array(texts[0], pa.string()), pa.array(texts[1], pa.string()))


def segments(path: Path, name: str) -> list[Segment]:
    """The segments of the file `name` in `path`; entities such as `&amp;` resolved, outer spaces removed."""
    with opened(path, name) as stream:
        raw = stream.read()
    try:
        text = raw.decode()
    except UnicodeDecodeError as bad:
        raise FormatError(f"{path}: {name!r} is not UTF-8 at byte {bad.start:,}: {bad.reason}") from bad
    found = [Segment(_id(m[1]), _resolved(m[2]).strip(" \t\r\n")) for m in _SEGMENT.finditer(text)]
    if len(found) != len(_OPENING.findall(text)):
        raise FormatError(
            f"{path}: {name!r} has a <seg> without its end: {len(found):,} whole ones; is it cut off?"
        )
    if not found:
        raise FormatError(f"{path}: {name!r} has no <seg>; is it SGML of a test set?")
    return found


def _id(attributes: str) -> str:
    match = _ID.search(attributes)
    return match[1] if match else ""


def _resolved(text: str) -> str:
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)
