"""Pairs on their way from a file to tables, and the units that were dropped, each with its reason."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

TOO_LONG = "too_long"


class Pair(NamedTuple):
    """One pair as a file has it."""

    source: str
    target: str
    key: str | None = None


class Dropped(NamedTuple):
    """A unit of a file that gives no pair."""

    line: int  # its number in the file, from 0, all units counted
    reason: str


class Sides(NamedTuple):
    """Some pairs: as many sources as targets, and keys where the file has them."""

    source: pa.Array
    target: pa.Array
    key: pa.Array | None = None
    lines: Sequence[int] | None = None  # positions in the corpus, from 0; None: they follow those before
    dropped: Sequence[Dropped] = ()


Unit = Pair | str
"""A unit of a file: a pair, or the reason why it gives none."""


def gathered(units: Iterable[Unit], rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time, numbered by their units.

    A pair with a side above `longest` bytes is dropped: `too_long`.
    """
    pairs: list[Pair] = []
    lines: list[int] = []
    dropped: list[Dropped] = []
    for line, unit in enumerate(units):
        reason = unit if isinstance(unit, str) else too_long(unit, longest)
        if reason is not None:
            dropped.append(Dropped(line, reason))
        elif not isinstance(unit, str):
            pairs.append(unit)
            lines.append(line)
        if len(pairs) == rows or len(dropped) == rows:
            yield as_sides(pairs, lines, dropped)
            pairs, lines, dropped = [], [], []
    if pairs or dropped:
        yield as_sides(pairs, lines, dropped)


def as_sides(pairs: Sequence[Pair], lines: Sequence[int] | None, dropped: Sequence[Dropped]) -> Sides:
    """These pairs as columns."""
    columns = [pa.array([pair[side] for pair in pairs], pa.string()) for side in range(3)]
    return Sides(columns[0], columns[1], columns[2], lines, dropped)


def too_long(pair: Pair, longest: int) -> str | None:
    """The reason to drop a pair with a side above `longest` bytes of UTF-8, else None."""
    return TOO_LONG if max(_bytes(pair.source, longest), _bytes(pair.target, longest)) > longest else None


def _bytes(text: str, longest: int) -> int:
    # No character has more than four bytes: most texts need not be encoded to know that they are short.
    return len(text) if 4 * len(text) <= longest or text.isascii() else len(text.encode())
