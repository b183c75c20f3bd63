"""Alignments: soft ones as the attention gives them, hard ones, and gold ones.

A soft alignment has a row for each target word (the row of the final `</s>` is left out) and a column for each
source word, the last column for `</s>`: rows sum to 1 (Eq. 6). A hard alignment is a set of links (source word,
target word), counted from 0.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rnnsearch.pipeline.bleu import EvaluationError

Links = frozenset[tuple[int, int]]  # (source, target)
FloatArray = npt.NDArray[np.float64]

_LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


class Gold(NamedTuple):
    """Links made by people. Every sure link is possible too."""

    sure: Links
    possible: Links


class Coverage(NamedTuple):
    """Source words by how much attention they got over the whole translation."""

    dropped: int  # less than the low bound: perhaps not translated
    repeated: int  # more than the high bound: perhaps translated twice


def parse_gold(line: str) -> Gold:
    """Read `0-0 1p2 …`: `i-j` is a sure link of source word i and target word j, `ipj` a possible one."""
    sure, possible = set(), set()
    for token in line.split(" ") if line else ():
        match = _LINK.fullmatch(token)
        if match is None:
            raise EvaluationError(f"{token!r} is no link; write 3-4 for a sure one, 3p4 for a possible one")
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def hard_links(weights: FloatArray) -> Links:
    """Link each target word with the source word of largest weight; to none where that is `</s>`.

    `weights` is (target words, source words + 1). Ties go to the first source word.
    """
    if not weights.size:
        return frozenset()
    best = weights.argmax(axis=1)
    return frozenset((int(i), j) for j, i in enumerate(best) if i < weights.shape[1] - 1)


def error_rate(found: Iterable[Links], gold: Iterable[Gold]) -> float:
    """Alignment error rate of a text (Och and Ney 2003): 1 - (|A and S| + |A and P|) / (|A| + |S|).

    0 where there is no link at all. Raises EvaluationError for unequal numbers of sentences.
    """
    ours, truth = list(found), list(gold)
    if len(ours) != len(truth):
        raise EvaluationError(
            f"{len(ours)} alignments for {len(truth)} gold lines; give a line for each sentence"
        )
    hits = size = 0
    for links, (sure, possible) in zip(ours, truth, strict=True):
        hits += len(links & sure) + len(links & possible)
        size += len(links) + len(sure)
    return 1 - hits / size if size else 0.0


def links_text(links: Links) -> str:
    """Links as `i-j`, separated by U+0020, in the order of the target words."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links, key=lambda link: (link[1], link[0])))


def reverse(links: Links) -> Links:
    """The same links seen from the other direction."""
    return frozenset((target, source) for source, target in links)


def agreement(forward: Iterable[Links], backward: Iterable[Links]) -> float:
    """How far two directions agree: twice the common links over all links, 0 to 1 (1 without links).

    Both give (source, target) of the forward direction: apply `reverse` to what the backward system found.
    """
    common = size = 0
    for ours, theirs in zip(forward, backward, strict=True):
        common += len(ours & theirs)
        size += len(ours) + len(theirs)
    return 2 * common / size if size else 1.0


def entropies(weights: FloatArray) -> FloatArray:
    """Entropy of each row in nats."""
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return np.asarray(-(weights * logs).sum(axis=1))


def coverage(weights: FloatArray, low: float, high: float) -> Coverage:
    """Count the source words (not `</s>`) whose weights sum to less than `low`, and to more than `high`."""
    received = weights[:, :-1].sum(axis=0)
    return Coverage(int((received < low).sum()), int((received > high).sum()))


def as_matrix(rows: Sequence[Sequence[float]], target_words: int, source_words: int) -> FloatArray:
    """An alignment of HYPOTHESES as a matrix: its rows are the target words and, if it has it, the final `</s>`.

    Raises EvaluationError where the sizes differ from the sentences': as they would, were it transposed (protocol
    trap 45).
    """
    columns = source_words + 1
    if any(len(row) != columns for row in rows) or len(rows) not in (target_words, target_words + 1):
        raise EvaluationError(
            f"an alignment of {len(rows)} rows of {sorted({len(row) for row in rows})} weights for {target_words} "
            f"target and {source_words} source words; rows are target words, columns source words and </s>"
        )
    return np.array(rows, np.float64).reshape(len(rows), columns)
