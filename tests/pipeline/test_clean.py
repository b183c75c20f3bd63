import random
import unicodedata

import pyarrow as pa
import pytest

from rnnsearch.pipeline.clean import Cleaned, clean_shard, normalize, normalize_shard, normalized
from rnnsearch.pipeline.config import CleanConfig, FilterConfig, LanguagesConfig
from rnnsearch.pipeline.schemas import DROPPED, PAIRS

NBSP = "\u00a0"


def cleaned(pairs: pa.Table, filters: FilterConfig | None = None) -> Cleaned:
    return clean_shard(
        pairs, CleanConfig(), filters or FilterConfig(), LanguagesConfig(source="en", target="fr")
    )


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (
            "a\u2028b\r c\x85d",
            "a b c d",
        ),  # protocol trap 25: one line, whatever other systems call a line end
        ("a\tb\x0bc\x00d", "a b c d"),
        ("\ufeffThe\u200b cat", "The cat"),  # invisible characters vanish, they part no word
        ("co\u00adopération", "coopération"),
        ("e\u0301te\u0301", "été"),  # NFC
        ("e\u200b\u0301", "é"),
        ("\u212b", "Å"),
        ("  a   b  ", "a b"),
        ("a\u3000b\u2003c", "a b c"),
        (f"10{NBSP}000 euros", f"10{NBSP}000 euros"),  # protocol trap 26: kept here, decided by the tokeniser
        ("10\u202f000", f"10{NBSP}000"),
        (f"Quoi{NBSP}? «{NBSP}Non{NBSP}»", f"Quoi{NBSP}? «{NBSP}Non{NBSP}»"),
        (f"a{NBSP} b{NBSP}{NBSP}c", f"a b{NBSP}c"),  # beside a common space it is one
        (f"{NBSP}a{NBSP}", "a"),
        ("c’est “bon”", "c’est “bon”"),
        ("a ||| b", "a ||| b"),  # protocol trap 30: no character joins the sides
        ("</s> UNK [UNK]", "</s> UNK [UNK]"),
        ("\u2066\ufeff\u2069", ""),
        ("ok\ufffd \U0001f600", "ok\ufffd \U0001f600"),
    ],
)
def test_text_is_normalised_by_the_stated_rules(raw: str, clean: str) -> None:
    assert normalize(raw, CleanConfig()) == clean
    assert normalize(clean, CleanConfig()) == clean


def test_straight_quotes_are_made_only_when_asked_for() -> None:
    assert normalize("l’«eau» “x” ‘y’", CleanConfig(straight_quotes=True)) == "l'«eau» \"x\" 'y'"
    assert normalize("l’eau", CleanConfig()) == "l’eau"


def test_without_normalisation_only_outer_spaces_go() -> None:
    assert normalize(" a\u2028  b ", CleanConfig(normalize=False)) == "a\u2028  b"


def test_a_pair_without_text_is_dropped_for_its_first_empty_side(make_pairs) -> None:
    pairs = make_pairs([("a", "b"), ("", "b"), ("a", "\ufeff \u2029"), ("", ""), (" c ", "d")], first=10)
    result = cleaned(pairs)
    assert result.kept.schema.equals(PAIRS, check_metadata=True)
    assert result.dropped.schema.equals(DROPPED, check_metadata=True)
    assert result.kept.select(["line", "source"]).to_pylist() == [
        {"line": 10, "source": "a"},
        {"line": 14, "source": "c"},
    ]
    assert result.dropped.drop_columns(["partner", "threshold"]).to_pylist() == [
        {"corpus": "c", "line": 11, "reason": "empty_source"},
        {"corpus": "c", "line": 12, "reason": "empty_target"},
        {"corpus": "c", "line": 13, "reason": "empty_source"},
    ]


def test_dev_and_test_are_normalised_as_training_is_and_keep_every_row(make_pairs) -> None:
    pairs = make_pairs([("a\u2028b", "c"), ("", "d"), ("e", " ")])
    kept = normalize_shard(pairs, CleanConfig()).kept
    assert kept.slice(0, 1) == cleaned(pairs).kept
    assert kept["line"].to_pylist() == [0, 1, 2]
    assert (kept["source"].to_pylist(), kept["target"].to_pylist()) == (["a b", "", "e"], ["c", "d", ""])


def test_a_pair_is_dropped_for_the_first_filter_that_holds_and_empty_sides_come_first(make_pairs) -> None:
    pairs = make_pairs([("a b c", "d e f"), ("a", "b c d e f g"), ("same text", "Same text!"), ("", "x")])
    result = cleaned(pairs, FilterConfig(min_words=2, max_word_ratio=3, identical=True))
    assert result.kept["line"].to_pylist() == [0]
    assert result.dropped["reason"].to_pylist() == ["too_few_words", "identical", "empty_source"]


def test_an_empty_shard_stays_one(make_pairs) -> None:
    result = cleaned(make_pairs([]))
    assert (result.kept.num_rows, result.dropped.num_rows) == (0, 0)


def test_the_fast_path_skips_no_character_that_the_rules_would_change() -> None:
    # Every assigned character of the basic plane between two letters, by the column and by the definition.
    texts = [f"a{chr(code)}b" for code in range(1, 0xFFFE) if not 0xD800 <= code <= 0xDFFF]
    for before, after in zip(texts, normalized(pa.array(texts), CleanConfig()).to_pylist(), strict=True):
        assert after == unicodedata.normalize("NFC", after)
        assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in after)
        assert all(c in (" ", NBSP) for c in after if unicodedata.category(c) == "Zs"), hex(ord(before[1]))
    marks = ["x" + "\u0301" + "y", "e\u0323\u0302", "\u1100\u1161"]
    assert normalized(pa.array(marks), CleanConfig()).to_pylist() == [
        unicodedata.normalize("NFC", text) for text in marks
    ]


def test_a_second_pass_changes_nothing() -> None:
    alphabet = "ae\u0301\u0323 \u00a0\u202f\u2003\t\u200b\ufeff\u0085.,’\u1100\u1161\u212b"
    draw = random.Random(0)
    texts = ["".join(draw.choices(alphabet, k=draw.randint(0, 12))) for _ in range(3000)]
    once = normalized(pa.array(texts), CleanConfig())
    assert once == normalized(once, CleanConfig())


def test_real_text_is_normal_after_one_pass(real_lines) -> None:
    texts = normalized(pa.array(real_lines("wmt/europarl-v7.fr-en", "fr")), CleanConfig())
    assert texts == normalized(texts, CleanConfig())
    assert not any("  " in text or text != text.strip() for text in texts.to_pylist())
