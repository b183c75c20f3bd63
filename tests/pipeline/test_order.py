import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.encode import encode_shard
from rnnsearch.pipeline.order import bucket, bucket_count, bucket_slice, ordered
from rnnsearch.pipeline.schemas import EXAMPLES, SHORTLIST

WORDS = pa.Table.from_arrays([pa.array(["a"], pa.string())], schema=SHORTLIST)


@pytest.fixture
def shards(make_pairs) -> list[pa.Table]:
    """Encoded shards of three corpora, one of them empty."""
    pairs = [
        make_pairs([("a", "b")] * n, corpus, first)
        for corpus, n, first in [("x", 50, 0), ("x", 37, 50), ("y", 0, 0), ("a", 21, 9), ("y", 80, 0)]
    ]
    return [encode_shard(part, WORDS, WORDS, EncodeConfig()).kept for part in pairs]


def rows(tables: list[pa.Table]) -> list[tuple[int, str, int]]:
    return [(row["order"], row["corpus"], row["line"]) for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 64])
def test_the_buckets_in_turn_are_one_global_sort(shards: list[pa.Table], buckets: int) -> None:
    tables = [bucket([bucket_slice(shard, b, buckets) for shard in shards]) for b in range(buckets)]
    assert rows(tables) == sorted(rows(shards))
    assert all(table.schema.equals(EXAMPLES, check_metadata=True) for table in tables)


def test_each_bucket_holds_its_range_of_hashes(shards: list[pa.Table]) -> None:
    for b in range(4):
        for value in bucket([bucket_slice(shard, b, 4) for shard in shards])["order"].to_pylist():
            assert value * 4 >> 64 == b


@pytest.mark.parametrize("span", [1, 3, 5])
def test_many_buckets_in_a_pass_are_the_buckets_one_by_one(shards: list[pa.Table], span: int) -> None:
    one_by_one = [bucket([bucket_slice(shard, b, 5) for shard in shards]) for b in range(5)]
    passes = [
        table for first in range(0, 5, span) for table in ordered(shards, first, min(first + span, 5), 5)
    ]
    assert passes == one_by_one


def test_the_order_of_shards_does_not_show(shards: list[pa.Table]) -> None:
    forward = bucket(shards)
    backward = bucket(shards[::-1])
    assert forward.equals(backward)
    assert forward["corpus"].chunk(0).dictionary.to_pylist() == ["a", "x", "y"]


def test_the_ends_of_the_hashes_belong_to_the_first_and_last_bucket(shards: list[pa.Table]) -> None:
    edge = shards[0].slice(0, 2).set_column(2, EXAMPLES.field("order"), pa.array([0, 2**64 - 1], pa.uint64()))
    assert [bucket_slice(edge, b, 3)["order"].to_pylist() for b in range(3)] == [[0], [], [2**64 - 1]]
    middle = edge.set_column(2, EXAMPLES.field("order"), pa.array([2**63 - 1, 2**63], pa.uint64()))
    assert [bucket_slice(middle, b, 2)["order"].to_pylist() for b in range(2)] == [[2**63 - 1], [2**63]]


@pytest.mark.parametrize(("total", "count"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10)])
def test_there_are_as_many_buckets_as_full_shards(total: int, count: int) -> None:
    assert bucket_count(total, EncodeConfig(rows_per_shard=100)) == count


def test_no_rows_make_an_empty_bucket() -> None:
    assert bucket([]).schema.equals(EXAMPLES, check_metadata=True)
