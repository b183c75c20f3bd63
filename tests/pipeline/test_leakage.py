import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import LeakageConfig
from rnnsearch.pipeline.errors import LeakageError
from rnnsearch.pipeline.leakage import evaluation_sentences, gate_dev, gate_shard, gather_sentences


def repeats(*rows: int, reason: str = "duplicate", partner: str | None = None) -> pa.Table:
    return pa.table(
        {
            "row": pa.array(rows, pa.int32()),
            "reason": pa.array([reason] * len(rows), pa.string()),
            "partner": pa.array([partner] * len(rows), pa.string()),
        }
    )


NONE = repeats()


@pytest.fixture
def sentences(make_pairs) -> pa.Table:
    dev = make_pairs([("The cat sat down.", "Le chat s'est assis."), ("Amen.", "Amen !")], "dev")
    test = make_pairs(
        [("Four words are enough", "Quatre mots, cela suffit"), ("The cat sat down!", "Non.")], "test"
    )
    return gather_sentences([evaluation_sentences(dev), evaluation_sentences(test)]).sentences


TRAINING = [
    ("a", "b"),
    ("THE CAT—SAT “down”", "x y z w"),  # case, dashes and quotes hide nothing
    ("a", "b"),
    ("x", "le chat s’est assis"),
    ("Amen", "Amen"),  # too short to be a leak
    ("Four words are enough", "Quatre mots cela suffit"),
    ("The cat sat down on it.", "Le chat s'est assis dessus."),
    ("Le chat s'est assis.", "The cat sat down."),  # each side is compared with its own
]


def test_duplicates_go_first_then_leaks_by_their_side(make_pairs, sentences: pa.Table) -> None:
    rows = repeats(2)
    result = gate_shard(make_pairs(TRAINING), rows, sentences, LeakageConfig())
    assert result.kept["line"].to_pylist() == [0, 4, 6, 7]
    reasons = dict(zip(result.dropped["line"].to_pylist(), result.dropped["reason"].to_pylist(), strict=True))
    assert reasons == {1: "leaked_source", 2: "duplicate", 3: "leaked_target", 5: "leaked_source"}
    assert result.leaks["line"].to_pylist() == [1, 3, 5]


def test_a_duplicate_names_its_first_copy_and_a_leak_the_first_dev_or_test_row_of_its_text(
    make_pairs, sentences: pa.Table
) -> None:
    result = gate_shard(make_pairs(TRAINING), repeats(2, partner="c:0"), sentences, LeakageConfig())
    partners = {row["line"]: row["partner"] for row in result.dropped.to_pylist()}
    assert partners == {
        1: "dev:0",
        2: "c:0",
        3: "dev:0",
        5: "test:0",
    }  # of a text in both: dev is before test
    assert result.leaks["partner"].to_pylist() == ["dev:0", "dev:0", "test:0"]
    assert set(result.dropped["threshold"].to_pylist()) == {None}


def test_the_first_place_of_a_sentence_does_not_depend_on_shards_or_spellings(make_pairs) -> None:
    shards = [
        make_pairs([("l e a k s", "x"), ("leaks", "y")], "b", 8),
        make_pairs([("Leaks!", "z")], "b", 3),
        make_pairs([("leaks", "w")], "c", 1),
    ]
    partials = [evaluation_sentences(shard) for shard in shards]
    for order in (partials, partials[::-1]):
        found = gather_sentences([gather_sentences(order[:2]).sentences, order[2]]).sentences.to_pylist()
        leak = next(row for row in found if row["text"] == "leaks")
        assert (leak["corpus"], leak["line"], leak["words"]) == ("b", 3, 5)


def test_report_keeps_the_leaks_and_tells_them(make_pairs, sentences: pa.Table) -> None:
    dropping = gate_shard(make_pairs(TRAINING), NONE, sentences, LeakageConfig())
    result = gate_shard(make_pairs(TRAINING), NONE, sentences, LeakageConfig(action="report"))
    assert result.kept.num_rows == len(TRAINING)
    assert result.dropped.num_rows == 0
    assert result.leaks == dropping.leaks
    assert result.leaks.to_pylist() == dropping.dropped.to_pylist()


def test_stop_raises_with_counts_and_places(make_pairs, sentences: pa.Table) -> None:
    config = LeakageConfig(action="stop")
    with pytest.raises(
        LeakageError, match=r"3 training pairs .*leaked_source: 2, leaked_target: 1.* c line 1; c line 3"
    ):
        gate_shard(make_pairs(TRAINING), NONE, sentences, config)
    assert gate_shard(make_pairs(TRAINING[:1]), NONE, sentences, config).kept.num_rows == 1


def test_a_duplicate_is_no_leak_as_well(make_pairs, sentences: pa.Table) -> None:
    rows = repeats(1)
    result = gate_shard(make_pairs([("Four words are enough", "x")] * 2), rows, sentences, LeakageConfig())
    assert result.leaks["line"].to_pylist() == [0]


def test_boilerplate_goes_for_its_own_reason(make_pairs, sentences: pa.Table) -> None:
    rows = repeats(0, reason="boilerplate_target")
    result = gate_shard(make_pairs(TRAINING[:3]), rows, sentences, LeakageConfig())
    assert result.dropped["reason"].to_pylist() == ["boilerplate_target", "leaked_source"]


@pytest.mark.parametrize(("minimum", "leaks"), [(4, 1), (5, 0), (1, 1)])
def test_a_sentence_of_the_least_number_of_words_is_a_leak(
    make_pairs, sentences: pa.Table, minimum: int, leaks: int
) -> None:
    config = LeakageConfig(minimum_words=minimum)
    pairs = make_pairs([("Four words are enough", "x")])
    assert gate_shard(pairs, NONE, sentences, config).leaks.num_rows == leaks


def test_evaluation_sentences_do_not_depend_on_the_order_of_shards(make_pairs) -> None:
    shards = [make_pairs([("a b", "c"), ("d", "e")]), make_pairs([("A, b", "f")]), make_pairs([])]
    partials = [evaluation_sentences(shard) for shard in shards]
    merged = gather_sentences(partials).sentences
    assert merged == gather_sentences(partials[::-1]).sentences
    first = {"side": "source", "text": "ab", "spaced": "a b", "words": 2, "corpus": "c", "line": 0}
    assert merged.to_pylist()[0] == first
    assert gather_sentences([]).sentences.num_rows == 0


def test_the_spelling_with_more_words_decides_whether_a_sentence_is_long_enough(make_pairs) -> None:
    for rows in ([("l e a k s", "x"), ("leaks", "y")], [("leaks", "y"), ("l e a k s", "x")]):
        dev = gather_sentences([evaluation_sentences(make_pairs(rows))]).sentences
        assert (
            gate_shard(make_pairs([("leaks", "z")]), NONE, dev, LeakageConfig(minimum_words=5)).leaks.num_rows
            == 1
        )


def test_a_test_sentence_spelled_in_another_way_is_still_a_leak(make_pairs) -> None:
    test = make_pairs(
        [("It is summer 2014 now", "C'est l'été, enfin !"), ("今天天气很好，我们去公园吧。", "x")]
    )
    sentences = gather_sentences([evaluation_sentences(test)]).sentences
    rows = [
        ("a", "c&apos;est l&amp;apos;été enfin"),
        ("a", "C ’ EST L ‘ ÉTÉ … ENFIN"),
        ("it is summer ２０１４ now", "b"),
        ("今天 天气 很好 我们 去 公园 吧", "b"),
        ("It is summer 2015 now", "b"),  # digits count
    ]
    assert gate_shard(make_pairs(rows), NONE, sentences, LeakageConfig()).leaks["line"].to_pylist() == [
        0,
        1,
        2,
        3,
    ]


DEV = [
    ("The cat sat down", "a"),
    ("b", "QUATRE MOTS CELA SUFFIT"),
    ("", "c"),
    ("d", ""),
    ("Amen.", "Amen !"),
    ("a dev sentence of its own", "une phrase à elle"),
]


def test_a_dev_pair_that_is_empty_or_stands_in_the_test_set_leaves_dev(
    make_pairs, sentences: pa.Table
) -> None:
    result = gate_dev(make_pairs(DEV), sentences, LeakageConfig())
    assert result.kept["line"].to_pylist() == [4, 5]
    assert result.dropped["reason"].to_pylist() == [
        "test_source",
        "test_target",
        "empty_source",
        "empty_target",
    ]
    assert result.dropped["partner"].to_pylist() == ["dev:0", "test:0", None, None]
    reported = gate_dev(make_pairs(DEV), sentences, LeakageConfig(action="report"))
    assert reported.kept["line"].to_pylist() == [0, 1, 4, 5]
    with pytest.raises(LeakageError, match=r"2 dev pairs of this shard are test sentences \(test_source: 1"):
        gate_dev(make_pairs(DEV), sentences, LeakageConfig(action="stop"))


def test_a_sentence_without_letters_is_never_a_leak(make_pairs) -> None:
    dev = gather_sentences([evaluation_sentences(make_pairs([("...", "- - - -")]))]).sentences
    result = gate_shard(make_pairs([("!!!", "????")]), NONE, dev, LeakageConfig(minimum_words=1))
    assert result.leaks.num_rows == 0
