"""Duplicates: a pair whose two sides stood in training already, in any corpus; and boilerplate.

A fold: 128-bit hashes and the place of each row, then one sort over all hashes. For 40 million pairs it needs about
2 GB; the chance of a false duplicate among them is 2e-24. Boilerplate is a side that stands beside many different
texts; to count them takes the hashes of both sides, about as much again.
"""

import itertools
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import DuplicatesConfig
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.schemas import DROPPED
from rnnsearch.pipeline.sieve import column, places

Positions = npt.NDArray[np.int64]

_HASHES = pa.schema(
    [
        pa.field("high", pa.uint64(), nullable=False),
        pa.field("low", pa.uint64(), nullable=False),
        DROPPED.field("corpus"),
        DROPPED.field("line"),
    ]
)
_SIDES = pa.schema(
    [pa.field("source", pa.uint64(), nullable=False), pa.field("target", pa.uint64(), nullable=False)]
)
_ROWS = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("partner", pa.string()),  # corpus:line of the first copy; null for boilerplate
    ],
    metadata={"schema": "duplicates", "version": "3"},
)
DUPLICATE, BOILERPLATE = "duplicate", "boilerplate"
REASONS = (DUPLICATE, f"{BOILERPLATE}_source", f"{BOILERPLATE}_target")


class Duplicates(NamedTuple):
    """For each shard the positions (`row`, ascending) of the pairs to drop, their `reason` (of REASONS), `partner`."""

    rows: list[pa.Table]


class Repeats(NamedTuple):
    """The positions, ascending, of all but the first of each group of equal values, and for each that first one."""

    rows: Positions
    firsts: Positions


def pair_hashes(pairs: pa.Table, config: DuplicatesConfig) -> pa.Table:
    """Partial step: the place and a hash of (source, target) of each row, in order; of each side if counted."""
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
    columns = [pa.array(halves[:, 0]), pa.array(halves[:, 1]), column(pairs, "corpus"), column(pairs, "line")]
    found = pa.Table.from_arrays(columns, schema=_HASHES)
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
        first[repeats.rows] = False
        for place, side in reversed([*enumerate(_SIDES.names, 1)]):
            reason[_crowded(_joined(partials, side), first, config.max_partners)] = place
    if config.action == "drop":
        reason[repeats.rows] = 0
    rows = []
    for begin, end in itertools.pairwise(ends.tolist()):
        here = slice(*np.searchsorted(repeats.rows, (begin, end)))
        hit = np.flatnonzero(reason[begin:end] >= 0)
        partners = pa.nulls(len(hit), pa.string())
        if config.action == "drop":
            copies = pa.array(reason[begin:end][hit] == 0)
            partners = pc.replace_with_mask(partners, copies, _places(partials, ends, repeats.firsts[here]))
        names = pa.array(REASONS, pa.string()).take(pa.array(reason[begin:end][hit]))
        rows.append(pa.Table.from_arrays([pa.array(hit.astype(np.int32)), names, partners], schema=_ROWS))
    return Duplicates(rows)


def _places(partials: Sequence[pa.Table], ends: Positions, positions: Positions) -> pa.Array:
    """The places of these rows of the partials joined; the partials are not joined."""
    shards = np.searchsorted(ends, positions, side="right") - 1
    found = np.empty(len(positions), object)
    for shard in np.unique(shards).tolist():
        mine = shards == shard
        rows = partials[shard].select(["corpus", "line"]).take(pa.array(positions[mine] - ends[shard]))
        found[mine] = places(column(rows, "corpus"), column(rows, "line")).to_numpy(zero_copy_only=False)
    return pa.array(found, pa.string())


def _crowded(side: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.bool_]:
    """The rows whose `side` stands in more than `most` different pairs; `first` is one row of each pair."""
    known, counts = np.unique(side[first], return_counts=True)
    return np.isin(side, known[counts > most])


def _hashed(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def repeated(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Repeats:
    """The positions of all but the first of each group of equal (high, low)."""
    order = np.argsort(high)
    ranked = high[order]
    equal = ranked[1:] == ranked[:-1]
    member = np.zeros(len(high), dtype=np.bool_)
    member[1:] |= equal
    member[:-1] |= equal
    group = np.sort(order[member])  # few: only these need the second half compared
    order = np.lexsort((low[group], high[group]))  # stable: in a group, by position
    group = group[order]
    again = np.zeros(len(group), np.bool_)
    again[1:] = (high[group[1:]] == high[group[:-1]]) & (low[group[1:]] == low[group[:-1]])
    first = group[np.maximum.accumulate(np.where(again, 0, np.arange(len(group))))]
    rows, firsts = group[again], first[again]
    order = np.argsort(rows)
    return Repeats(rows[order], firsts[order])


def _joined(partials: Sequence[pa.Table], name: str) -> npt.NDArray[np.uint64]:
    parts = [partial[name].to_numpy() for partial in partials]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
