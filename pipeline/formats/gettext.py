"""Translated messages of a gettext catalogue: `.po`, or compiled `.mo`, told by its first bytes.

Fuzzy, obsolete and untranslated messages are no translations and are dropped by these reasons; the header is no
message. A message with plural forms gives two pairs: the singular with the form for one thing, the plural with the
form for many. A language of one form has the singular's pair only.
"""

import gettext
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice

import polib

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.sides import Dropped, Pair, Sides, as_sides, too_long

_COMPILED = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")  # the magic number of .mo, either byte order
_CONTEXT_END = "\x04"  # between a message's context and its text, as compiled catalogues write it
_KEYWORD = re.compile(rb'\s*(?:#~\s*)?(?:(?:msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*)?(?=")')
_WHOLE = re.compile(rb'"(?:[^"\\]|\\.)*"\s*')
_PLURAL_RULE = re.compile(r"plural\s*=\s*([^;]+)")
_LAST = 1_000  # a form that no language has: cut to the last one
_MANY = 5  # things: the plural form of most languages, and a plural one in all

Forms = Callable[[int], int]  # from a number of things to the form for it


def read_gettext(place: Place, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time, in the order of the file, numbered without what is dropped.

    Raises FormatError if it is no catalogue.
    """
    found = _messages(place, longest)
    while part := list(islice(found, rows)):
        pairs = [each for each in part if isinstance(each, Pair)]
        yield as_sides(pairs, None, [each for each in part if isinstance(each, Dropped)])


def _messages(place: Place, longest: int) -> Iterator[Pair | Dropped]:
    catalogue = _catalogue(place)
    forms = _forms(catalogue.metadata.get("Plural-Forms", ""))
    for number, entry in enumerate(catalogue):
        if entry.obsolete or "fuzzy" in entry.flags:
            yield Dropped(number, "obsolete" if entry.obsolete else "fuzzy")
            continue
        pairs = [pair for pair in _pairs(entry, forms) if pair.source.strip() and pair.target.strip()]
        good = [pair for pair in pairs if too_long(pair, longest) is None]
        yield from good
        if not good:
            yield Dropped(number, "too_long" if pairs else "untranslated")


def _catalogue(place: Place) -> polib.POFile | polib.MOFile:
    with opened(place, "text", "mo") as stream:
        data = stream.read()
    compiled = data.startswith(_COMPILED)
    if not compiled:
        _refuse_unterminated(place, data)
    try:
        with tempfile.NamedTemporaryFile(suffix=".mo" if compiled else ".po") as file:
            # From a string polib would split lines at U+2028 too.
            file.write(data)
            file.flush()
            return polib.mofile(file.name) if compiled else polib.pofile(file.name)
    except (OSError, ValueError, struct.error) as error:  # UnicodeDecodeError is a ValueError
        raise FormatError(f"{place} is not a gettext catalogue: {error}") from error


def _refuse_unterminated(place: Place, data: bytes) -> None:
    """Raise FormatError for a string without its closing quote, which polib reads without its last character."""
    for number, line in enumerate(data.split(b"\n"), 1):
        string = _KEYWORD.match(line)
        if string and not _WHOLE.fullmatch(line, string.end()):
            raise FormatError(
                f"{place} is not a gettext catalogue: line {number:,} has a string that does not end in a quote, "
                "or has one inside"
            )


def _forms(header: str) -> Forms:
    rule = _PLURAL_RULE.search(header)
    try:
        return gettext.c2py(rule[1].strip() if rule else "n != 1")
    except ValueError:  # a header that nobody filled in: "plural=EXPRESSION"
        return lambda count: 0 if count == 1 else _LAST


def _pairs(entry: polib.POEntry | polib.MOEntry, forms: Forms) -> list[Pair]:
    source = _text(entry.msgid)
    if not entry.msgid_plural:
        return [Pair(source, entry.msgstr)]
    translated = [entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural)]
    if len(translated) < 2:  # one form for all numbers
        return [Pair(source, text) for text in translated]
    last = len(translated) - 1
    one, many = (min(forms(count), last) for count in (1, _MANY))
    return [Pair(source, translated[one]), Pair(_text(entry.msgid_plural), translated[many])]


def _text(msgid: str) -> str:
    return msgid.rpartition(_CONTEXT_END)[2]
