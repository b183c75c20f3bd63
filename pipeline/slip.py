"""Detection of shifted alignment: ranges of lines whose targets belong to other lines.

The lengths of translations go together. In each window of lines the correlation of the lengths is compared with that
of the source with targets some places off: a stretch slipped where the latter is high and the former is low.
"""

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.sieve import Mask, column

FloatArray = npt.NDArray[np.float64]

WINDOW = 40  # lines
FARTHEST = 10  # places that sides may have slipped
_STEP = 10  # lines from one window to the next
_HIGH, _LOW = 0.7, 0.4  # correlations; of 40 unrelated lines one of 0.7 comes by chance once in 10^7 windows


class Slip(NamedTuple):
    """A stretch of a shard's rows, `first` to `last` both included, whose targets lie `places` further on."""

    first: int
    last: int
    places: int


def find_slips(pairs: pa.Table) -> list[Slip]:
    """The stretches of a shard (one corpus after the other, by line) that slipped, in order."""
    found: list[Slip] = []
    corpora = column(pairs, "corpus").cast(pa.string())
    changes = np.asarray(pc.not_equal(corpora[1:], corpora[:-1]), np.bool_)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), pairs.num_rows]
    lengths = [np.log1p(pc.utf8_length(column(pairs, side)).to_numpy()) for side in ("source", "target")]
    for first, last in itertools.pairwise(bounds):
        slips = _of_corpus(*(side[first:last] for side in lengths))
        found += [Slip(slip.first + first, slip.last + first, slip.places) for slip in slips]
    return found


def slipped_rows(pairs: pa.Table) -> Mask:
    """The rows of a shard that lie in such stretches."""
    rows = np.zeros(pairs.num_rows, np.bool_)
    for slip in find_slips(pairs):
        rows[slip.first : slip.last + 1] = True
    return rows


def _of_corpus(source: FloatArray, target: FloatArray) -> list[Slip]:
    if len(source) < WINDOW:
        return []
    straight = _correlations(source, target, 0)
    best, places = np.full(len(straight), -1.0), np.zeros(len(straight), np.int64)
    for shift in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        moved = _correlations(source, target, shift)
        better = moved > best
        best[better], places[better] = moved[better], shift
    bad = np.flatnonzero((best > _HIGH) & (straight < _LOW))
    found: list[Slip] = []
    for window in bad.tolist():
        first, last = window * _STEP, min(window * _STEP + WINDOW, len(source)) - 1
        if found and found[-1].last >= first - 1 and found[-1].places == places[window]:
            found[-1] = found[-1]._replace(last=last)
        else:
            found.append(Slip(first, last, int(places[window])))
    return found


def _correlations(source: FloatArray, target: FloatArray, shift: int) -> FloatArray:
    """In each window the correlation of the lengths of source i and target i + shift; 0 where either is constant."""
    moved = np.full(len(target), np.nan)
    if shift >= 0:
        moved[: len(target) - shift] = target[shift:]
    else:
        moved[-shift:] = target[:shift]
    there = ~np.isnan(moved)
    x, y = np.where(there, source, 0.0), np.where(there, moved, 0.0)
    count, sx, sy, sxx, syy, sxy = map(_windows, (there.astype(np.float64), x, y, x * x, y * y, x * y))
    spread = (count * sxx - sx * sx) * (count * syy - sy * sy)
    usable = (spread > 1e-9) & (count >= WINDOW // 2)
    found: FloatArray = np.where(
        usable, (count * sxy - sx * sy) / np.sqrt(np.where(usable, spread, 1.0)), 0.0
    )
    return found


def _windows(values: FloatArray) -> FloatArray:
    """The sums of all windows; the last may be shorter."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    starts = np.arange(0, max(1, len(values) - WINDOW + _STEP), _STEP)
    sums: FloatArray = total[np.minimum(starts + WINDOW, len(values))] - total[starts]
    return sums
