"""Rows kept and rows dropped: every stage that drops pairs tells each one's reason, and its partner if it has one."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.schemas import DROPPED

Mask = npt.NDArray[np.bool_]


class Cause(NamedTuple):
    """Where a reason applies, and the partner or threshold that it gives those rows; each has a value for each row."""

    mask: Mask
    partner: pa.Array | None = None  # strings as `places` writes them; None: the reason looks at one row only
    threshold: pa.Array | None = None  # int64, micro-bits


class Sieved(NamedTuple):
    """What passed, in its old order and schema, and what did not (`DROPPED`), in its old order."""

    kept: pa.Table
    dropped: pa.Table


def sieve(rows: pa.Table, reasons: Mapping[str, Mask | Cause]) -> Sieved:
    """Drop each row of `rows` to which a reason applies; a row counts under the first one that holds.

    `rows` has the columns `corpus` and `line`. A mask is true where its reason applies.
    """
    first = _first_reason(rows.num_rows, [_cause(reason).mask for reason in reasons.values()])
    return Sieved(rows.filter(pa.array(first < 0)), _dropped(rows, reasons, first))


def dropped(rows: pa.Table, reasons: Mapping[str, Mask | Cause]) -> pa.Table:
    """What `sieve` would drop: a `DROPPED` table."""
    return _dropped(
        rows, reasons, _first_reason(rows.num_rows, [_cause(reason).mask for reason in reasons.values()])
    )


def places(corpus: pa.Array, line: pa.Array) -> pa.Array:
    """The name of each row, `corpus:line`; null where the line is null."""
    return pc.binary_join_element_wise(corpus.cast(pa.string()), line.cast(pa.string()), ":")


def _cause(reason: Mask | Cause) -> Cause:
    return reason if isinstance(reason, Cause) else Cause(reason)


def _first_reason(rows: int, masks: list[Mask]) -> npt.NDArray[np.int32]:
    """For each row the position of the first mask that is true there, -1 where none is."""
    first = np.full(rows, -1, dtype=np.int32)
    for position, mask in reversed(list(enumerate(masks))):
        first[mask] = position
    return first


def _dropped(rows: pa.Table, reasons: Mapping[str, Mask | Cause], first: npt.NDArray[np.int32]) -> pa.Table:
    """The `DROPPED` table of the rows whose `first` is not negative; it indexes `reasons`."""
    hit, which = pa.array(first >= 0), first[first >= 0]
    reason = pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(list(reasons), pa.string()))
    partner, threshold = pa.nulls(len(which), pa.string()), pa.nulls(len(which), pa.int64())
    for position, cause in enumerate(map(_cause, reasons.values())):
        mine = pa.array(which == position)
        if cause.partner is not None:
            partner = pc.if_else(mine, cause.partner.filter(hit), partner)
        if cause.threshold is not None:
            threshold = pc.if_else(mine, cause.threshold.filter(hit), threshold)
    columns = [
        column(rows, "corpus").filter(hit),
        column(rows, "line").filter(hit),
        reason,
        partner,
        threshold,
    ]
    return pa.Table.from_arrays(columns, schema=DROPPED)


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array: chunks joined, dictionaries unified."""
    chunked = table[name]
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    return chunked.combine_chunks()
