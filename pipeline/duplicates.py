"""Exact duplicates: a pair whose two sides stood in training already, in any corpus.

A fold: 128-bit hashes of each shard, then one sort over all of them. For 40 million pairs it needs about
1.5 GB; the chance of a false duplicate among them is 2e-24.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rnnsearch.pipeline.sieve import column

_HASHES = pa.schema(
    [pa.field("high", pa.uint64(), nullable=False), pa.field("low", pa.uint64(), nullable=False)]
)
_ROWS = pa.schema([pa.field("row", pa.int32(), nullable=False)])


class Duplicates(NamedTuple):
    """For each shard the positions (`row`, ascending) of the pairs that repeat an earlier one."""

    rows: list[pa.Table]


def pair_hashes(pairs: pa.Table) -> pa.Table:
    """Partial step: a hash of (source, target) for each row, in row order."""
    # U+000A cannot stand in clean text, so it separates without ambiguity.
    digests = b"".join(
        blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
        for source, target in zip(
            column(pairs, "source").to_pylist(), column(pairs, "target").to_pylist(), strict=True
        )
    )
    halves = np.frombuffer(digests, dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return pa.Table.from_arrays([pa.array(halves[:, 0]), pa.array(halves[:, 1])], schema=_HASHES)


def find_duplicates(partials: Sequence[pa.Table]) -> Duplicates:
    """Merge: a row is a duplicate if an equal pair stands before it, in shard order, then row order."""
    sizes = [partial.num_rows for partial in partials]
    high, low = (_joined(partials, name) for name in ("high", "low"))
    repeats = repeated(high, low)
    bounds = np.searchsorted(repeats, np.cumsum([0, *sizes]))
    starts = np.cumsum([0, *sizes])[:-1]
    return Duplicates(
        [
            pa.Table.from_arrays([pa.array((repeats[a:b] - start).astype(np.int32))], schema=_ROWS)
            for a, b, start in zip(bounds[:-1], bounds[1:], starts, strict=True)
        ]
    )


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
