"""TSV and CSV, streamed. A row of TSV is a line, and it knows no quotes; CSV quotes as RFC 4180 says."""

import csv
from collections.abc import Iterator, Sequence

from rnnsearch.pipeline.config import TableFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.plain import bounded_lines
from rnnsearch.pipeline.formats.sides import TOO_LONG, Pair, Sides, Unit, gathered

FEW_COLUMNS = "few_columns"
_MOST_COLUMNS = 64  # a row may have so many times the bytes of a side


def read_table(place: Place, config: TableFormat, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time; a row without one of the columns is dropped: `few_columns`.

    Raises FormatError on bad UTF-8, on a header without the columns named, and on quotes of CSV that do not end.
    """
    yield from gathered(_units(place, config, longest), rows, longest)


def _units(place: Place, config: TableFormat, longest: int) -> Iterator[Unit]:
    wanted = [config.source, config.target, *([] if config.key is None else [config.key])]
    with opened(place) as stream:
        lines = bounded_lines(stream, longest * _MOST_COLUMNS)
        table = _tsv(lines, place) if config.format == "tsv" else _csv(lines, place)
        header = any(isinstance(column, str) for column in wanted)
        columns = _columns(_header(table), wanted, place) if header else [_number(c) for c in wanted]
        for row in table:
            if row is None:
                yield TOO_LONG
            elif len(row) <= max(columns):
                yield FEW_COLUMNS
            else:
                yield Pair(*(row[column] for column in columns))


def _tsv(lines: Iterator[bytes | None], place: Place) -> Iterator[Sequence[str] | None]:
    for number, line in enumerate(lines, 1):
        yield None if line is None else _text(line, number, place).removesuffix("\r").split("\t")


class _LongLineError(Exception):
    """A line above the bound; the row that it is part of is dropped."""


def _csv(lines: Iterator[bytes | None], place: Place) -> Iterator[Sequence[str] | None]:
    numbered, number = enumerate(lines, 1), 0

    def texts() -> Iterator[str]:
        nonlocal number
        for number, line in numbered:
            if line is None:
                raise _LongLineError
            yield _text(line, number, place) + "\n"

    while True:
        try:
            yield from csv.reader(texts(), strict=True)
            return
        except _LongLineError:
            yield None  # a new reader goes on after it
        except csv.Error as error:
            raise FormatError(f"{place}: line {number:,} is not CSV: {error}") from error


def _text(line: bytes, number: int, place: Place) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as bad:
        raise FormatError(
            f"{place}: line {number:,} is not UTF-8 at byte {bad.start}: {bad.reason}; convert the file first"
        ) from bad


def _header(table: Iterator[Sequence[str] | None]) -> Sequence[str]:
    for row in table:
        return row or ()
    return ()


def _columns(header: Sequence[str], wanted: Sequence[str | int], place: Place) -> list[int]:
    if lacking := [column for column in wanted if isinstance(column, str) and column not in header]:
        raise FormatError(f"{place} has no column {lacking[0]!r}; its first line has {', '.join(header)}")
    return [header.index(column) if isinstance(column, str) else _number(column) for column in wanted]


def _number(column: str | int) -> int:
    return int(column) - 1
