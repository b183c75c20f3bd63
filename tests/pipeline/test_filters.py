import random

import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import FilterConfig, LanguagesConfig
from rnnsearch.pipeline.filters import apply_filters, is_mojibake, repeated_phrases
from rnnsearch.pipeline.repairs import repair_mojibake

EN_FR = LanguagesConfig(source="en", target="fr")


@pytest.mark.parametrize(
    ("settings", "reason", "bad", "good"),
    [
        ({"min_words": 2}, "too_few_words", ("a b", "c"), ("a b", "c d")),
        ({"max_words": 3}, "too_many_words", ("a b c d", "e"), ("a b c", "e")),
        ({"max_characters": 4}, "too_long", ("abcde", "f"), ("abcd", "f")),
        ({"max_word_characters": 4}, "long_word", ("a", "abcde f"), ("a", "abcd efg")),
        ({"max_word_ratio": 2}, "word_ratio", ("a", "b c d"), ("a", "b c")),
        ({"max_character_ratio": 2}, "character_ratio", ("abcde", "ab"), ("abcd", "ab")),
        ({"identical": True}, "identical", ("Click here!", "click here"), ("Click", "Cliquez")),
        ({"min_letters": 0.5}, "few_letters", ("a b", "12 34 !"), ("a 1", "b 2")),
        (
            {"min_script": 0.5},
            "wrong_script",
            ("good morning", "доброе утро"),
            ("good morning", "bonjour à tous"),
        ),
        ({"min_digits": 0.5}, "digits_differ", ("in 1987", "en 2345"), ("in 1987 and 10", "en 1987 et 10")),
        ({"min_digits": 0.5}, "digits_differ", ("in 1987", "jadis"), ("at 3.00", "à ３ heures")),
        ({"max_repeats": 2}, "repeated", ("no no no", "non"), ("no no", "non")),
        ({"max_repeats": 2}, "repeated", ("a", "oui bien oui bien oui bien"), ("a", "oui bien oui bien")),
        ({"html": True}, "html", ("<b>a</b>", "b"), ("1 < 2 > 0", "R&D; 3")),
        ({"html": True}, "html", ("a", "l&apos;eau"), ("a & b", "c")),
        ({"mojibake": True}, "mojibake", ("summer", "l’Ã©tÃ©"), ("summer", "l’été à São")),
        (
            {"languages": True},
            "wrong_language",
            ("The house is old", "The house is very old indeed"),
            ("The house is old", "La maison est très vieille"),
        ),
        (
            {"languages": True},
            "wrong_language",
            ("La maison est très vieille", "The house is old"),
            ("Oui", "Yes"),
        ),
    ],
)
def test_a_filter_holds_for_a_bad_pair_and_not_at_its_threshold(
    make_pairs, settings: dict[str, object], reason: str, bad: tuple[str, str], good: tuple[str, str]
) -> None:
    rows = make_pairs([bad, good])
    masks = apply_filters(rows, FilterConfig(**settings), EN_FR)
    assert masks[reason].tolist() == [True, False]


def test_no_filter_is_on_by_default(make_pairs) -> None:
    assert apply_filters(make_pairs([("a", "b")]), FilterConfig(), EN_FR) == {}


def test_every_filter_takes_an_empty_shard(make_pairs) -> None:
    every = FilterConfig(
        min_words=1, max_words=9, max_characters=9, max_word_characters=9, max_word_ratio=2, max_character_ratio=2,
        identical=True, min_letters=0.1, min_script=0.1, min_digits=0.1, max_repeats=1, html=True, mojibake=True,
        slipped=True, swapped=True, languages=True,
    )  # fmt: skip
    masks = apply_filters(make_pairs([]), every, EN_FR)
    assert len(masks) == 16
    assert not any(mask.size for mask in masks.values())


def repeats(text: str) -> int:
    """How often a phrase of up to 4 words stands on end, at the most, counted by hand."""
    tokens = text.split(" ")
    return max(
        count
        for size in range(1, 5)
        for start in range(len(tokens))
        for count in range(1, (len(tokens) - start) // size + 1)
        if tokens[start : start + size * count] == tokens[start : start + size] * count
    )


@pytest.mark.parametrize("most", [1, 2, 3])
def test_repeats_are_those_of_counting_by_hand(most: int) -> None:
    draw = random.Random(most)
    texts = [" ".join(draw.choice("ab") for _ in range(draw.randint(1, 9))) for _ in range(300)]
    texts += ["a b c d a b c d a b c d a b c d", "a", "a b c d e a b c d e"]
    assert repeated_phrases(pa.array(texts), most).to_pylist() == [repeats(text) > most for text in texts]
    assert repeated_phrases(pa.array([], pa.string()), most).to_pylist() == []
    assert repeated_phrases(pa.array(["", ""]), most).to_pylist() == [False, False]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp1251"])
def test_no_mojibake_is_passed_over_that_ftfy_would_repair(encoding: str) -> None:
    texts = ["l’été à Noël, «où» ?", "naïve cœur ça", "привет мир", "Ελλάδα", "déjà vu à la"]
    broken = [text.encode().decode(encoding, "replace") for text in texts]
    assert is_mojibake(pa.array(broken)).to_pylist() == [repair_mojibake(text) != text for text in broken]
    assert is_mojibake(pa.array(texts)).to_pylist() == [False] * len(texts)


def test_pairs_that_changed_their_sides_are_told_by_the_words_of_the_others(make_pairs) -> None:
    draw = random.Random(2)
    ours, theirs = "the house is old and big", "la maison est vieille et grande"
    rows = [tuple(" ".join(draw.choices(side.split(), k=6)) for side in (ours, theirs)) for _ in range(300)]
    for row in (7, 100, 299):
        rows[row] = rows[row][::-1]
    rows[50] = ("same 10 words 12 here", "same 10 words 12 here")
    masks = apply_filters(make_pairs(rows), FilterConfig(swapped=True), EN_FR)
    assert masks["swapped"].nonzero()[0].tolist() == [7, 100, 299]
    few = apply_filters(make_pairs(rows[:50]), FilterConfig(swapped=True), EN_FR)
    assert not few["swapped"].any()


def test_a_language_in_a_script_that_is_not_known_is_not_judged(make_pairs) -> None:
    rows = make_pairs([("good morning all", "доброе утро всем")])
    for target, wrong in (("ru", False), ("fr", True), ("nqo", False)):
        masks = apply_filters(rows, FilterConfig(min_script=0.5), LanguagesConfig(source="en", target=target))
        assert masks["wrong_script"].tolist() == [wrong]
