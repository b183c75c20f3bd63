"""Rows kept and rows dropped: every stage that drops pairs tells each one's reason."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rnnsearch.pipeline.schemas import DROPPED

Mask = npt.NDArray[np.bool_]


class Sieved(NamedTuple):
    """What passed, in its old order and schema, and what did not (`DROPPED`), in its old order."""

    kept: pa.Table
    dropped: pa.Table


def sieve(rows: pa.Table, reasons: Mapping[str, Mask]) -> Sieved:
    """Drop each row of `rows` to which a reason applies; a row counts under the first one that holds.

    `rows` has the columns `corpus` and `line`. A mask is true where its reason applies.
    """
    first = first_reason(rows.num_rows, list(reasons.values()))
    return Sieved(rows.filter(pa.array(first < 0)), dropped(rows, list(reasons), first))


def first_reason(rows: int, masks: list[Mask]) -> npt.NDArray[np.int32]:
    """For each row the position of the first mask that is true there, -1 where none is."""
    first = np.full(rows, -1, dtype=np.int32)
    for position, mask in reversed(list(enumerate(masks))):
        first[mask] = position
    return first


def dropped(rows: pa.Table, reasons: list[str], first: npt.NDArray[np.int32]) -> pa.Table:
    """The `DROPPED` table of the rows whose `first` is not negative; it indexes `reasons`."""
    hit = pa.array(first >= 0)
    reason = pa.DictionaryArray.from_arrays(
        pa.array(first[first >= 0], pa.int32()), pa.array(reasons, pa.string())
    )
    columns = [column(rows, "corpus").filter(hit), column(rows, "line").filter(hit), reason]
    return pa.Table.from_arrays(columns, schema=DROPPED)


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array: chunks joined, dictionaries unified."""
    chunked = table[name]
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    return chunked.combine_chunks()
