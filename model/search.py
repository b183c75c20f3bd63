"""Beam search over a trained network (protocol 4), for many sentences at once.

Sentences are taken longest first. Their beams are stepped together, and as soon as one is decided the next sentence
takes its place, so that the products stay large.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

from rnnsearch.model.beam import EOS, UNKNOWN, Beam, Hypothesis
from rnnsearch.model.config import SearchConfig
from rnnsearch.model.network import NO_WORD, Network
from rnnsearch.model.stepper import Source, Stepper

__all__ = ["EOS", "UNKNOWN", "Hypothesis", "SearchError", "beam_search"]

HYPOTHESES = 384  # that are stepped together: enough for the products to run at full speed
READ = 32  # sentences that are encoded together
POSITIONS = 8_192  # source words, with padding, that are encoded together: 98 MB at the paper's size


class SearchError(ValueError):
    """A sentence or a network that cannot be searched."""


class _Active(NamedTuple):
    """A sentence that is being searched."""

    position: int
    source: Source
    beam: Beam
    width: int  # hypotheses that grow


def beam_search(
    network: Network,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first, at most `config.n_best`.

    `sentences` are source ids without `</s>`. Which sentences are searched together changes nothing but the last bits
    of the network's sums. Hypotheses that ended come first; unfinished ones follow if `keep_unfinished`, and otherwise
    the list of a sentence may be empty. The search of a sentence stops when nothing better can come: a cost only grows,
    and the length is bounded. An empty sentence has the empty translation, at the cost that the network gives it.

    `before_step` is called before each step; what it raises ends the search.

    Raises SearchError for ids outside the network's vocabulary, and where the network gives no number.
    """
    stepper = Stepper(network, config.precision)
    for position, sentence in enumerate(sentences):
        if sentence and not (min(sentence) >= 0 and max(sentence) < stepper.source_size):
            raise SearchError(
                f"sentence {position} has ids from {min(sentence)} to {max(sentence)}, but the network knows "
                f"{stepper.source_size} source words; encode it with the shortlist the network was trained with"
            )
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    todo = list(range(len(sentences)))
    setting: SearchConfig | None = config
    while todo and setting is not None:
        fallback = config.unknown == "forbid" and setting.unknown == "allow"
        for position, beam in _searched(stepper, {i: sentences[i] for i in todo}, setting, before_step):
            found[position] = beam.hypotheses(fallback=fallback)
        todo = [i for i in todo if not any(hypothesis.finished for hypothesis in found[i])]
        setting = _retry(setting)
    return found


def _retry(tried: SearchConfig) -> SearchConfig | None:
    """What is tried next for sentences of which nothing ended: GroundHog's order (protocol 4)."""
    if tried.retry_unknown and tried.unknown == "forbid":
        return tried.model_copy(update={"unknown": "allow"})
    if tried.retry_beam is not None and tried.beam < tried.retry_beam:
        return tried.model_copy(update={"beam": tried.beam * 2})
    return None


def _searched(
    stepper: Stepper,
    sentences: dict[int, Sequence[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None,
) -> Iterator[tuple[int, Beam]]:
    """The finished beam of each sentence, in the order in which they are decided."""
    waiting = _read(stepper, sentences)
    places = max(1, HYPOTHESES // config.beam)
    active: list[_Active] = []
    state_RN, words_R = torch.empty(0), torch.empty(0, dtype=torch.int64)
    while True:
        new = [
            _Active(i, source, Beam(len(sentences[i]) + 1, config), width=1)
            for i, source in islice(waiting, places - len(active))
        ]
        if new:
            initial_RN = torch.stack([one.source.initial_N for one in new])
            first_R = torch.full((len(new),), NO_WORD, device=initial_RN.device)
            state_RN = torch.cat([state_RN, initial_RN]) if active else initial_RN
            words_R = torch.cat([words_R, first_R]) if active else first_R
            active += new
        if not active:
            return
        if before_step is not None:
            before_step()
        # Two words more than the beam is wide: `</s>` and [UNK] may be forbidden.
        prediction = stepper.predict(
            [one.source for one in active], [one.width for one in active], state_RN, words_R, config.beam + 2
        )
        log_p_RC, best_RC = prediction.log_p_RC.double().cpu().numpy(), prediction.words_RC.cpu().numpy()
        end_R = prediction.end_R.double().cpu().numpy()
        if np.isnan(log_p_RC).any():
            raise SearchError(
                "the network's probabilities are not numbers: its training diverged, or its file is damaged"
            )
        parents: list[int] = []
        words: list[int] = []
        growing: list[_Active] = []
        start = 0
        for number, one in enumerate(active):
            rows = slice(start, start + one.width)
            alphas_KS = None if prediction.alphas is None else prediction.alphas[number]
            growth = one.beam.step(log_p_RC[rows], best_RC[rows], end_R[rows], alphas_KS)
            if growth is None:
                yield one.position, one.beam
            else:
                parents += [start + parent for parent in growth.parents]
                words += growth.words
                growing.append(one._replace(width=len(growth.words)))
            start = rows.stop
        active = growing
        if active:
            words_R = torch.tensor(words, device=state_RN.device)
            state_RN = stepper.advance(
                prediction.carry.select(torch.tensor(parents, device=state_RN.device)), words_R
            )


def _read(stepper: Stepper, sentences: dict[int, Sequence[int]]) -> Iterator[tuple[int, Source]]:
    """Each sentence encoded, the longest first; not read further ahead than one batch."""
    order = sorted(sentences, key=lambda i: (-len(sentences[i]), i))
    while order:
        count = max(1, min(READ, POSITIONS // (len(sentences[order[0]]) + 1)))
        batch, order = order[:count], order[count:]
        yield from zip(batch, stepper.read([sentences[i] for i in batch]), strict=True)
