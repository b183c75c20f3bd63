"""Two files of one sentence a line (architecture 5).

Lines end at U+000A and nowhere else: U+2028, U+0085 and a lone carriage return are text, or else the two
sides lose step (PAPER trap 25). Bytes are decoded strictly.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.sides import TOO_LONG, Dropped, Sides

_SKIP = 1 << 20  # bytes of an overlong line that are passed over at a time


def read_plain(places: Sequence[Place], rows: int, longest: int) -> Iterator[Sides]:
    """The pairs of at most `rows` lines at a time: of source, target and perhaps key.

    A pair with a line above `longest` bytes is dropped. Raises FormatError on bad UTF-8 and on files of unequal
    length.
    """
    with ExitStack() as stack:
        files = [bounded_lines(stack.enter_context(opened(place)), longest) for place in places]
        line = 0
        while True:
            parts = [list(islice(file, rows)) for file in files]
            if len({len(part) for part in parts}) > 1:
                counts = [line + len(part) + _rest(file) for part, file in zip(parts, files, strict=True)]
                found = ", ".join(
                    f"{_label(place)} has {n:,}" for place, n in zip(places, counts, strict=True)
                )
                raise FormatError(
                    f"{places[0].path}: unequal numbers of lines, so they cannot be pairs: {found}"
                )
            if not parts[0]:
                return
            yield _kept(
                [_decoded(part, place, line) for part, place in zip(parts, places, strict=True)], line
            )
            line += len(parts[0])


def bounded_lines(stream: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """The lines without their U+000A, None for one above `longest` bytes, which is never in memory whole."""
    while line := stream.readline(longest + 1):
        if line.endswith(b"\n"):
            yield line[:-1]
        elif len(line) <= longest:
            yield line  # the last one
        else:
            while (more := stream.readline(_SKIP)) and not more.endswith(b"\n"):
                pass
            yield None


def decoded(lines: Sequence[bytes | None], path: Path, name: str, first: int) -> pa.Array:
    """The lines as text, null where a line is None. Raises FormatError naming the line (from 1) that is not UTF-8."""
    return _decoded(lines, Place(path, name), first)


def _decoded(lines: Sequence[bytes | None], place: Place, first: int) -> pa.Array:
    try:
        return pa.array(lines, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        for number, line in enumerate(lines, first + 1):
            try:
                (line or b"").decode()
            except UnicodeDecodeError as bad:
                raise FormatError(
                    f"{place.path}: line {number:,} of {_label(place)} is not UTF-8 at byte {bad.start}: "
                    f"{bad.reason}; convert the file to UTF-8 first"
                ) from error
        raise


def _kept(columns: list[pa.Array], first: int) -> Sides:
    rows = len(columns[0])
    if not any(column.null_count for column in columns):
        return _sides(columns, range(first, first + rows), ())
    whole = [all(column[row].is_valid for column in columns) for row in range(rows)]
    kept = [column.filter(pa.array(whole)) for column in columns]
    lines = [first + row for row, good in enumerate(whole) if good]
    return _sides(kept, lines, [Dropped(first + row, TOO_LONG) for row, good in enumerate(whole) if not good])


def _sides(columns: list[pa.Array], lines: Sequence[int], dropped: Sequence[Dropped]) -> Sides:
    source, target, *key = columns
    return Sides(source, target, key[0] if key else None, lines, dropped)


def _label(place: Place) -> str:
    return repr(place.name or place.path.name)


def _rest(lines: Iterator[bytes | None]) -> int:
    return sum(1 for _ in lines)
