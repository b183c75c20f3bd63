"""Global batches: windows of 1,600 examples sorted by length, cut into batches of 80 (App. B.2, protocol 2).

The order is a function of the lengths alone, made before anything is shared among workers, so that 1, 2 and
4 workers train on the same batches (protocol trap 20).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rnnsearch.pipeline.schemas import EOS_ID

Rows = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.integer]


class Position(NamedTuple):
    """Where an update stands. All count from 0; the window has the rows `first` … `first + rows - 1`."""

    epoch: int
    window: int
    batch: int
    first: int
    rows: int


class Padded(NamedTuple):
    """Sentences side by side: T words of the longest, `</s>` counted, by B sentences."""

    ids: npt.NDArray[np.int64]  # T x B; 0 on padding
    mask: npt.NDArray[np.bool_]  # T x B; true on words and on `</s>`


def batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    first_position: int = 0,
    batch: int = 80,
    window_batches: int = 20,
) -> Iterator[Rows]:
    """The batches of consecutive examples, as positions; the first example has `first_position`.

    Each window of `batch * window_batches` examples is sorted by the longer side, ties by position, and cut
    into batches, shortest first. The last window may be smaller, and its last batch too. `first_position`
    must begin a window.
    """
    longer = np.maximum(source_lengths, target_lengths)
    for start in range(0, len(longer), batch * window_batches):
        ranked = start + np.argsort(longer[start : start + batch * window_batches], kind="stable")
        for cut in range(0, len(ranked), batch):
            yield first_position + ranked[cut : cut + batch]


def position_of_update(update: int, rows: int, batch: int = 80, window_batches: int = 20) -> Position:
    """Where the update after `update` earlier ones stands, on a training set of `rows` examples.

    Every epoch goes through the same windows: the order was shuffled once (App. B.2).
    """
    if rows <= 0:
        raise ValueError("there is nothing to train on: 0 examples; look at what encode dropped, and why")
    epoch, step = divmod(update, -(-rows // batch))
    window, number = divmod(step, window_batches)
    first = window * batch * window_batches
    return Position(epoch, window, number, first, min(batch * window_batches, rows - first))


def share(batch: Rows, rank: int, world: int) -> Rows:
    """The part of a global batch that worker `rank` of `world` computes.

    Every `world`-th row: a batch is sorted by length, so the parts are of about equal length. Parts differ by
    at most one row, and a part may be empty.
    """
    return batch[rank::world]


def pad(rows: Sequence[npt.NDArray[np.integer]]) -> Padded:
    """Append `</s>` to each row of ids and set the rows side by side."""
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    steps = np.arange(1 + lengths.max(initial=0))
    ids_BT = np.full((len(rows), len(steps)), EOS_ID, dtype=np.int64)
    if len(rows):
        ids_BT[steps < lengths[:, None]] = np.concatenate(rows)
    return Padded(np.ascontiguousarray(ids_BT.T), steps[:, None] <= lengths)
