"""TMX 1.1 to 1.4, streamed: the segments of two languages of each translation unit."""

from collections.abc import Iterator, Mapping

from rnnsearch.pipeline.config import TmxFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.segment import Segment
from rnnsearch.pipeline.formats.sides import Pair, Sides, Unit, gathered
from rnnsearch.pipeline.formats.xml import END, START, Event, events

_MARKUP = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})  # `hi` marks text, which is kept
NO_SOURCE, NO_TARGET = "no_source", "no_target"


def read_tmx(place: Place, config: TmxFormat, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time; a unit without one of the sides is dropped: `no_source`, `no_target`.

    Raises FormatError on damage, at its line and column, and where no unit has both languages.
    """
    languages: dict[str, int] = {}
    pairs = 0
    for sides in gathered(_units(place, config, longest, languages), rows, longest):
        pairs += len(sides.source)
        yield sides
    if languages and not pairs:
        found = ", ".join(sorted(languages))
        raise FormatError(
            f"{place} has no unit in both {config.source!r} and {config.target!r}; its languages are {found}"
        )


def languages_of(place: Place, units: int) -> list[str]:
    """The languages of the first units, the commonest first."""
    counts: dict[str, int] = {}
    config = TmxFormat(source="-", target="-")
    for number, _ in enumerate(_units(place, config, 1, counts)):
        if number >= units:
            break
    return sorted(counts, key=lambda language: -counts[language])


def _units(place: Place, config: TmxFormat, longest: int, languages: dict[str, int]) -> Iterator[Unit]:
    with opened(place, "tmx") as stream:
        unit: dict[str, str] = {}
        language, segment = "", None
        for event in events(stream, place):
            if segment is not None:
                if segment.take(event):
                    unit.setdefault(language, segment.text)
                    languages[language] = languages.get(language, 0) + 1
                    segment = None
            elif event.kind == START and event.name == "tu":
                unit = {}
            elif event.kind == START and event.name == "tuv":
                language = _language(event)
            elif event.kind == START and event.name == "seg":
                segment = Segment(_MARKUP, longest)
            elif event.kind == END and event.name == "tu":
                yield _pair(unit, config)


def _language(event: Event) -> str:
    given = event.attributes.get("xml:lang") or event.attributes.get("lang") or ""
    return given.lower().replace("_", "-")


def _pair(unit: Mapping[str, str], config: TmxFormat) -> Unit:
    source, target = _side(unit, config.source), _side(unit, config.target)
    if source is None:
        return NO_SOURCE
    return NO_TARGET if target is None else Pair(source, target)


def _side(unit: Mapping[str, str], language: str) -> str | None:
    wanted = language.lower().replace("_", "-")
    if wanted in unit:
        return unit[wanted]
    return next((text for name, text in unit.items() if name.startswith(f"{wanted}-")), None)
