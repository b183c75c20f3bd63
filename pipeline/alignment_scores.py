"""How good the alignments of one system are: against links made by people, and against the other direction's."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rnnsearch.pipeline.alignment import Gold, Links, agreement, error_rate, parse_gold, reverse
from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.observables import rate

_MICRO = 1_000_000
_LINK = re.compile(r"(?<![^ ])([0-9]+)[-p]([0-9]+)(?![^ ])")
_MANY = 20  # sentences: one of them would have a link of its first word


def alignment_scores(
    found: pa.Table, gold: Sequence[str] | None = None, backward: Sequence[str] | None = None
) -> bytes:
    """The scores of ALIGNMENTS as JSON: links, entropy in nats a target word, error rate, agreement.

    `gold` has a line for each row: `i-j` a sure link, `ipj` a possible one, empty where nobody made links; such a
    sentence does not count. `backward` has the links of a system of the other direction, whose sources are these
    targets: `j-i`. Raises EvaluationError for another number of lines, for links to words that are not there, and for
    links that are counted from 1.
    """
    ours = [parse_gold(line).sure for line in found["links"].to_pylist()]
    sizes = list(zip(found["source_words"].to_pylist(), found["target_words"].to_pylist(), strict=True))
    target_words = found["target_words"].to_numpy()
    scores: dict[str, Any] = {
        "sentences": found.num_rows,
        "links": sum(map(len, ours)),
        "entropy": round(rate(found["entropy"].to_numpy(), target_words) / _MICRO, 6),
    }
    if gold is not None:
        truth = _parsed(gold, sizes, "the gold alignment")
        pairs = [(links, line) for links, line in zip(ours, truth, strict=True) if line.possible]
        scores["gold"] = {
            "sentences": len(pairs),
            "sure": sum(len(line.sure) for _, line in pairs),
            "possible": sum(len(line.possible) for _, line in pairs),
            "error_rate": round(error_rate((links for links, _ in pairs), (line for _, line in pairs)), 6),
        }
    if backward is not None:
        turned = [(target, source) for source, target in sizes]
        theirs: list[Links] = [
            reverse(line.sure) for line in _parsed(backward, turned, "the backward alignment")
        ]
        if any(ours) or any(theirs):  # a young network looks at `</s>` only: nothing agrees with nothing
            scores["agreement"] = round(agreement(ours, theirs), 6)
    return (json.dumps(scores, indent=1) + "\n").encode()


def _parsed(lines: Sequence[str], sizes: Sequence[tuple[int, int]], what: str) -> list[Gold]:
    """The links of each line, which must lie within the sentences."""
    if len(lines) != len(sizes):
        raise EvaluationError(
            f"{what} has {len(lines):,} lines for {len(sizes):,} test sentences; give one line for each, in the order "
            "of the test set, an empty one where there are no links"
        )
    if _counted_from_1(lines, sizes):
        raise EvaluationError(
            f"{what} counts words from 1: no link has a 0. Words are counted from 0, in the tokens of the test set; "
            "subtract 1 from both sides of each link"
        )
    found = []
    for number, (line, (source_words, target_words)) in enumerate(zip(lines, sizes, strict=True), 1):
        try:
            links = parse_gold(line)
        except EvaluationError as error:
            raise EvaluationError(f"{what}, line {number:,}: {error}") from error
        for i, j in links.possible:
            if i >= source_words or j >= target_words:
                raise EvaluationError(
                    f"{what}, line {number:,}: {i}-{j} joins words of sentences that have {source_words} and "
                    f"{target_words}; words are counted from 0, in the tokens of the test set"
                )
        found.append(links)
    return found


def _counted_from_1(lines: Sequence[str], sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether no link joins a first word, although some join the word after the last, or many sentences have links."""
    linked, beyond = 0, False
    for line, size in zip(lines, sizes, strict=True):
        links = [(int(i), int(j)) for i, j in _LINK.findall(line)]
        if any(0 in link for link in links):
            return False
        linked += bool(links)
        beyond = beyond or any(
            place == length for link in links for place, length in zip(link, size, strict=True)
        )
    return beyond or linked >= _MANY
