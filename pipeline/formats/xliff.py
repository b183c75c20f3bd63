"""XLIFF 1.2 and 2.0, streamed: the source and the target of each unit (1.2) or segment (2.0)."""

from collections.abc import Iterator

from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.segment import Segment
from rnnsearch.pipeline.formats.sides import Pair, Sides, Unit, gathered
from rnnsearch.pipeline.formats.tmx import NO_SOURCE, NO_TARGET
from rnnsearch.pipeline.formats.xml import END, START, events

_MARKUP = frozenset(
    {"bpt", "ept", "ph", "it", "x", "bx", "ex", "sub"}
)  # of 1.2; in 2.0 such elements are empty
_UNITS = frozenset({"trans-unit", "segment"})
_ASIDE = frozenset(
    {"alt-trans", "matches", "seg-source", "notes", "glossary"}
)  # texts that are not the unit's own


def read_xliff(place: Place, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time; a unit without a target, or with an empty one, is dropped: `no_target`."""
    yield from gathered(_units(place, longest), rows, longest)


def _units(place: Place, longest: int) -> Iterator[Unit]:
    with opened(place, "xliff") as stream:
        unit: dict[str, str] = {}
        side, segment, aside = "", None, 0
        for event in events(stream, place):
            if segment is not None:
                if segment.take(event):
                    unit[side] = segment.text
                    segment = None
            elif event.name in _ASIDE and event.kind in (START, END):
                aside += 1 if event.kind == START else -1
            elif aside:
                continue
            elif event.kind == START and event.name in _UNITS:
                unit = {}
            elif event.kind == START and event.name in ("source", "target"):
                side, segment = event.name, Segment(_MARKUP, longest)
            elif event.kind == END and event.name in _UNITS:
                yield _pair(unit)


def _pair(unit: dict[str, str]) -> Unit:
    if not unit.get("source"):
        return NO_SOURCE
    return Pair(unit["source"], unit["target"]) if unit.get("target") else NO_TARGET
