"""Which test sentences a score is about: masks over the rows of an evaluation, and ranges of a number.

Words are known or unknown by the shortlist, never by their spelling: a text may hold the word `[UNK]`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.sieve import column

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Range(NamedTuple):
    """Whole numbers from `low` to `high`, both included; `high` is None where there is no limit."""

    low: int
    high: int | None

    def holds(self, values: IntArray) -> Mask:
        """Where `values` lie in the range."""
        highest = np.iinfo(np.int64).max if self.high is None else self.high
        inside: Mask = (values >= self.low) & (values <= highest)
        return inside


class Words(NamedTuple):
    """What a shortlist says of each sentence."""

    total: IntArray
    unknown: IntArray  # words outside the shortlist
    rarest: IntArray  # largest rank, from 1; shortlist size + 1 if a word is unknown; 0 without words


def look_up(sentences: pa.Array, shortlist: pa.Table) -> Words:
    """Count the words and the unknown words of each sentence, and find the rank of the rarest one."""
    empty = pc.equal(sentences, "").to_numpy(zero_copy_only=False)
    split = pc.split_pattern(sentences, " ")
    lengths = pc.list_value_length(split).to_numpy(zero_copy_only=False)
    outside = shortlist.num_rows
    found = pc.index_in(split.flatten(), value_set=column(shortlist, "word"))
    ranks = pc.fill_null(found, outside).to_numpy().astype(np.int64) + 1
    row = np.repeat(np.arange(len(empty)), lengths)
    rarest = np.zeros(len(empty), np.int64)
    np.maximum.at(rarest, row, ranks)
    unknown = np.bincount(row[ranks > outside], minlength=len(empty))
    return Words(*(np.where(empty, 0, values).astype(np.int64) for values in (lengths, unknown, rarest)))


def without_unknown(source_unknown: IntArray, reference_unknown: IntArray) -> Mask:
    """The No-UNK subset of Table 1: no unknown word in the source, none in the reference."""
    free: Mask = (source_unknown == 0) & (reference_unknown == 0)
    return free


def not_in_training(source_in_training: Mask, reference_in_training: Mask) -> Mask:
    """The test sentences neither side of which stands in the training data."""
    fresh: Mask = ~(source_in_training | reference_in_training)
    return fresh


def bins(bounds: Sequence[int], first: int = 1) -> tuple[Range, ...]:
    """Ranges that end at `bounds`, from `first` on, and one more above the last."""
    lows = (first, *(bound + 1 for bound in bounds))
    return tuple(Range(low, high) for low, high in zip(lows, (*bounds, None), strict=True))


def at_least(bounds: Sequence[int]) -> tuple[Range, ...]:
    """Every value from 1 on, then those above each of `bounds`: Figure 2 read as "at least so long"."""
    return tuple(Range(low, None) for low in (1, *(bound + 1 for bound in bounds)))


def at_most(bounds: Sequence[int]) -> tuple[Range, ...]:
    """The values from 1 to each of `bounds`, then every value: Figure 2 read as "up to so long"."""
    return tuple(Range(1, high) for high in (*bounds, None))
