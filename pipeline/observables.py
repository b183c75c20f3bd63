"""What can be seen of translations beside their score."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Lengths(NamedTuple):
    """A distribution of lengths: `counts[k]` sentences of k words, the last entry all longer ones too."""

    counts: tuple[int, ...]
    mean: float


class RowSums(NamedTuple):
    """The smallest and largest row sum of an alignment: 1 unless weight lies on padding."""

    low: float
    high: float


def lengths(words: IntArray, longest: int) -> Lengths:
    """Count sentences by their number of words, up to `longest`."""
    counts = np.bincount(np.minimum(words, longest), minlength=longest + 1)
    return Lengths(tuple(counts.tolist()), float(words.mean()) if len(words) else 0.0)


def rate(part: IntArray, whole: IntArray) -> float:
    """The sum of one over the sum of the other; 0 of nothing."""
    total = int(whole.sum())
    return int(part.sum()) / total if total else 0.0


def stutters(tokens: Sequence[str], longest: int = 4) -> int:
    """How many words end a phrase of up to `longest` words that stands twice, side by side."""
    return sum(
        any(
            tokens[end - size : end] == tokens[end - 2 * size : end - size]
            for size in range(1, min(longest, end // 2) + 1)
        )
        for end in range(2, len(tokens) + 1)
    )


def row_sums(weights: FloatArray) -> RowSums:
    """The extreme row sums of a soft alignment; (1, 1) where it has no row."""
    sums = weights.sum(axis=1)
    return RowSums(float(sums.min()), float(sums.max())) if len(sums) else RowSums(1.0, 1.0)


def mean_by_position(rows: Sequence[Sequence[int]], longest: int) -> list[float]:
    """The mean of the k-th values of all rows that have one, for k below `longest`, as far as there are."""
    sums, counts = np.zeros(longest), np.zeros(longest, np.int64)
    for row in rows:
        part = row[:longest]
        sums[: len(part)] += part
        counts[: len(part)] += 1
    reached = int((counts > 0).sum())
    return [float(mean) for mean in sums[:reached] / counts[:reached]]
