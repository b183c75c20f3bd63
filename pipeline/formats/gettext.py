"""Translated messages of a gettext catalogue: `.po`, or compiled `.mo`, told by its first bytes.

Fuzzy, obsolete and untranslated messages are no translations, and the header is none; they are left out. A
plural message gives two pairs where the language has two forms, else one, of the singular.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polib
import pyarrow as pa

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.plain import Sides

_COMPILED = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")  # the magic number of .mo, either byte order
_CONTEXT_END = "\x04"  # between a message's context and its text, as compiled catalogues write it


class Message(NamedTuple):
    """One message and its translation."""

    source: str
    target: str


def read_gettext(path: Path, rows: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time, in the order of the file. Raises FormatError if it is no catalogue."""
    messages = list(_messages(path))
    for start in range(0, len(messages), rows):
        part = messages[start : start + rows]
        yield Sides(
            pa.array([m.source for m in part], pa.string()), pa.array([m.target for m in part], pa.string())
        )


def _messages(path: Path) -> Iterator[Message]:
    with path.open("rb") as file:
        read = polib.mofile if file.read(4) in _COMPILED else polib.pofile
    try:
        catalogue = read(str(path))
    except (OSError, ValueError, struct.error) as error:  # UnicodeDecodeError is a ValueError
        raise FormatError(f"{path} is not a gettext catalogue: {error}") from error
    for entry in catalogue:
        if entry.obsolete or "fuzzy" in entry.flags:
            continue
        for message in _pairs(entry):
            if message.source.strip() and message.target.strip():
                yield message


def _pairs(entry: polib.POEntry | polib.MOEntry) -> list[Message]:
    source = _text(entry.msgid)
    if not entry.msgid_plural:
        return [Message(source, entry.msgstr)]
    forms = [entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural)]
    sources = [source, _text(entry.msgid_plural)]
    return [Message(*pair) for pair in zip(sources, forms, strict=False)][: 2 if len(forms) == 2 else 1]


def _text(msgid: str) -> str:
    return msgid.rpartition(_CONTEXT_END)[2]
