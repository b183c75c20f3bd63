"""Events of an XML file, streamed by expat. No entity of a document type is ever expanded, and none is loaded."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple
from xml.parsers import expat

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place

_BLOCK = 1 << 16  # bytes

START, END, TEXT = "start", "end", "text"


class Event(NamedTuple):
    """The beginning of an element, its end, or text inside it."""

    kind: str
    name: str  # of the element without its prefix; the text itself for text
    attributes: Mapping[str, str] = {}
    line: int = 0  # from 1


def events(stream: BinaryIO, place: Place) -> Iterator[Event]:
    """The events of a file in their order. Raises FormatError at a line and column."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    found: list[Event] = []

    def refuse(name: str, *_: object) -> None:
        raise FormatError(
            f"{place}: line {parser.CurrentLineNumber:,}, column {parser.CurrentColumnNumber + 1}: the entity "
            f"{name!r} comes from a document type; such entities are not expanded. Write the character itself"
        )

    parser.StartElementHandler = lambda name, attributes: found.append(
        Event(START, name.rpartition(":")[2], attributes, parser.CurrentLineNumber)
    )
    parser.EndElementHandler = lambda name: found.append(
        Event(END, name.rpartition(":")[2], {}, parser.CurrentLineNumber)
    )
    parser.CharacterDataHandler = lambda text: found.append(Event(TEXT, text))
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    try:
        while block := stream.read(_BLOCK):
            parser.Parse(block, False)
            yield from found
            found.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise FormatError(
            f"{place} is damaged at line {error.lineno:,}, column {error.offset + 1}: "
            f"{expat.ErrorString(error.code)}"
        ) from error
    yield from found
