"""The beam of one sentence: which hypotheses grow, which have ended, and when nothing better can come.

Shapes: K hypotheses that grow, C words looked at for each, S source words with `</s>`.
"""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rnnsearch.model.config import SearchConfig

EOS = 0
UNKNOWN = 1

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class Hypothesis(NamedTuple):
    """One translation of one sentence."""

    ids: tuple[int, ...]  # with the `</s>` that ends it, where it ended
    cost: float  # summed -log p in nats, `</s>` included
    key: float  # what hypotheses are ranked by: cost / len(ids) if normalised, else the cost
    alphas: (
        Tensor | None
    )  # (len(ids), S) float32: weights on the source and its `</s>`; None without attention
    finished: bool  # false: it had not ended when the steps were used up
    fallback: bool  # true: nothing ended without [UNK], and it was allowed again


class Growth(NamedTuple):
    """The hypotheses that grow on after a step, the best first."""

    parents: Sequence[int]  # number of the hypothesis that each continues
    words: Sequence[int]


class _Ending(NamedTuple):
    """A hypothesis that left the beam at `step`: number `parent` of that step, continued by `word`."""

    key: float
    cost: float
    step: int
    parent: int
    word: int
    finished: bool


class _Step(NamedTuple):
    """How the hypotheses of a step came about, and where they look."""

    growth: Growth
    alphas_KS: Tensor | None


class Beam:
    """The search of one sentence of `length` words, `</s>` counted.

    At every step the best continuations of all hypotheses are kept, `config.beam` of them. Those that end leave; their
    places are filled again if the width is constant, and lost if it narrows.
    """

    def __init__(self, length: int, config: SearchConfig) -> None:
        """Start with the empty hypothesis."""
        self.length = length
        self._config = config
        self._limit = _limit(length, config)
        self._minimum = min(
            math.floor(config.min_length_ratio * length), self._limit - 1
        )  # steps without `</s>`
        self._costs = np.zeros(1)
        self._growth = Growth([0], [EOS])  # y_0 is no word; its id is not looked at
        self._steps: list[_Step] = []
        self._endings: list[_Ending] = []

    def step(self, log_p_KC: Floats, words_KC: Ids, end_K: Floats, alphas_KS: Tensor | None) -> Growth | None:
        """Continue the hypotheses; return those that grow on, or None where the search is over.

        `log_p_KC` are the log probabilities of each hypothesis' best words, by ascending id, at least `config.beam` + 2
        of them: `</s>` and [UNK] may be forbidden. `end_K` are those of `</s>`.
        """
        config, number = self._config, len(self._steps)
        self._steps.append(_Step(self._growth, alphas_KS))
        if self.length == 1:  # an empty sentence: only `</s>`
            log_p_KC, words_KC = end_K[:, None], np.full((len(end_K), 1), EOS)
        total_KC = self._costs[:, None] - log_p_KC
        # A forbidden word has a log p of minus infinity, and the others are not normalised again (protocol 4).
        if config.unknown == "forbid":
            total_KC[words_KC == UNKNOWN] = math.inf
        if number < self._minimum:
            total_KC[words_KC == EOS] = math.inf
        room = config.beam - (len(self._endings) if config.width == "narrowing" else 0)
        costs, parents, words = [], [], []
        for place in np.argsort(total_KC, axis=None, kind="stable")[:room].tolist():
            # Of equal costs the better parent comes first, then the lower word.
            parent, candidate = divmod(place, total_KC.shape[1])
            cost, word = float(total_KC[parent, candidate]), int(words_KC[parent, candidate])
            if cost == math.inf:
                break
            if word == EOS or number + 1 == self._limit:
                key = cost / (number + 1) if config.normalize else cost
                self._endings.append(_Ending(key, cost, number, parent, word, finished=word == EOS))
            else:
                costs.append(cost)
                parents.append(parent)
                words.append(word)
        if not costs or self._decided(costs[0]):
            return None
        self._costs, self._growth = np.array(costs), Growth(parents, words)
        return self._growth

    def hypotheses(self, *, fallback: bool) -> list[Hypothesis]:
        """What was found, best first: those that ended, then the others if they are kept."""
        ranked = sorted(self._endings, key=lambda ending: (not ending.finished, ending.key))
        return [
            self._traced(ending, fallback)
            for ending in ranked[: self._config.n_best]
            if ending.finished or self._config.keep_unfinished
        ]

    def _decided(self, cost: float) -> bool:
        """Whether nothing that grows from a hypothesis of this cost can be among the best `n_best`.

        Costs only grow, so divided by its length a hypothesis of this cost ends at cost / limit or above.
        """
        best = self._config.n_best
        if len(self._endings) < best:
            return False
        worst = heapq.nsmallest(best, (ending.key for ending in self._endings))[-1]
        return worst <= (cost / self._limit if self._config.normalize else cost)

    def _traced(self, ending: _Ending, fallback: bool) -> Hypothesis:
        """The hypothesis that ended so, read backwards through the steps."""
        ids, alphas, row = [ending.word], [], ending.parent
        for growth, alphas_KS in reversed(self._steps[: ending.step + 1]):
            if alphas_KS is not None:
                alphas.append(alphas_KS[row].float())
            ids.append(growth.words[row])
            row = growth.parents[row]
        return Hypothesis(
            ids=tuple(reversed(ids[:-1])),  # without y_0
            cost=ending.cost,
            key=ending.key,
            alphas=torch.stack(alphas[::-1]).cpu() if alphas else None,
            finished=ending.finished,
            fallback=fallback,
        )


def _limit(length: int, config: SearchConfig) -> int:
    """Steps at most for a source of this length."""
    if length == 1:
        return 1
    return max(1, math.floor(config.max_length_ratio * length) + config.max_length_extra)
