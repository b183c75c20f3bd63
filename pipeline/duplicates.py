"""Duplicates: a pair whose two sides stood in training already, in any corpus; and boilerplate.

A fold: 128-bit hashes of each shard, then one sort over all of them. For 40 million pairs it needs about
1.5 GB; the chance of a false duplicate among them is 2e-24. Boilerplate is a side that stands beside many different
texts; to count them takes the hashes of both sides, about as much again.
"""

import itertools
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rnnsearch.pipeline.config import DuplicatesConfig
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.sieve import column

_HASHES = pa.schema(
    [pa.field("high", pa.uint64(), nullable=False), pa.field("low", pa.uint64(), nullable=False)]
)
_SIDES = pa.schema(
    [pa.field("source", pa.uint64(), nullable=False), pa.field("target", pa.uint64(), nullable=False)]
)
_ROWS = pa.schema(
    [pa.field("row", pa.int32(), nullable=False), pa.field("reason", pa.string(), nullable=False)],
    metadata={"schema": "duplicates", "version": "2"},
)
DUPLICATE, BOILERPLATE = "duplicate", "boilerplate"
REASONS = (DUPLICATE, f"{BOILERPLATE}_source", f"{BOILERPLATE}_target")


class Duplicates(NamedTuple):
    """For each shard the positions (`row`, ascending) of the pairs to drop, each with its `reason`, one of REASONS."""

    rows: list[pa.Table]


def pair_hashes(pairs: pa.Table, config: DuplicatesConfig) -> pa.Table:
    """Partial step: a hash of (source, target) for each row, in row order, and of each side if they are counted."""
    if config.action == "keep" and config.max_partners is None:
        return _HASHES.empty_table()
    sides = [column(pairs, side) for side in ("source", "target")]
    if config.compare == "normal_form":
        sides = [letters(side) for side in sides]
    texts = [side.to_pylist() for side in sides]
    # U+000A cannot stand in clean text, so it separates without ambiguity.
    digests = b"".join(
        blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
        for source, target in zip(*texts, strict=True)
    )
    halves = np.frombuffer(digests, dtype=">u8").reshape(-1, 2).astype(np.uint64)
    found = pa.Table.from_arrays([pa.array(halves[:, 0]), pa.array(halves[:, 1])], schema=_HASHES)
    if config.max_partners is None:
        return found
    for field, side in zip(_SIDES, texts, strict=True):
        found = found.append_column(field, pa.array(_hashed(side)))
    return found


def find_duplicates(partials: Sequence[pa.Table], config: DuplicatesConfig) -> Duplicates:
    """Merge: a row is a duplicate if an equal pair stands before it, in shard order, then row order.

    A row is boilerplate if its source or target has more than `max_partners` different partners.
    """
    ends = np.cumsum([0, *(partial.num_rows for partial in partials)])
    reason = np.full(ends[-1], -1, np.int8)
    repeats = repeated(*(_joined(partials, name) for name in ("high", "low")))
    if config.max_partners is not None:
        first = np.ones(ends[-1], np.bool_)
        first[repeats] = False
        for place, side in reversed([*enumerate(_SIDES.names, 1)]):
            reason[_crowded(_joined(partials, side), first, config.max_partners)] = place
    if config.action == "drop":
        reason[repeats] = 0
    return Duplicates([_rows(reason[a:b]) for a, b in itertools.pairwise(ends.tolist())])


def _rows(reason: npt.NDArray[np.int8]) -> pa.Table:
    hit = np.flatnonzero(reason >= 0)
    names = pa.array(REASONS, pa.string()).take(pa.array(reason[hit]))
    return pa.Table.from_arrays([pa.array(hit.astype(np.int32)), names], schema=_ROWS)


def _crowded(side: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.bool_]:
    """The rows whose `side` stands in more than `most` different pairs; `first` is one row of each pair."""
    known, counts = np.unique(side[first], return_counts=True)
    return np.isin(side, known[counts > most])


def _hashed(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def repeated(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The positions, ascending, of all but the first of each group of equal (high, low)."""
    order = np.argsort(high)
    ranked = high[order]
    equal = ranked[1:] == ranked[:-1]
    member = np.zeros(len(high), dtype=np.bool_)
    member[1:] |= equal
    member[:-1] |= equal
    group = np.sort(order[member])  # few: only these need the second half compared
    order = np.lexsort((low[group], high[group]))  # stable: in a group, by position
    group = group[order]
    again = (high[group[1:]] == high[group[:-1]]) & (low[group[1:]] == low[group[:-1]])
    return np.sort(group[1:][again])


def _joined(partials: Sequence[pa.Table], name: str) -> npt.NDArray[np.uint64]:
    parts = [partial[name].to_numpy() for partial in partials]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
