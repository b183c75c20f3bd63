"""Tokenised BLEU, as Moses' multi-bleu.perl computes and prints it (protocol 4).

BLEU-4 with one reference, case kept, no smoothing: 0 where an order has no match. Tokens are separated by
U+0020 only. `[UNK]` in a hypothesis never matches, whatever the reference holds (protocol trap 42).

Sufficient statistics are one row a sentence, and add up: any subset or resample is a sum of rows.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.schemas import UNK, words

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ORDERS = 4
MATCHES, TOTALS = slice(0, ORDERS), slice(ORDERS, 2 * ORDERS)  # columns, by n-gram order
HYPOTHESIS_WORDS, REFERENCE_WORDS = 2 * ORDERS, 2 * ORDERS + 1
COLUMNS = 2 * ORDERS + 2


class EvaluationError(TextError):
    """Translations that cannot be scored as given."""


class Bleu(NamedTuple):
    """A corpus score. `score` is 0 to 100, `precisions` are 0 to 1."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    matches: tuple[int, ...]
    totals: tuple[int, ...]
    hypothesis_words: int
    reference_words: int

    @property
    def ratio(self) -> float:
        """Hypothesis words per reference word; 0 where the references have none."""
        return self.hypothesis_words / self.reference_words if self.reference_words else 0.0

    def __str__(self) -> str:
        """The line that multi-bleu.perl prints."""
        if not self.reference_words:
            return "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"
        precisions = "/".join(f"{100 * precision:.1f}" for precision in self.precisions)
        return (
            f"BLEU = {self.score:.2f}, {precisions} (BP={self.brevity_penalty:.3f}, ratio={self.ratio:.3f}, "
            f"hyp_len={self.hypothesis_words}, ref_len={self.reference_words})"
        )


def sentence_statistics(hypothesis: str, reference: str) -> tuple[int, ...]:
    """Matches and totals of the n-grams of order 1 to 4, then the words of both sides."""
    found, wanted = words(hypothesis), words(reference)
    matches, totals = [], []
    for n in range(1, ORDERS + 1):
        matches.append((_known_ngrams(found, n) & _known_ngrams(wanted, n)).total())
        totals.append(max(len(found) - n + 1, 0))
    return (*matches, *totals, len(found), len(wanted))


def statistics(hypotheses: Sequence[str], references: Sequence[str]) -> IntArray:
    """A row of statistics for each sentence, `COLUMNS` wide.

    Raises EvaluationError for unequal numbers of hypotheses and references.
    """
    if len(hypotheses) != len(references):
        raise EvaluationError(
            f"{len(hypotheses)} hypotheses for {len(references)} references; give one line for each, "
            f"an empty one where there is no translation"
        )
    rows = [sentence_statistics(ours, theirs) for ours, theirs in zip(hypotheses, references, strict=True)]
    return np.array(rows, np.int64).reshape(-1, COLUMNS)


def bleu(statistics: IntArray) -> Bleu:
    """The corpus score of the sentences whose rows these are. Without words on one side it is 0."""
    total = statistics.reshape(-1, COLUMNS).sum(axis=0)
    matches, totals = total[MATCHES].tolist(), total[TOTALS].tolist()
    return Bleu(
        score=float(scores(total)),
        precisions=tuple(
            match / count if count else 0.0 for match, count in zip(matches, totals, strict=True)
        ),
        brevity_penalty=float(_brevity_penalty(total)),
        matches=tuple(matches),
        totals=tuple(totals),
        hypothesis_words=int(total[HYPOTHESIS_WORDS]),
        reference_words=int(total[REFERENCE_WORDS]),
    )


def scores(totals: IntArray | FloatArray) -> FloatArray:
    """Scores of many corpora at once, 0 to 100: the last axis holds their summed statistics."""
    matches, counts = totals[..., MATCHES], totals[..., TOTALS]
    scored = np.all(matches > 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.log(matches / counts).mean(axis=-1)
    return np.where(scored, 100 * _brevity_penalty(totals) * np.exp(np.where(scored, mean, 0.0)), 0.0)


def _brevity_penalty(totals: IntArray | FloatArray) -> FloatArray:
    ours, theirs = totals[..., HYPOTHESIS_WORDS], totals[..., REFERENCE_WORDS]
    penalty = np.exp(np.minimum(1 - theirs / np.maximum(ours, 1), 0.0))
    return np.where(ours > 0, penalty, 0.0)


def _known_ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    ngrams = zip(*(tokens[start:] for start in range(n)), strict=False)
    return Counter(ngram for ngram in ngrams if UNK not in ngram)
