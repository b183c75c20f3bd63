"""Interpolated modified Kneser-Ney language models (Chen and Goodman 1999), estimated with NumPy.

    p(w | h) = max(c(hw) - D(c(hw)), 0) / sum_v c(hv) + gamma(h) p(w | h'),   h' = h without its first word
    gamma(h) = sum_v D(c(hv)) / sum_v c(hv),   D(c) = 0, D1, D2, D3+ for c = 0, 1, 2, at least 3

c is the raw count for n-grams of the highest order and for those that begin with `<s>`, else the adjusted
count: how many different words stand before the n-gram. Below the unigrams lies the uniform distribution over
the vocabulary with `</s>` and `<unk>` but without `<s>`, so two models of one vocabulary have one base.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.schemas import UNK

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Text: TypeAlias = pa.Array | pa.ChunkedArray  # of strings: one sentence each, tokens separated by U+0020

NO_WORD, START, END = "<unk>", "<s>", "</s>"
RESERVED = (NO_WORD, START, END)  # ids 0, 1, 2; the word of rank r in the vocabulary has id r + 3
_START_ID, _END_ID = 1, 2
_FALLBACK = (0.5, 1.0, 1.5)  # discounts where a small text gives none (protocol 3.2)
_UNWRITABLE = re.compile(r"[\x00-\x20\x7f]")  # what would end a word in an ARPA file


class LanguageModelError(ValueError):
    """A language model that cannot be estimated or read."""


class Numbered(NamedTuple):
    """A text as word ids, without `<s>` and `</s>`."""

    ids: IntArray  # of all sentences, one after the other
    lengths: IntArray  # words of each sentence


class Order(NamedTuple):
    """The n-grams of one order, sorted by (prefix, word)."""

    prefix: IntArray  # row of the first n-1 words in the order below; -1 for unigrams
    word: IntArray  # id of the last word
    log10_probability: FloatArray
    log10_backoff: FloatArray  # 0 where nothing follows
    discounts: tuple[float, float, float]  # for adjusted counts 1, 2, and 3 or more
    fallback: bool  # the discounts could not be estimated


@dataclass(frozen=True)
class LanguageModel:
    """A back-off table equal to the interpolated model."""

    words: tuple[str, ...]  # by id, the reserved ones first
    orders: tuple[Order, ...]

    @property
    def fallbacks(self) -> tuple[int, ...]:
        """The orders (1 for unigrams) whose discounts are the fallback."""
        return tuple(n for n, order in enumerate(self.orders, 1) if order.fallback)


def usable_word(word: str) -> bool:
    """Whether `word` can stand in a vocabulary: not empty or reserved, no ASCII space or control in it."""
    return bool(word) and word not in RESERVED and not _UNWRITABLE.search(word)


def number(text: Text, vocabulary: Sequence[str]) -> Numbered:
    """Turn words into ids. A word outside the vocabulary is `[UNK]` where that is in it, else `<unk>`.

    A word of the text spelled `<s>`, `</s>` or `<unk>` is outside: such words are never in a vocabulary.
    """
    sentences = pa.chunked_array([text]) if isinstance(text, pa.Array) else text
    sentences = pc.cast(sentences, pa.large_string()).combine_chunks()
    split = pc.split_pattern(sentences, " ")
    empty = pc.equal(sentences, "")  # splitting nothing gives one empty token
    lengths = np.where(_numpy(empty), 0, _numpy(pc.list_value_length(split))).astype(np.int64)
    tokens = pc.list_flatten(pc.filter(split, pc.invert(empty)))
    ids = _numpy(pc.fill_null(pc.index_in(tokens, pa.array(vocabulary, pa.large_string())), -1)).astype(
        np.int64
    )
    outside = len(RESERVED) + vocabulary.index(UNK) if UNK in vocabulary else 0
    return Numbered(np.where(ids < 0, outside, ids + len(RESERVED)), lengths)


def estimate(text: Text, vocabulary: Sequence[str], order: int) -> LanguageModel:
    """Estimate a model of `text`. Every word of the vocabulary is a unigram, seen or not.

    Raises LanguageModelError for an empty text, for a word that `usable_word` refuses, and for a text with
    words outside a vocabulary that lacks `[UNK]`.
    """
    if unusable := [word for word in vocabulary if not usable_word(word)]:
        raise LanguageModelError(
            f"the vocabulary holds {unusable[0]!r}, which an ARPA file cannot; leave it out"
        )
    numbered = number(text, vocabulary)
    if not len(numbered.lengths):
        raise LanguageModelError("the text of a language model has no sentence; give it at least one")
    if not numbered.ids.all():
        raise LanguageModelError(
            f"the text has words outside the vocabulary; add {UNK} to it to stand for them"
        )
    words = (*RESERVED, *vocabulary)
    return LanguageModel(words, _orders(_count(numbered, len(words), order), len(words)))


class _Counted(NamedTuple):
    """The n-grams of one order with the counts that the estimate uses."""

    prefix: IntArray
    suffix: IntArray  # row of the last n-1 words in the order below
    word: IntArray
    times: IntArray


def _count(numbered: Numbered, size: int, highest: int) -> list[_Counted]:
    """Raw and adjusted counts of every n-gram inside a sentence, up to order `highest`."""
    ends = np.cumsum(numbered.lengths + 2) - 1
    starts = ends - numbered.lengths - 1
    stream = np.zeros(ends[-1] + 1, np.int64)
    stream[starts], stream[ends] = _START_ID, _END_ID
    stream[stream == 0] = numbered.ids
    left = np.repeat(ends, numbered.lengths + 2) - np.arange(len(stream)) + 1  # tokens to the sentence's end
    raw = np.bincount(stream, minlength=size)
    raw[_START_ID] = 0  # `<s>` is never predicted
    none = np.full(size, -1)
    counted = [_Counted(none, none, np.arange(size), raw)]
    rows, begins = stream, np.arange(size) == _START_ID
    for n in range(2, highest + 1):
        at = np.flatnonzero(left >= n)
        keys, first, row, raw = np.unique(
            rows[at] * size + stream[at + n - 1], return_index=True, return_inverse=True, return_counts=True
        )
        suffix = rows[at[first] + 1]
        below = counted[-1]
        before = np.bincount(suffix, minlength=len(below.times))
        counted[-1] = below._replace(times=np.where(begins, below.times, before))
        counted.append(_Counted(keys // size, suffix, keys % size, raw))
        rows = np.full(len(stream), -1)
        rows[at] = row
        begins = stream[at[first]] == _START_ID
    return counted


def _orders(counted: Sequence[_Counted], size: int) -> tuple[Order, ...]:
    """Discount, normalise and interpolate, from the unigrams up."""
    orders: list[Order] = []
    below = np.full(1, 1 / (size - 1))  # everything but `<s>`
    for grams in counted:
        amounts, fallback = _discounts(grams.times)
        lost = np.array((0.0, *amounts))[np.minimum(grams.times, 3)]
        context = grams.prefix if orders else np.zeros(size, np.int64)
        total = np.bincount(context, grams.times, minlength=len(below))
        seen = total > 0
        gamma = np.ones(len(below))
        gamma[seen] = np.bincount(context, lost, minlength=len(below))[seen] / total[seen]
        probability = (grams.times - lost) / total[context] + gamma[context] * below[
            grams.suffix if orders else context
        ]
        if orders:
            orders[-1] = orders[-1]._replace(log10_backoff=np.log10(gamma))
        else:
            probability[_START_ID] = 1.0  # by convention; never asked for
        log10 = np.minimum(np.log10(probability), 0.0)
        orders.append(Order(grams.prefix, grams.word, log10, np.zeros(len(log10)), amounts, fallback))
        below = probability
    return tuple(orders)


def _discounts(counts: IntArray) -> tuple[tuple[float, float, float], bool]:
    """D1, D2, D3+ from the counts of counts (Chen and Goodman 1999, Eq. 26), or the fallback."""
    t = np.bincount(np.minimum(counts, 5), minlength=6).tolist()
    if not (t[1] and t[2] and t[3]):
        return _FALLBACK, True
    y = t[1] / (t[1] + 2 * t[2])
    d1, d2, d3 = (k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3))
    if min(d1, d2, d3) < 0:
        return _FALLBACK, True
    return (d1, d2, d3), False


def to_arpa(model: LanguageModel) -> bytes:
    """The model as an ARPA file: seven decimals, n-grams in the order of their ids, UTF-8."""
    lines = ["\\data\\", *(f"ngram {n}={len(order.word)}" for n, order in enumerate(model.orders, 1))]
    texts: list[str] = []
    for n, order in enumerate(model.orders, 1):
        spelled = [model.words[w] for w in order.word.tolist()]
        if n > 1:
            spelled = [f"{texts[p]} {word}" for p, word in zip(order.prefix.tolist(), spelled, strict=True)]
        texts = spelled
        lines += ["", f"\\{n}-grams:"]
        values = zip(order.log10_probability.tolist(), texts, order.log10_backoff.tolist(), strict=True)
        if n < len(model.orders):
            lines += [f"{probability:.7f}\t{text}\t{backoff:.7f}" for probability, text, backoff in values]
        else:
            lines += [f"{probability:.7f}\t{text}" for probability, text, _ in values]
    return "\n".join([*lines, "", "\\end\\", ""]).encode()


def _numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.generic]:
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return np.asarray(flat.to_numpy(zero_copy_only=False))
