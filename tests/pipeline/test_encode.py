import numpy as np
import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.encode import encode_shard, ids, index, order
from rnnsearch.pipeline.schemas import DROPPED, EOS_ID, EXAMPLES, SHORTLIST, SPECIALS, UNK_ID


def shortlist(*listed: str) -> pa.Table:
    return pa.Table.from_arrays([pa.array(listed, pa.string())], schema=SHORTLIST)


def sentence(length: int) -> str:
    return " ".join(["a"] * length)


SOURCE, TARGET = shortlist("a", "</s>", "[UNK]", "UNK", "last"), shortlist("b", "a")


def test_a_word_of_rank_r_has_id_r_plus_two_and_any_other_is_unknown(make_pairs) -> None:
    kept = encode_shard(make_pairs([("a last lost a", "a b c")]), SOURCE, TARGET, EncodeConfig()).kept
    assert kept.schema.equals(EXAMPLES, check_metadata=True)
    assert kept["source"].to_pylist() == [[2, 6, UNK_ID, 2]]
    assert kept["target"].to_pylist() == [[3, 2, UNK_ID]]


def test_words_that_look_like_special_tokens_have_ids_of_words(make_pairs) -> None:
    # protocol trap 28. In the target, whose list lacks them, they are unknown, and never the end of a sentence.
    kept = encode_shard(make_pairs([("</s> [UNK] UNK", "</s> [UNK]")]), SOURCE, TARGET, EncodeConfig()).kept
    assert kept["source"].to_pylist() == [[3, 4, 5]]
    assert kept["target"].to_pylist() == [[UNK_ID, UNK_ID]]
    assert EOS_ID not in kept["source"].to_pylist()[0]


@pytest.mark.parametrize(
    ("source", "target", "stays"),
    [
        (49, 49, True),
        (50, 50, True),
        (51, 1, False),
        (1, 51, False),
        (51, 51, False),
        (50, 1, True),
        (1, 50, True),
    ],
)
def test_a_pair_is_too_long_when_either_side_exceeds_the_limit(
    make_pairs, source: int, target: int, stays: bool
) -> None:
    pairs = make_pairs([(sentence(source), sentence(target))])
    result = encode_shard(pairs, SOURCE, TARGET, EncodeConfig(max_words=50))
    assert result.kept.num_rows == stays
    assert result.dropped["reason"].to_pylist() == ([] if stays else ["too_long"])


def test_a_side_without_words_is_dropped(make_pairs) -> None:
    pairs = make_pairs([("a", "b"), ("", "b"), ("a", ""), ("a a", "a"), ("a  a", "b")])
    result = encode_shard(pairs, SOURCE, TARGET, EncodeConfig())
    assert result.dropped.schema.equals(DROPPED, check_metadata=True)
    assert dict(
        zip(result.dropped["line"].to_pylist(), result.dropped["reason"].to_pylist(), strict=True)
    ) == {
        1: "empty_source",
        2: "empty_target",
    }
    by_line = dict(zip(result.kept["line"].to_pylist(), result.kept["source"].to_pylist(), strict=True))
    assert by_line == {0: [2], 3: [2, 2], 4: [2, UNK_ID, 2]}


def test_one_sentence_has_the_ids_it_has_in_a_shard(make_pairs) -> None:
    for text in ("a last lost", "", "</s> 10\u00a0000 a"):
        kept = encode_shard(make_pairs([(f"a {text}".strip(), "b")]), SOURCE, TARGET, EncodeConfig()).kept
        assert [2, *ids(text, index(SOURCE))] == kept["source"].to_pylist()[0]
    assert index(SOURCE)["a"] == len(SPECIALS)


def test_a_shard_comes_out_in_the_order_of_its_hashes(make_pairs) -> None:
    kept = encode_shard(make_pairs([("a", "b")] * 200, "x"), SOURCE, TARGET, EncodeConfig()).kept
    hashes = kept["order"].to_pylist()
    assert hashes == sorted(hashes)
    assert sorted(kept["line"].to_pylist()) == list(range(200))


def test_an_examples_place_depends_on_its_identity_and_the_seed_alone(make_pairs) -> None:
    pairs = make_pairs([("a", "b")] * 10, "x", first=5)
    whole = encode_shard(pairs, SOURCE, TARGET, EncodeConfig()).kept
    part = encode_shard(pairs.slice(3, 4), SOURCE, TARGET, EncodeConfig(max_words=1)).kept
    places = dict(zip(whole["line"].to_pylist(), whole["order"].to_pylist(), strict=True))
    assert all(places[row["line"]] == row["order"] for row in part.to_pylist())
    assert encode_shard(pairs, SOURCE, TARGET, EncodeConfig(seed=1)).kept["order"] != whole["order"]
    assert encode_shard(make_pairs([("a", "b")], "y", first=5), SOURCE, TARGET, EncodeConfig()).kept[
        "order"
    ].to_pylist() != [places[5]]


def test_the_hash_is_the_same_in_every_process_and_version() -> None:
    corpus = pa.array(["europarl", "un", "un"]).dictionary_encode()
    line = pa.array([0, 0, 1], pa.int64())
    assert order(corpus, line, 0).to_pylist() == [
        6174728348646850655,
        14809938057961907164,
        9297244694670776301,
    ]


def test_hashes_never_meet_inside_a_corpus_and_are_spread_evenly() -> None:
    lines = 200_000
    corpus = pa.array(["x"] * lines).dictionary_encode()
    hashes = order(corpus, pa.array(np.arange(lines)), 3).to_numpy()
    assert len(np.unique(hashes)) == lines
    # The rank correlation of line and place, and the sixteen first bits, are as chance has them.
    ranks = np.argsort(np.argsort(hashes))
    assert abs(np.corrcoef(ranks, np.arange(lines))[0, 1]) < 0.01
    counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
    assert np.abs(counts - lines / 16).max() < 5 * np.sqrt(lines / 16)


def test_an_empty_shard_stays_one(make_pairs) -> None:
    result = encode_shard(make_pairs([]), SOURCE, TARGET, EncodeConfig())
    assert (result.kept.num_rows, result.dropped.num_rows) == (0, 0)
