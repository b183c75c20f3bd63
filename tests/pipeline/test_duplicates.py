import numpy as np
import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import DuplicatesConfig
from rnnsearch.pipeline.duplicates import find_duplicates, pair_hashes, repeated

EXACT = DuplicatesConfig()


def positions(shards: list[pa.Table], config: DuplicatesConfig = EXACT) -> list[list[int]]:
    found = find_duplicates([pair_hashes(shard, config) for shard in shards], config)
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


def test_copies_that_typography_hides_are_found_in_the_normal_form(make_pairs) -> None:
    shard = make_pairs([("It's", "l'été"), ("it’s", "L’ÉTÉ !"), ("its", "l&apos;été"), ("it is", "l'été")])
    assert positions([shard], DuplicatesConfig(compare="normal_form")) == [[1, 2]]
    assert positions([shard]) == [[]]


def test_duplicates_are_kept_if_asked_for(make_pairs) -> None:
    shards = [make_pairs([("a", "b"), ("a", "b")]), make_pairs([("a", "b")])]
    assert positions(shards, DuplicatesConfig(action="keep")) == [[], []]


@pytest.mark.parametrize("action", ["drop", "keep"])
def test_a_side_with_many_partners_is_boilerplate_wherever_it_stands(make_pairs, action: str) -> None:
    config = DuplicatesConfig.model_validate({"max_partners": 2, "action": action})
    shards = [
        make_pairs([("more", "a"), ("more", "b"), ("x", "y"), ("x", "y"), ("x", "z")]),
        make_pairs([("more", "c"), ("p", "top"), ("q", "top"), ("r", "top"), ("x", "y")]),
    ]
    found = find_duplicates([pair_hashes(shard, config) for shard in shards], config)
    again = [(3, "duplicate")] if action == "drop" else []
    later = [(4, "duplicate")] if action == "drop" else []
    assert [[(row["row"], row["reason"]) for row in table.to_pylist()] for table in found.rows] == [
        [(0, "boilerplate_source"), (1, "boilerplate_source"), *again],
        [
            (0, "boilerplate_source"),
            (1, "boilerplate_target"),
            (2, "boilerplate_target"),
            (3, "boilerplate_target"),
            *later,
        ],
    ]


def test_a_duplicate_names_its_first_copy_in_any_shard_and_boilerplate_names_none(make_pairs) -> None:
    shards = [
        make_pairs([("a", "b"), ("a", "c"), ("a", "b")], "x", 10),
        make_pairs([], "x"),
        make_pairs([("a", "c"), ("a", "b"), ("d", "d"), ("d", "d")], "y", 5),
    ]
    mixed = pa.concat_tables([shards[0], shards[2]]).unify_dictionaries()  # a shard of two corpora
    for parts in (shards, [mixed]):
        found = find_duplicates([pair_hashes(part, EXACT) for part in parts], EXACT)
        partners = [partner for table in found.rows for partner in table["partner"].to_pylist()]
        assert partners == ["x:10", "x:11", "x:10", "y:7"]
    config = DuplicatesConfig(max_partners=1)
    found = find_duplicates([pair_hashes(mixed, config)], config)
    assert found.rows[0].to_pylist()[:3] == [
        {"row": 0, "reason": "boilerplate_source", "partner": None},
        {"row": 1, "reason": "boilerplate_source", "partner": None},
        {"row": 2, "reason": "duplicate", "partner": "x:10"},
    ]


def test_no_shards_and_empty_shards_have_no_duplicates(make_pairs) -> None:
    assert positions([]) == []
    assert positions([make_pairs([])]) == [[]]


def test_the_first_row_of_every_group_stays_and_no_other() -> None:
    draw = np.random.default_rng(3)
    # Few values, so that the first halves collide where the second do not.
    high, low = (draw.integers(0, 12, 2000).astype(np.uint64) for _ in range(2))
    seen: dict[tuple[int, int], int] = {}
    expected = []
    for row, pair in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        if seen.setdefault(pair, row) != row:
            expected.append((row, seen[pair]))
    found = repeated(high, low)
    assert list(zip(found.rows.tolist(), found.firsts.tolist(), strict=True)) == expected


def test_positions_do_not_depend_on_the_cut_into_shards(make_pairs) -> None:
    rows = [(f"s{n % 7}", f"t{n % 5}") for n in range(60)]
    whole = positions([make_pairs(rows)])[0]
    cut = positions([make_pairs(rows[at : at + 9]) for at in range(0, 60, 9)])
    assert [row + 9 * shard for shard, part in enumerate(cut) for row in part] == whole
