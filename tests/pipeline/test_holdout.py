import pyarrow as pa
import pytest
from pydantic import ValidationError

from rnnsearch.pipeline.clean import normalize_shard
from rnnsearch.pipeline.config import CleanConfig, HoldoutConfig
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.holdout import candidate_keys, choose_keys, hold_out, key_hash
from rnnsearch.pipeline.normal_form import letters

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
    assert {row["partner"] for row in dropped} == {f"a:{row['line']}" for row in dropped}  # the same verses


def test_no_chosen_row_is_lost_when_it_is_normalised(corpora: list[pa.Table]) -> None:
    config = HoldoutConfig(corpus="a", dev=20, test=19)  # all that can be had
    keys = chosen(corpora, config)
    for shard in corpora:
        held = hold_out(shard, config, keys)
        normal = [normalize_shard(part, CleanConfig()).kept for part in (held.dev, held.test)]
        assert not any("" in part[side].to_pylist() for side in ("source", "target") for part in normal)


def test_too_few_keys_are_an_error_that_tells_how_many_there_are(corpora: list[pa.Table]) -> None:
    with pytest.raises(TextError, match=r"40 keys or texts .* of corpus 'a', where 39"):
        chosen(corpora, HoldoutConfig(corpus="a", dev=20, test=20))


def test_a_key_that_stands_twice_is_one_key(make_pairs) -> None:
    shards = [make_pairs([("a", "b", "k"), ("c", "d", "k"), ("e", "f", "j")], "a")] * 2
    config = HoldoutConfig(corpus="a", dev=1, test=1)
    keys = chosen(shards, config)
    assert sorted(keys["key"].to_pylist()) == ["j", "k"]
    assert hold_out(shards[0], config, keys).train.num_rows == 0


REPEATED = HoldoutConfig(seed=3, corpus="a", dev=15, test=15)
SPELLED = ("Oui, c\u2019est l\u2019été {}.", "oui ! c'est L'ÉTÉ {}", "Oui c&apos;est l&amp;apos;été {}")


@pytest.fixture
def repeated(make_pairs) -> list[pa.Table]:
    """Three hundred rows without keys of 100 sources and 90 targets, spelled in three ways, and a second corpus."""
    rows = [
        (f"Yes, s {n % 100}." if n % 2 else f"YES - s {n % 100}", SPELLED[n % 3].format(n % 90))
        for n in range(300)
    ]
    other = [("yes s 7", "autre"), ("another", "oui c'est l'été 8"), ("a third", "un troisième")]
    shards = [make_pairs(rows[at : at + 60], "a", at) for at in range(0, 300, 60)]
    return [*shards, make_pairs(other, "b")]


def sides(table: pa.Table) -> list[tuple[str, str]]:
    forms = (letters(table[side].combine_chunks()).to_pylist() for side in ("source", "target"))
    return list(zip(*forms, strict=True))


def test_no_side_of_a_held_out_text_stands_in_another_part(repeated: list[pa.Table]) -> None:
    parts = [hold_out(shard, REPEATED, chosen(repeated, REPEATED)) for shard in repeated]
    train, dev, test = ([pair for held in parts for pair in sides(held[at])] for at in range(3))
    assert (len(dev), len(test)) == (15, 15)  # as many as were asked for, each text once
    for side in range(2):
        held = [pair[side] for pair in dev + test]
        assert len(set(held)) == 30
        assert not set(held) & {pair[side] for pair in train}
    assert train
    assert {row["reason"] for held in parts for row in held.dropped.to_pylist()} == {"held_out"}
    rows = pa.concat_tables(repeated).unify_dictionaries()
    known = dict(zip(lines(rows), sides(rows), strict=True))
    for held in parts:
        for row in held.dropped.to_pylist():
            corpus, _, line = row["partner"].rpartition(":")
            assert set(known[corpus, int(line)]) & set(known[row["corpus"], row["line"]])


def test_the_choice_of_texts_does_not_depend_on_the_cut_into_shards(
    repeated: list[pa.Table], make_pairs
) -> None:
    keys = chosen(repeated, REPEATED)
    whole = pa.concat_tables(repeated).unify_dictionaries()
    for size in (7, 301):
        cut = [whole.slice(at, size) for at in range(0, whole.num_rows, size)]
        assert chosen(cut[::-1], REPEATED) == keys


def test_what_a_long_shard_leaves_out_decides_nothing(make_pairs) -> None:
    rows = [(f"s {n}", f"t {n % 2_500}") for n in range(3_000)]
    config = HoldoutConfig(corpus="a", dev=3, test=2)
    whole = chosen([make_pairs(rows, "a")], config)
    cut = chosen([make_pairs(rows[at : at + 250], "a", at) for at in range(0, 3_000, 250)], config)
    assert whole == cut


def test_no_two_held_out_texts_share_their_target(make_pairs) -> None:
    shards = [
        make_pairs([(f"s {n}", f"t {n % 12}") for n in range(at, at + 30)], "a", at)
        for at in range(0, 90, 30)
    ]
    config = HoldoutConfig(corpus="a", dev=4, test=4)
    targets = chosen(shards, config)["target"].to_pylist()
    assert len(set(targets)) == len(targets) == 8


def test_one_sentence_in_twenty_rows_is_never_dev_and_test_at_once(make_pairs) -> None:
    shard = make_pairs([("Hello.", "Bonjour.")] * 20 + [("A.", "B."), ("C.", "D.")], "a")
    with pytest.raises(TextError, match="where 3 have text on both sides and share no side"):
        chosen([shard], HoldoutConfig(corpus="a", dev=2, test=2))
    config = HoldoutConfig(corpus="a", dev=1, test=1)
    held = hold_out(shard, config, chosen([shard], config))
    assert (held.dev.num_rows, held.test.num_rows) == (1, 1)
    assert not set(sides(held.train)) & set(sides(held.dev) + sides(held.test))


def test_a_row_whose_key_is_empty_has_none_and_spaces_around_a_key_do_not_count(make_pairs) -> None:
    rows = [(f"s {n}", f"t {n}", "" if n % 2 else f"k{n}") for n in range(20)]
    shards = [make_pairs(rows, "a"), make_pairs([("x", "y", f"\ufeffk{n} \r") for n in range(0, 20, 2)], "b")]
    config = HoldoutConfig(corpus="a", dev=5, test=5)
    keys = chosen(shards, config)
    parts = [hold_out(shard, config, keys) for shard in shards]
    assert [sum(held[at].num_rows for held in parts) for at in (1, 2)] == [5, 5]
    assert parts[1].dropped.num_rows == keys["keyed"].to_pylist().count(True) > 0


def test_a_text_without_letters_is_not_held_out(make_pairs) -> None:
    shard = make_pairs([("...", "a"), ("b", "!"), ("c 1", "d 1"), ("e", "f")], "a")
    keys = chosen([shard], HoldoutConfig(corpus="a", dev=1, test=1))
    assert sorted(keys["key"].to_pylist()) == ["c1", "e"]


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


@pytest.mark.parametrize("edge", ["{}\r", "{} ", "\ufeff{}", " {}\r"])
def test_keys_are_compared_without_byte_order_mark_carriage_return_and_outer_spaces(
    make_pairs, edge: str
) -> None:
    plain = make_pairs([(f"s{v}", f"t{v}", f"1:{v}") for v in range(20)], "a", 0)
    other = make_pairs([(f"S{v} more", f"T{v} more", edge.format(f"1:{v}")) for v in range(20)], "b", 0)
    config = HoldoutConfig(seed=7, corpus="a", dev=5, test=5)
    keys = chosen([plain, other], config)
    held = hold_out(other, config, keys)
    assert (held.train.num_rows, held.dropped.num_rows) == (10, 10)


def test_empty_keys_are_none_and_as_many_rows_are_held_out_as_were_asked_for(make_pairs) -> None:
    rows = [(f"source {v} words", f"target {v} words", "" if v < 60 else f"1:{v}") for v in range(100)]
    pairs = make_pairs(rows, "a", 0)
    config = HoldoutConfig(seed=7, corpus="a", dev=5, test=5)
    held = hold_out(pairs, config, chosen([pairs], config))
    assert (held.dev.num_rows, held.test.num_rows, held.train.num_rows) == (5, 5, 90)
