"""How far a BLEU, or a difference of two, could be chance: resampling of test sentences.

Koehn 2004 (bootstrap) and Riezler and Maxwell 2005 (approximate randomisation). Both work on the sufficient
statistics of `bleu`, so a resample is a sum of rows. Equal arguments give equal numbers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rnnsearch.pipeline.bleu import EvaluationError, scores

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_AT_ONCE = 4_000_000  # draws in memory


class Interval(NamedTuple):
    """The middle 95% of the resampled scores."""

    low: float
    high: float


class Comparison(NamedTuple):
    """A paired test of two systems on the same sentences; differences are first less second, in BLEU."""

    difference: float
    interval: Interval  # of the difference, by the bootstrap
    bootstrap_p: float  # two-sided: how often the resampled difference, centred, is as large
    randomization_p: float  # two-sided, by swapping the two outputs of a sentence


def bootstrap(statistics: IntArray, samples: int, seed: int) -> FloatArray:
    """Scores of `samples` test sets of the same size, drawn from these sentences with replacement."""
    count = len(statistics)
    return scores(_resampled(statistics, samples, seed)) if count else np.zeros(samples)


def interval(resampled: FloatArray) -> Interval:
    """The middle 95% of resampled scores."""
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(float(low), float(high))


def compare(first: IntArray, second: IntArray, samples: int, seed: int) -> Comparison:
    """Test whether two systems differ. Raises EvaluationError unless both scored the same sentences."""
    if first.shape != second.shape or not np.array_equal(first[:, -1], second[:, -1]):
        raise EvaluationError(
            f"{len(first)} and {len(second)} sentences, or other references: compare systems on one test set"
        )
    observed = float(scores(first.sum(axis=0)) - scores(second.sum(axis=0)))
    both = np.concatenate((first, second), axis=1)
    drawn = _resampled(both, samples, seed)
    width = first.shape[1]
    differences = scores(drawn[:, :width]) - scores(drawn[:, width:])
    swapped = _swapped(first, second, samples, seed)
    return Comparison(
        observed,
        interval(differences),
        _share(np.abs(differences - observed) >= abs(observed)),
        _share(np.abs(swapped) >= abs(observed) - 1e-12),
    )


def _share(hits: npt.NDArray[np.bool_]) -> float:
    # The observed value counts as one more sample, so that no p is 0 (Phipson and Smyth 2010).
    return (int(hits.sum()) + 1) / (len(hits) + 1)


def _resampled(statistics: IntArray, samples: int, seed: int) -> IntArray:
    """The summed statistics of each resample."""
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(statistics)
    sums = np.zeros((samples, statistics.shape[1]), np.int64)
    step = max(1, _AT_ONCE // max(count, 1))
    for start in range(0, samples, step):
        rows = generator.integers(count, size=(min(step, samples - start), count))
        offsets = np.arange(len(rows))[:, None] * count
        times = np.bincount((rows + offsets).ravel(), minlength=rows.size).reshape(rows.shape)
        sums[start : start + len(rows)] = np.rint(times.astype(np.float64) @ statistics).astype(np.int64)
    return sums


def _swapped(first: IntArray, second: IntArray, samples: int, seed: int) -> FloatArray:
    """Differences of score where each sentence's two outputs are exchanged at random."""
    generator = np.random.Generator(np.random.PCG64([seed, 1]))
    change = (second - first).astype(np.float64)
    step = max(1, _AT_ONCE // max(len(first), 1))
    found = []
    for start in range(0, samples, step):
        exchanged = generator.integers(2, size=(min(step, samples - start), len(first))).astype(np.float64)
        moved = np.rint(exchanged @ change).astype(np.int64)
        found.append(scores(first.sum(axis=0) + moved) - scores(second.sum(axis=0) - moved))
    return np.concatenate(found)
