"""The order of training: a global sort by each example's hash, one range of hashes at a time.

Bucket b of B holds the examples whose `order` lies in the b-th of B equal parts of the 64-bit numbers.
Encoded shards are sorted already, so a bucket is a slice of each of them. Memory is a bucket (or as many as
are taken in one pass), never the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.encode import in_order
from rnnsearch.pipeline.schemas import EXAMPLES

_HASHES = 1 << 64


def bucket_count(total_rows: int, config: EncodeConfig) -> int:
    """How many buckets `total_rows` examples make: `rows_per_shard` each, on average."""
    return max(1, ceil(total_rows / config.rows_per_shard))


def bucket_slice(examples: pa.Table, bucket: int, buckets: int) -> pa.Table:
    """The rows of one encoded shard (sorted by `order`) that belong to `bucket`; nothing is copied."""
    return _between(examples, bucket, bucket + 1, buckets)


def bucket(slices: Sequence[pa.Table]) -> pa.Table:
    """One bucket, from its slices of all shards: sorted by (order, corpus, line)."""
    return _compact(in_order(pa.concat_tables([EXAMPLES.empty_table(), *slices]).unify_dictionaries()))


def ordered(shards: Iterable[pa.Table], first: int, last: int, buckets: int) -> Iterator[pa.Table]:
    """The buckets `first` … `last - 1` of `buckets`, in one pass over the encoded shards."""
    slices = [_copied(_between(shard, first, last, buckets)) for shard in shards]
    for number in range(first, last):
        yield bucket([bucket_slice(part, number, buckets) for part in slices])


def _between(examples: pa.Table, first: int, last: int, buckets: int) -> pa.Table:
    hashes = examples["order"].to_numpy()
    start, end = (_position(hashes, edge, buckets) for edge in (first, last))
    return examples.slice(start, end - start)


def _position(hashes: npt.NDArray[np.uint64], edge: int, buckets: int) -> int:
    """How many of the ascending `hashes` lie below the lower edge of the bucket `edge`."""
    bound = -(-edge * _HASHES // buckets)  # rounded up
    return len(hashes) if bound >= _HASHES else int(np.searchsorted(hashes, np.uint64(bound)))


def _copied(examples: pa.Table) -> pa.Table:
    # A slice would keep its whole shard in memory.
    return examples.take(pa.array(np.arange(examples.num_rows)))


def _compact(examples: pa.Table) -> pa.Table:
    """The same rows, the dictionary of corpora sorted and without unused ones, so that bytes are equal."""
    names = examples["corpus"].combine_chunks().cast(pa.string())
    present = pa.array(sorted(set(names.unique().to_pylist())), pa.string())
    codes = pc.index_in(names, value_set=present)
    return examples.set_column(0, EXAMPLES.field("corpus"), pa.DictionaryArray.from_arrays(codes, present))
