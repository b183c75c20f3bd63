import pyarrow as pa
import pytest
from pydantic import ValidationError

from rnnsearch.pipeline.clean import normalize_shard
from rnnsearch.pipeline.config import CleanConfig, HoldoutConfig
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.holdout import candidate_keys, choose_keys, hold_out, key_hash

CONFIG = HoldoutConfig(seed=7, corpus="a", dev=3, test=4)


@pytest.fixture
def corpora(make_pairs) -> list[pa.Table]:
    """Two versions of 40 verses, in shards of 10. Of the first, verse 5 has no target, verse 6 no key."""
    rows = [(f"s{v}", "\u2028" if v == 5 else f"t{v}", None if v == 6 else f"1:{v}") for v in range(40)]
    other = [(f"S{v}", f"T{v}", f"1:{v}") for v in range(40)]
    return [make_pairs(rows[at : at + 10], "a", at) for at in range(0, 40, 10)] + [
        make_pairs(other[at : at + 10], "b", at) for at in range(0, 40, 10)
    ]


def chosen(shards: list[pa.Table], config: HoldoutConfig) -> pa.Table:
    return choose_keys([candidate_keys(shard, config) for shard in shards], config).keys


def lines(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table["corpus"].to_pylist(), table["line"].to_pylist(), strict=True))


def test_the_keys_with_the_smallest_hashes_are_dev_and_the_next_are_test(corpora: list[pa.Table]) -> None:
    usable = ["a:6" if v == 6 else f"1:{v}" for v in range(40) if v != 5]
    ranked = sorted(usable, key=lambda key: key_hash(key, 7))
    keys = chosen(corpora, CONFIG)
    assert keys["key"].to_pylist() == ranked[:7]
    assert keys["split"].to_pylist() == ["dev"] * 3 + ["test"] * 4


def test_the_hash_is_the_same_in_every_process() -> None:
    assert key_hash("1:1:1", 0) == 13479333986055594675
    assert key_hash("1:1:1", 1) != key_hash("1:1:1", 0)


def test_the_choice_depends_neither_on_shards_nor_on_their_order(corpora: list[pa.Table]) -> None:
    keys = chosen(corpora, CONFIG)
    assert chosen(corpora[::-1], CONFIG) == keys
    assert chosen([pa.concat_tables(corpora).unify_dictionaries()], CONFIG) == keys


def test_every_row_goes_to_exactly_one_place(corpora: list[pa.Table]) -> None:
    keys = chosen(corpora, CONFIG)
    parts = [hold_out(shard, CONFIG, keys) for shard in corpora]
    assert sorted(row for held in parts for part in held for row in lines(part)) == sorted(
        row for shard in corpora for row in lines(shard)
    )
    assert sum(held.dev.num_rows for held in parts) == 3
    assert sum(held.test.num_rows for held in parts) == 4


def test_a_chosen_verse_leaves_training_in_every_version(corpora: list[pa.Table]) -> None:
    keys = chosen(corpora, CONFIG)
    parts = [hold_out(shard, CONFIG, keys) for shard in corpora]
    training = {key for held in parts for key in held.train["key"].to_pylist()}
    assert training.isdisjoint(keys["key"].to_pylist())
    assert {corpus for held in parts for corpus in held.dev["corpus"].to_pylist()} == {"a"}
    dropped = [row for held in parts for row in held.dropped.to_pylist()]
    assert {row["corpus"] for row in dropped} == {"b"}
    assert {row["reason"] for row in dropped} == {"held_out"}
    assert len(dropped) == 7


def test_no_chosen_row_is_lost_when_it_is_normalised(corpora: list[pa.Table]) -> None:
    config = HoldoutConfig(corpus="a", dev=20, test=19)  # all that can be had
    keys = chosen(corpora, config)
    for shard in corpora:
        held = hold_out(shard, config, keys)
        assert not any(
            normalize_shard(part, CleanConfig()).dropped.num_rows for part in (held.dev, held.test)
        )


def test_too_few_keys_are_an_error_that_tells_how_many_there_are(corpora: list[pa.Table]) -> None:
    with pytest.raises(TextError, match=r"40 keys .* of corpus 'a', which has 39"):
        chosen(corpora, HoldoutConfig(corpus="a", dev=20, test=20))


def test_a_key_that_stands_twice_is_one_key(make_pairs) -> None:
    shards = [make_pairs([("a", "b", "k"), ("c", "d", "k"), ("e", "f", "j")], "a")] * 2
    config = HoldoutConfig(corpus="a", dev=1, test=1)
    keys = chosen(shards, config)
    assert sorted(keys["key"].to_pylist()) == ["j", "k"]
    assert hold_out(shards[0], config, keys).train.num_rows == 0


def test_a_row_without_a_key_is_chosen_by_its_place(make_pairs) -> None:
    shards = [make_pairs([("a", "b")] * 5, corpus, first) for corpus, first in (("a", 0), ("a", 5), ("b", 0))]
    config = HoldoutConfig(corpus="a", dev=2, test=2)
    keys = chosen(shards, config)
    assert all(key.startswith("a:") for key in keys["key"].to_pylist())
    parts = [hold_out(shard, config, keys) for shard in shards]
    assert [sum(held[at].num_rows for held in parts) for at in range(4)] == [11, 2, 2, 0]


def test_corpora_of_their_own_go_to_dev_and_test_whole(corpora: list[pa.Table]) -> None:
    config = HoldoutConfig(dev_corpora=("a",), test_corpora=("z",))
    keys = chosen(corpora, config)
    assert keys.num_rows == 0
    parts = [hold_out(shard, config, keys) for shard in corpora]
    assert sum(held.dev.num_rows for held in parts) == 40
    assert sum(held.train.num_rows for held in parts) == 40
    assert all(held.test.num_rows == held.dropped.num_rows == 0 for held in parts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dev": 5}, "no corpus to take them from"),
        ({"dev_corpora": ("n",), "test_corpora": ("n", "m")}, "'n' cannot be both dev and test"),
        ({"corpus": "n", "dev": 1, "test_corpora": ("n",)}, "'n' gives"),
    ],
)
def test_a_holdout_that_contradicts_itself_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HoldoutConfig(**settings)
