"""JSON Lines, streamed: an object a line, sides by key."""

import json
from collections.abc import Iterator
from typing import Any

from rnnsearch.pipeline.config import JsonLinesFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.plain import bounded_lines
from rnnsearch.pipeline.formats.sides import TOO_LONG, Pair, Sides, Unit, gathered
from rnnsearch.pipeline.formats.tmx import NO_SOURCE, NO_TARGET

_MOST_SIDES = 64  # a line may have so many times the bytes of a side


def read_json_lines(place: Place, config: JsonLinesFormat, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time; a line without one of the sides is dropped: `no_source`, `no_target`.

    Raises FormatError on a line that is not a JSON object, and where no line has both sides.
    """
    pairs = units = 0
    for sides in gathered(_units(place, config, longest), rows, longest):
        pairs += len(sides.source)
        units += len(sides.source) + len(sides.dropped)
        yield sides
    if units and not pairs:
        raise FormatError(
            f"{place} has no line with {config.source!r} and {config.target!r}; set source and target"
        )


def _units(place: Place, config: JsonLinesFormat, longest: int) -> Iterator[Unit]:
    with opened(place) as stream:
        for number, line in enumerate(bounded_lines(stream, longest * _MOST_SIDES), 1):
            if line is None:
                yield TOO_LONG
            elif line.strip():
                yield _unit(_object(line, number, place), config)


def _object(line: bytes, number: int, place: Place) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise FormatError(f"{place}: line {number:,} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{place}: line {number:,} is a {type(found).__name__}, not an object")
    return found


def _unit(found: dict[str, Any], config: JsonLinesFormat) -> Unit:
    source, target = value_at(found, config.source), value_at(found, config.target)
    if source is None:
        return NO_SOURCE
    if target is None:
        return NO_TARGET
    return Pair(source, target, value_at(found, config.key) if config.key else None)


def value_at(found: Any, path: str) -> str | None:
    """The text under a key, or under a path of keys joined by dots; None where there is none."""
    if isinstance(found, dict) and isinstance(found.get(path), str):
        return _whole(found[path])
    first, dot, rest = path.partition(".")
    return value_at(found.get(first), rest) if dot and isinstance(found, dict) else None


def _whole(text: str) -> str | None:
    """The text, None where it has half a surrogate pair, which JSON can write and UTF-8 cannot."""
    return text if not any("\ud800" <= character <= "\udfff" for character in text) else None
