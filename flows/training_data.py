"""Training examples, read from Parquet by position and padded ahead of the network.

A worker holds one window of examples at a time, whatever the size of the corpus.
"""

import queue
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rnnsearch.model.batch import Batch
from rnnsearch.pipeline.batches import batches, pad, position_of_update, share

Ids = npt.NDArray[np.int32]
_COLUMNS = ["source", "target"]
_AHEAD = 8  # batches that wait for the network


class Sides(NamedTuple):
    """Rows of ids of both languages, without `</s>`."""

    source: Sequence[Ids]
    target: Sequence[Ids]

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """These rows side by side, `</s>` appended, as tensors."""
        sides = (pad([side[row] for row in rows]) for side in self)
        return Batch(*(torch.from_numpy(array) for padded in sides for array in padded))


class Shared(NamedTuple):
    """One global batch as a worker sees it."""

    batch: Batch | None  # this worker's part; None where the batch has fewer rows than there are workers
    words: int  # of both languages in the global batch, </s> counted
    cells: int  # positions that they take when the global batch is padded


class Examples:
    """The rows of EXAMPLES shards in their order, each found by its position."""

    def __init__(self, paths: Sequence[Path], shard_rows: Sequence[int] | None = None) -> None:
        """Take the shards in this order. `shard_rows`, where known, spares a look into each of them."""
        if not paths:
            raise ValueError("there is nothing to train on: no shards; look at what encode dropped, and why")
        rows = shard_rows or [pq.read_metadata(path).num_rows for path in paths]
        if len(rows) != len(paths):
            raise ValueError(f"{len(rows)} row counts were given for {len(paths)} shards of examples")
        self._paths = tuple(paths)
        self._starts = (0, *accumulate(rows))
        self._file: tuple[int, pq.ParquetFile, tuple[int, ...]] | None = (
            None  # shard, file, starts of row groups
        )
        self._group: tuple[int, int, pa.Table] | None = (
            None  # shard, row group, its rows: windows may share one
        )

    def __len__(self) -> int:
        """Rows of all shards."""
        return self._starts[-1]

    def read(self, first: int, count: int) -> Sides:
        """The rows `first` … `first + count - 1`."""
        parts = []
        while count > 0:
            shard = bisect_right(self._starts, first) - 1
            part = self._read_group(shard, first - self._starts[shard]).slice(0, count)
            parts.append(part)
            first, count = first + part.num_rows, count - part.num_rows
        return sides(pa.concat_tables(parts))

    def _read_group(self, shard: int, row: int) -> pa.Table:
        """From this row of a shard to the end of its row group."""
        if self._file is None or self._file[0] != shard:
            file = pq.ParquetFile(self._paths[shard])
            groups = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
            starts = (0, *accumulate(groups))
            if starts[-1] != self._starts[shard + 1] - self._starts[shard]:
                expected = self._starts[shard + 1] - self._starts[shard]
                raise ValueError(
                    f"{self._paths[shard]} has {starts[-1]} rows, not {expected}: it was changed"
                )
            self._file = (shard, file, starts)
        _, file, starts = self._file
        group = bisect_right(starts, row) - 1
        if self._group is None or self._group[:2] != (shard, group):
            self._group = (shard, group, file.read_row_group(group, columns=_COLUMNS, use_threads=False))
        return self._group[2].slice(row - starts[group])


def sides(table: pa.Table) -> Sides:
    """The ids of a table with list columns `source` and `target`; no id is copied."""
    return Sides(*(_rows(table[name].combine_chunks()) for name in _COLUMNS))


def shared_batches(
    examples: Examples, first: int, last: int, *, batch: int, window_batches: int, rank: int, world: int
) -> Iterator[Shared]:
    """The global batches of updates `first` … `last - 1`, from 0, as worker `rank` of `world` sees them."""
    window, rows, cuts = None, Sides((), ()), []
    for update in range(first, last):
        position = position_of_update(update, len(examples), batch, window_batches)
        if window != position.first:
            window = position.first
            rows = examples.read(position.first, position.rows)
            source, target = (np.fromiter(map(len, side), np.int64, len(side)) for side in rows)
            cuts = list(batches(source, target, 0, batch, window_batches))
        chosen = cuts[position.batch]
        lengths = [[len(side[row]) + 1 for row in chosen] for side in rows]
        part = share(chosen, rank, world)
        yield Shared(
            batch=rows.batch(part) if len(part) else None,
            words=sum(map(sum, lengths)),
            cells=sum(len(side) * max(side) for side in lengths),
        )


def dev_batches(rows: Sides, batch: int, cells: int) -> list[npt.NDArray[np.int64]]:
    """Rows of dev in batches of similar length, longest first: `batch` sentences, `cells` positions at most.

    A sentence that is longer is alone in its batch. Nothing here depends on the number of workers.
    """
    lengths = np.array([max(map(len, pair)) + 1 for pair in zip(*rows, strict=True)], np.int64)
    cuts: list[npt.NDArray[np.int64]] = []
    ranked = np.argsort(-lengths, kind="stable")
    while len(ranked):
        count = max(1, min(batch, cells // int(lengths[ranked[0]])))
        cuts.append(ranked[:count])
        ranked = ranked[count:]
    return cuts


@contextmanager
def ahead(batches: Iterator[Shared]) -> Iterator[Iterator[Shared]]:
    """The same batches, made by a thread while the network is busy with those before."""
    waiting: queue.Queue[Shared | BaseException | None] = queue.Queue(_AHEAD)
    closed = threading.Event()

    def fill() -> None:
        try:
            for item in batches:
                waiting.put(item)
                if closed.is_set():
                    return
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    def take() -> Iterator[Shared]:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=fill, name="batches", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        closed.set()
        while thread.is_alive():
            with suppress(queue.Empty):
                waiting.get(timeout=0.01)


def _rows(column: pa.Array) -> list[Ids]:
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy()
    return [values[start:end] for start, end in pairwise(offsets)]
