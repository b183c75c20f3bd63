import numpy as np
import pyarrow as pa
import pytest

from rnnsearch.pipeline.duplicates import find_duplicates, pair_hashes, repeated


def positions(shards: list[pa.Table]) -> list[list[int]]:
    found = find_duplicates([pair_hashes(shard) for shard in shards])
    return [table["row"].to_pylist() for table in found.rows]


def test_a_pair_counts_as_duplicate_from_its_second_place_on(make_pairs) -> None:
    shards = [
        make_pairs([("a", "b"), ("a", "c"), ("a", "b")], "x"),
        make_pairs([], "x"),
        make_pairs([("b", "a"), ("a", "c"), ("a", "b"), ("d", "d")], "y"),
    ]
    assert positions(shards) == [[2], [], [1, 2]]


@pytest.mark.parametrize(
    ("left", "right"), [(("a b", "c"), ("a", "b c")), (("a", "b"), ("b", "a")), (("A", "b"), ("a", "b"))]
)
def test_pairs_that_differ_are_kept(make_pairs, left: tuple[str, str], right: tuple[str, str]) -> None:
    assert positions([make_pairs([left, right])]) == [[]]


def test_no_shards_and_empty_shards_have_no_duplicates(make_pairs) -> None:
    assert positions([]) == []
    assert positions([make_pairs([])]) == [[]]


def test_the_first_row_of_every_group_stays_and_no_other() -> None:
    draw = np.random.default_rng(3)
    # Few values, so that the first halves collide where the second do not.
    high, low = (draw.integers(0, 12, 2000).astype(np.uint64) for _ in range(2))
    seen: set[tuple[int, int]] = set()
    expected = []
    for row, pair in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        if pair in seen:
            expected.append(row)
        seen.add(pair)
    assert repeated(high, low).tolist() == expected


def test_positions_do_not_depend_on_the_cut_into_shards(make_pairs) -> None:
    rows = [(f"s{n % 7}", f"t{n % 5}") for n in range(60)]
    whole = positions([make_pairs(rows)])[0]
    cut = positions([make_pairs(rows[at : at + 9]) for at in range(0, 60, 9)])
    assert [row + 9 * shard for shard, part in enumerate(cut) for row in part] == whole
