"""XML of WMT since 2021: documents with a source and references by named translators, segments by id."""

from collections.abc import Iterator

from rnnsearch.pipeline.config import WmtFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.segment import Segment
from rnnsearch.pipeline.formats.sides import Pair, Sides, Unit, gathered
from rnnsearch.pipeline.formats.tmx import NO_TARGET
from rnnsearch.pipeline.formats.xml import END, START, events

Segments = dict[str, str]  # id -> text


def read_wmt(place: Place, config: WmtFormat, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time, in the order of the source; a segment without reference is dropped.

    Raises FormatError where a document has several references and none is named, or has no such one.
    """
    yield from gathered(_units(place, config, longest), rows, longest)


def _units(place: Place, config: WmtFormat, longest: int) -> Iterator[Unit]:
    with opened(place, "wmt") as stream:
        source: Segments = {}
        references: dict[str, Segments] = {}
        current: Segments | None = None
        segment, number, document = None, "", ""
        for event in events(stream, place):
            if segment is not None:
                if segment.take(event) and current is not None:
                    current[number] = segment.text
                    segment = None
            elif event.kind == START and event.name == "doc":
                source, references, document = {}, {}, event.attributes.get("id", "")
            elif event.kind == START and event.name == "src":
                current = source
            elif event.kind == START and event.name == "ref":
                current = references.setdefault(event.attributes.get("translator", ""), {})
            elif event.kind == END and event.name in ("src", "ref"):
                current = None
            elif event.kind == START and event.name == "seg" and current is not None:
                number, segment = event.attributes.get("id", str(len(current) + 1)), Segment((), longest)
            elif event.kind == END and event.name == "doc":
                chosen = _chosen(place, document, references, config.reference)
                for name, text in source.items():
                    yield Pair(text, chosen[name]) if name in chosen else NO_TARGET


def _chosen(place: Place, document: str, references: dict[str, Segments], name: str) -> Segments:
    if not references:
        raise FormatError(f"{place}: document {document!r} has no reference; take another test set")
    if name in references:
        return references[name]
    if not name and len(references) == 1:
        return next(iter(references.values()))
    found = ", ".join(sorted(references))
    raise FormatError(
        f"{place}: document {document!r} has references by {found}; set `reference` to one of them"
        + (f", not {name!r}" if name else "")
    )
