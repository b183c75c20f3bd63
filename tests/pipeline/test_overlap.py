import random

import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import LeakageConfig
from rnnsearch.pipeline.leakage import evaluation_sentences, gather_sentences
from rnnsearch.pipeline.normal_form import normal_forms
from rnnsearch.pipeline.overlap import OVERLAP, find_overlap, in_training, sum_overlap

LONG = "one two three four five six seven eight"
TEST = [("Yes.", "Oui !"), (LONG, "un deux trois"), ("never said", "jamais dit")]


@pytest.fixture
def sentences(make_pairs) -> pa.Table:
    return gather_sentences([evaluation_sentences(make_pairs(TEST, "test"))]).sentences


def found(shards: list[pa.Table], sentences: pa.Table, least: int = 8) -> list[tuple[object, ...]]:
    config = LeakageConfig(near_copy_words=least)
    table = sum_overlap([find_overlap(shard, sentences, config) for shard in shards]).overlap
    assert table.schema.equals(OVERLAP, check_metadata=True)
    return [tuple(row.values()) for row in table.to_pylist()]


def test_copies_are_counted_with_their_first_place(make_pairs, sentences: pa.Table) -> None:
    shards = [
        make_pairs([("a", "b"), ("YES", "non"), ("yes", "x")], "c", 5),
        make_pairs([("yes !", "oui")], "b"),
    ]
    assert found(shards, sentences) == [
        ("source", "yes", 1, False, 3, "b", 0),
        ("target", "oui", 1, False, 1, "b", 0),
    ]
    assert found(shards[::-1], sentences) == found(shards, sentences)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (LONG.replace("four", "fore"), True),  # a word changed,
        (LONG + " nine", True),  # added at the end,
        ("zero " + LONG, True),  # at the start,
        (LONG.replace(" five", " and five"), True),  # inside
        (LONG.replace("one", "ONE") + " !", False),  # an exact copy is no near one
        (LONG.replace("four", "fore").replace("six", "sex"), False),
        (" ".join(reversed(LONG.split())), False),
        (LONG.replace("four five", "five four"), False),  # two words changed places
        (LONG.removeprefix("one two "), False),
        ("", False),
    ],
)
def test_a_near_copy_differs_in_one_word(make_pairs, sentences: pa.Table, text: str, near: bool) -> None:
    rows = found([make_pairs([(text, "x")])], sentences)
    assert [row[4] for row in rows if row[3]] == ([1] if near else [])


def test_a_near_copy_that_lacks_a_word_may_be_one_word_short_of_the_bound(
    make_pairs, sentences: pa.Table
) -> None:
    shorter = [make_pairs([(LONG.replace(" three", ""), "x")])]
    assert [row[3] for row in found(shorter, sentences, least=7)] == [True]
    assert found(shorter, sentences, least=8) == []
    assert found(shorter, sentences, least=0) == []


def test_near_copies_are_those_that_comparing_every_pair_finds(make_pairs) -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choice("abc") for _ in range(draw.randint(4, 6))) for _ in range(120)]
    tests = gather_sentences(
        [evaluation_sentences(make_pairs([(text, "t") for text in texts[:40]]))]
    ).sentences
    training = make_pairs([(text, "u") for text in texts[40:]])
    known = [row["spaced"].split() for row in tests.to_pylist() if row["side"] == "source"]
    expected: dict[str, int] = {}
    for text in texts[40:]:
        ours = text.split()
        for theirs in known:
            if ours != theirs and _one_apart(ours, theirs):
                expected["".join(theirs)] = expected.get("".join(theirs), 0) + 1
    rows = found([training], tests, least=4)
    assert {row[1]: row[4] for row in rows if row[3]} == expected
    assert expected


def _one_apart(ours: list[str], theirs: list[str]) -> bool:
    if len(ours) == len(theirs):
        return sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1
    shorter, longer = sorted((ours, theirs), key=len)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


def test_only_exact_copies_stand_in_training(make_pairs, sentences: pa.Table) -> None:
    shards = [make_pairs([(LONG.replace("six", "sex"), "Oui"), ("yes", "z")])]
    overlap = sum_overlap([find_overlap(shard, sentences, LeakageConfig()) for shard in shards]).overlap
    sides = [
        in_training(pa.array([pair[side] for pair in TEST]), overlap, name)
        for side, name in enumerate(("source", "target"))
    ]
    assert [mask.tolist() for mask in sides] == [[True, False, False], [True, False, False]]


def test_scripts_without_spaces_are_compared_by_their_characters(make_pairs) -> None:
    test = gather_sentences([evaluation_sentences(make_pairs([("今天天气很好我们去公园", "x")]))]).sentences
    rows = found([make_pairs([("今天天气真好，我们去公园。", "y")])], test)
    assert [row[3] for row in rows] == [True]
    assert normal_forms(pa.array(["今天"])).spaced.to_pylist() == ["今 天"]


def test_no_training_and_no_test_set_have_no_overlap(make_pairs, sentences: pa.Table) -> None:
    assert found([], sentences) == []
    assert found([make_pairs([])], sentences) == []
    assert found([make_pairs([("Yes.", "x")])], sentences.slice(0, 0)) == []
