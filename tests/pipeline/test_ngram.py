import gzip
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rnnsearch.pipeline.ngram import RESERVED, LanguageModelError, estimate, number, to_arpa
from rnnsearch.pipeline.schemas import UNK

GOLDEN = Path(__file__).parents[1] / "golden"

Arpa = dict[tuple[str, ...], tuple[float, float]]


def read_lines(name: str) -> list[str]:
    return (GOLDEN / name).read_text().split("\n")[:-1]


def vocabulary(lines: list[str]) -> list[str]:
    return sorted({word for line in lines for word in line.split(" ")} - {"", *RESERVED})


def read_arpa(data: bytes) -> Arpa:
    """Every n-gram with its probability and back-off weight in log10."""
    rows = [line.split("\t") for line in data.decode().split("\n") if "\t" in line]
    return {
        tuple(row[1].split(" ")): (float(row[0]), float(row[2]) if len(row) == 3 else 0.0) for row in rows
    }


def log10_word(arpa: Arpa, context: tuple[str, ...], word: str) -> float:
    """The back-off recursion as it is written down, one word at a time."""
    if (*context, word) in arpa:
        return arpa[(*context, word)][0]
    return arpa.get(context, (0.0, 0.0))[1] + log10_word(arpa, context[1:], word)


def log10_line(arpa: Arpa, line: str, order: int = 4) -> float:
    words = [word if (word,) in arpa else "<unk>" for word in line.split(" ") if word]
    tokens = ["<s>", *words, "</s>"]
    return sum(
        log10_word(arpa, tuple(tokens[max(0, i - order + 1) : i]), tokens[i]) for i in range(1, len(tokens))
    )


@pytest.mark.parametrize(
    ("train", "expected", "fallbacks"),
    [
        ("lm_train.txt", "lm_expected.json", ()),
        ("lm_fallback_train.txt", "lm_fallback_expected.json", (1, 2, 3, 4)),
    ],
)
def test_every_line_has_the_probability_that_lmplz_gives_it(
    train: str, expected: str, fallbacks: tuple[int, ...]
) -> None:
    text = read_lines(train)
    golden = json.loads((GOLDEN / expected).read_text())
    model = estimate(pa.array(text), vocabulary(text), 4)
    arpa = read_arpa(to_arpa(model))
    ours = [log10_line(arpa, line) for line in golden.get("lines") or read_lines("lm_test.txt")]
    np.testing.assert_allclose(ours, golden["log10"], rtol=0, atol=1e-5)
    assert model.fallbacks == fallbacks


@pytest.mark.parametrize(
    ("train", "arpa"), [("lm_train.txt", "lm.arpa.gz"), ("lm_fallback_train.txt", "lm_fallback.arpa.gz")]
)
def test_the_whole_model_is_that_of_lmplz(train: str, arpa: str) -> None:
    text = read_lines(train)
    ours = read_arpa(to_arpa(estimate(pa.array(text), vocabulary(text), 4)))
    theirs = read_arpa(gzip.decompress((GOLDEN / arpa).read_bytes()))
    assert ours.keys() == theirs.keys()
    for ngram, values in theirs.items():
        assert ours[ngram] == pytest.approx(values, abs=2e-6), ngram


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_words_after_any_context_share_a_probability_of_one(order: int) -> None:
    rng = random.Random(order)
    text = [" ".join(rng.choices("abcdefg", k=rng.randrange(9))) for _ in range(60)]
    arpa = read_arpa(to_arpa(estimate(pa.array(text), [*"abcdefgh", UNK], order)))
    predicted = [words[0] for words in arpa if len(words) == 1 and words[0] != "<s>"]
    contexts = [("<s>", "a", "h"), *itertools.product("abh", repeat=2), ("<s>",), ()]
    for context in contexts:
        kept = context[len(context) - min(order - 1, len(context)) :]
        assert sum(10 ** log10_word(arpa, kept, word) for word in predicted) == pytest.approx(1, abs=2e-6)


def test_ngrams_that_begin_a_sentence_keep_their_raw_count() -> None:
    # `<s> a` is seen 3 times: with adjusted counts p(a | <s>) and p(b | <s>) would be equal.
    arpa = read_arpa(to_arpa(estimate(pa.array(["a", "a", "a", "b"]), ["a", "b"], 3)))
    assert arpa[("<s>", "a")][0] > arpa[("<s>", "b")][0]


def test_words_that_a_text_lacks_are_unigrams_with_the_uniform_share_of_the_unknown() -> None:
    model = estimate(pa.array(["a b", "a"]), ["a", "b", "c", UNK], 2)
    arpa = read_arpa(to_arpa(model))
    assert arpa[("c",)] == arpa[(UNK,)] == arpa[("<unk>",)]
    assert len([words for words in arpa if len(words) == 1]) == len(RESERVED) + 4


def test_words_spelled_like_reserved_ones_are_unknown_words() -> None:
    odd = estimate(pa.array(["<s> a </s> b", "<unk> a", "a [UNK]"]), ["a", "b", UNK], 3)
    plain = estimate(pa.array(["x a y b", "z a", "a w"]), ["a", "b", UNK], 3)
    assert to_arpa(odd) == to_arpa(plain)


@pytest.mark.parametrize("word", ["<s>", "</s>", "<unk>", "", "a b", "a\tb", "a\x0bb", "a\n"])
def test_a_word_that_an_arpa_file_cannot_hold_is_refused(word: str) -> None:
    with pytest.raises(LanguageModelError, match="leave it out"):
        estimate(pa.array(["a"]), ["a", word, UNK], 2)


def test_a_no_break_space_stays_inside_its_word() -> None:
    text = pa.array(["10\u00a0000 a", "10\u00a0000"])
    assert number(text, ["10\u00a0000", "a"]).ids.tolist() == [3, 4, 3]
    assert ("<s>", "10\u00a0000") in read_arpa(to_arpa(estimate(text, ["10\u00a0000", "a"], 2)))


def test_unknown_words_without_a_word_for_them_are_an_error() -> None:
    with pytest.raises(LanguageModelError, match=r"add \[UNK\]"):
        estimate(pa.array(["a b"]), ["a"], 2)


def test_a_text_without_sentences_is_an_error() -> None:
    with pytest.raises(LanguageModelError, match="at least one"):
        estimate(pa.array([], pa.string()), ["a"], 2)


def test_empty_sentences_count_as_sentences_without_words() -> None:
    numbered = number(pa.array(["", "a", "", "b a"]), ["a", "b"])
    assert numbered.lengths.tolist() == [0, 1, 0, 2]
    assert numbered.ids.tolist() == [3, 4, 3]
    arpa = read_arpa(to_arpa(estimate(pa.array(["", "a", ""]), ["a"], 2)))
    assert arpa[("<s>", "</s>")][0] > arpa[("<s>", "a")][0]


def test_equal_text_makes_equal_bytes_however_it_is_cut() -> None:
    text = read_lines("lm_train.txt")
    whole = pa.array(text)
    cut = pa.chunked_array([whole[:7], whole[7:7], whole[7:250], whole[250:]])
    assert to_arpa(estimate(whole, vocabulary(text), 4)) == to_arpa(estimate(cut, vocabulary(text), 4))
