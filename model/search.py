"""Beam search over a trained network (PAPER 4), batched over sentences and their hypotheses.

The source is encoded once a sentence. At every step each hypothesis is continued by its best words, the
best continuations of a sentence are kept, and those that end leave the beam. Sentences that are decided
leave the batch.

Shapes: B sentences, K hypotheses of each, S source words with `</s>`, V target words, C continuations of a
hypothesis, N blocks of words.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from rnnsearch.model.config import SearchConfig
from rnnsearch.model.network import NO_WORD, Carry, Network
from torch import Tensor

EOS = 0
UNKNOWN = 1

HYPOTHESES = 384  # searched at a time: enough for the products to run at full speed
POSITIONS = 32_768  # hypotheses x source words at a time: 131 MB of energies at n' = 1000 in float32
BLOCK = 128  # words looked at together when the best of a row are sought


class SearchError(ValueError):
    """A sentence or a network that cannot be searched."""


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


class _Growing(NamedTuple):
    """A hypothesis that has not ended."""

    cost: float
    parent: int  # the hypothesis of the step before that it continues
    word: int


class _Ending(NamedTuple):
    """A hypothesis that left the beam: number `parent` of `step`, continued by `word`."""

    key: float
    cost: float
    step: int
    parent: int
    word: int
    finished: bool


class _Step(NamedTuple):
    """What is remembered of a step. The lists are by sentence searched, then by hypothesis."""

    place: dict[int, int]  # where a sentence of the batch stands among those searched
    parents: list[list[int]]
    words: list[list[int]]
    alphas: Tensor | None  # (B, K, S)


def beam_search(
    network: Network,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first, at most `config.n_best`.

    `sentences` are source ids without `</s>`. Which sentences are searched together changes nothing but the
    last bits of the network's sums. Hypotheses that ended come first; unfinished ones follow if
    `keep_unfinished`, and otherwise the list of a sentence may be empty. The search of a sentence stops when
    nothing better can come: a cost only grows, and the length is bounded.

    An empty sentence has the empty translation, at the cost that the network gives it.

    `before_step` is called before each step; what it raises ends the search.

    Raises SearchError for ids outside the network's vocabulary, and where the network gives no number.
    """
    words = network.encoder.E_src.shape[0]
    for position, sentence in enumerate(sentences):
        if sentence and not (min(sentence) >= 0 and max(sentence) < words):
            raise SearchError(
                f"sentence {position} has ids from {min(sentence)} to {max(sentence)}, but the network knows "
                f"{words} source words; encode it with the shortlist the network was trained with"
            )
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    todo = list(range(len(sentences)))
    setting: SearchConfig | None = config
    while todo and setting is not None:
        fallback = config.unknown == "forbid" and setting.unknown == "allow"
        for batch in _batches([len(sentences[i]) + 1 for i in todo], setting.beam):
            chosen = [todo[i] for i in batch]
            results = _search_batch(network, [sentences[i] for i in chosen], setting, fallback, before_step)
            for i, result in zip(chosen, results, strict=True):
                found[i] = result
        todo = [i for i in todo if not any(hypothesis.finished for hypothesis in found[i])]
        setting = _retry(setting)
    return found


def _retry(tried: SearchConfig) -> SearchConfig | None:
    """What is tried next for sentences of which nothing ended: GroundHog's order (PAPER 4)."""
    if tried.retry_unknown and tried.unknown == "forbid":
        return tried.model_copy(update={"unknown": "allow"})
    if tried.retry_beam is not None and tried.beam < tried.retry_beam:
        return tried.model_copy(update={"beam": tried.beam * 2})
    return None


def _batches(lengths: Sequence[int], beam: int) -> list[list[int]]:
    """Positions of sentences to search together: of like length, longest first, as many as are allowed."""
    batches: list[list[int]] = []
    room = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if room == 0:
            room = max(1, min(HYPOTHESES // beam, POSITIONS // (beam * lengths[i])))
            batches.append([])
        batches[-1].append(i)
        room -= 1
    return batches


@torch.inference_mode()
def _search_batch(
    network: Network,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    fallback: bool,
    before_step: Callable[[], None] | None,
) -> list[list[Hypothesis]]:
    """Search these sentences together."""
    lengths = [len(sentence) + 1 for sentence in sentences]
    limits = [_limit(length, config) for length in lengths]  # steps at most
    minima = [  # steps without `</s>`
        min(math.floor(config.min_length_ratio * length), limit - 1)
        for length, limit in zip(lengths, limits, strict=True)
    ]
    device = network.E_trg.device
    memory = network.encode(*_padded(sentences, device))
    state_BKN = network.start(memory)
    word_BK = torch.full((len(sentences), 1), NO_WORD, device=device)
    cost_BK = torch.zeros(len(sentences), 1, dtype=torch.float64)
    live = list(range(len(sentences)))  # the sentences still searched
    endings: list[list[_Ending]] = [[] for _ in sentences]
    steps: list[_Step] = []
    parents, words = [[0]] * len(live), [[NO_WORD]] * len(live)
    while True:
        if before_step is not None:
            before_step()
        prediction = network.predict(memory, state_BKN, word_BK)
        steps.append(_Step({i: b for b, i in enumerate(live)}, parents, words, prediction.alphas_BKS))
        logits_BKV = prediction.logits_BKV
        normalizer_BK = logits_BKV.logsumexp(dim=2)
        if config.unknown == "forbid":  # log p is minus infinity, the others are not normalised again
            logits_BKV[..., UNKNOWN] = -torch.inf
        for b, i in enumerate(live):
            if lengths[i] == 1:
                logits_BKV[b, :, EOS + 1 :] = -torch.inf
            elif len(steps) <= minima[i]:
                logits_BKV[b, :, EOS] = -torch.inf
        logit_BKC, word_BKC = _best_words(logits_BKV, config.beam)
        candidates = _ordered(
            cost_BK, (normalizer_BK[..., None] - logit_BKC).double().cpu(), word_BKC.cpu(), config.beam
        )

        going: list[int] = []  # places among the live
        beams: list[list[_Growing]] = []
        for b, i in enumerate(live):
            room = config.beam - (len(endings[i]) if config.width == "narrowing" else 0)
            beam: list[_Growing] = []
            for cost, parent, word in candidates[b][:room]:
                if math.isinf(cost):  # a forbidden word, or the continuation of nobody
                    break
                if word == EOS or len(steps) == limits[i]:
                    key = cost / len(steps) if config.normalize else cost
                    endings[i].append(_Ending(key, cost, len(steps) - 1, parent, word, finished=word == EOS))
                else:
                    beam.append(_Growing(cost, parent, word))
            if beam and not _decided(endings[i], beam[0].cost, limits[i], config):
                going.append(b)
                beams.append(beam)
        if not beams:
            break
        k = max(map(len, beams))
        beams = [beam + [beam[0]._replace(cost=math.inf)] * (k - len(beam)) for beam in beams]
        cost_BK = torch.tensor([[one.cost for one in beam] for beam in beams], dtype=torch.float64)
        parents = [[one.parent for one in beam] for beam in beams]
        words = [[one.word for one in beam] for beam in beams]
        word_BK = torch.tensor(words, device=device)
        carry = prediction.carry
        if len(going) < len(live):
            chosen = torch.tensor(going, device=device)
            memory = memory.select(chosen)
            carry = Carry(*(part.index_select(0, chosen) for part in carry))
            live = [live[b] for b in going]
        state_BKN = network.advance(carry.select(torch.tensor(parents, device=device)), word_BK)
    return [
        [
            _traced(ending, i, steps, lengths[i], fallback)
            for ending in sorted(endings[i], key=lambda ending: (not ending.finished, ending.key))[
                : config.n_best
            ]
            if ending.finished or config.keep_unfinished
        ]
        for i in range(len(sentences))
    ]


def _limit(length: int, config: SearchConfig) -> int:
    """Steps at most for a source of this length, `</s>` counted."""
    if length == 1:
        return 1
    return max(1, math.floor(config.max_length_ratio * length) + config.max_length_extra)


def _padded(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sentences with their `</s>`, time first, and where their words are."""
    lengths = torch.tensor([len(sentence) + 1 for sentence in sentences])
    source_BS = torch.full((len(sentences), int(lengths.max())), EOS)
    for b, sentence in enumerate(sentences):
        source_BS[b, : len(sentence)] = torch.tensor(sentence, dtype=torch.int64)
    mask_BS = torch.arange(source_BS.shape[1]) < lengths[:, None]
    return source_BS.t().contiguous().to(device), mask_BS.t().contiguous().to(device)


def _best_words(logits_BKV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best words of each hypothesis and their logits, by ascending id.

    They lie in the blocks of words with the best maxima, so the whole vocabulary is passed over once only.
    """
    words = logits_BKV.shape[2]
    count = min(count, words)
    if words < 4 * BLOCK * count:
        logit_BKC, word_BKC = logits_BKV.topk(count)
    else:
        blocks = words // BLOCK
        body_BKNW = logits_BKV[..., : blocks * BLOCK].view(*logits_BKV.shape[:2], blocks, BLOCK)
        block_BKC = body_BKNW.amax(dim=3).topk(count).indices
        within = torch.arange(BLOCK, device=logits_BKV.device)
        rest = torch.arange(blocks * BLOCK, words, device=logits_BKV.device)
        some = body_BKNW.gather(2, block_BKC[..., None].expand(-1, -1, -1, BLOCK)).flatten(2)
        ids = (block_BKC[..., None] * BLOCK + within).flatten(2)
        some = torch.cat([some, logits_BKV[..., blocks * BLOCK :]], dim=2)
        ids = torch.cat([ids, rest.expand(*ids.shape[:2], -1)], dim=2)
        logit_BKC, place_BKC = some.topk(count)
        word_BKC = ids.gather(2, place_BKC)
    word_BKC, order_BKC = word_BKC.sort(dim=2)
    return logit_BKC.gather(2, order_BKC), word_BKC


def _ordered(cost_BK: Tensor, surprise_BKC: Tensor, word_BKC: Tensor, count: int) -> list[list[_Growing]]:
    """The `count` cheapest continuations of each sentence; of equals the better parent, the lower word."""
    if surprise_BKC.isnan().any():
        raise SearchError(
            "the network's probabilities are not numbers: its training diverged, or its file is damaged"
        )
    candidates = word_BKC.shape[2]
    total_BC, order_BC = (cost_BK[..., None] + surprise_BKC).flatten(1).sort(dim=1, stable=True)
    order_BC = order_BC[:, :count]
    word_BC = word_BKC.flatten(1).gather(1, order_BC)
    columns = (total_BC[:, :count].tolist(), (order_BC // candidates).tolist(), word_BC.tolist())
    return [[_Growing(*one) for one in zip(*row, strict=True)] for row in zip(*columns, strict=True)]


def _decided(endings: Sequence[_Ending], cost: float, limit: int, config: SearchConfig) -> bool:
    """Whether nothing that grows from a hypothesis of this cost can be among the best `n_best`.

    Costs only grow, so divided by its length a hypothesis of this cost ends at cost / limit or above.
    """
    if len(endings) < config.n_best:
        return False
    worst = heapq.nsmallest(config.n_best, (ending.key for ending in endings))[-1]
    return worst <= (cost / limit if config.normalize else cost)


def _traced(
    ending: _Ending, sentence: int, steps: Sequence[_Step], length: int, fallback: bool
) -> Hypothesis:
    """The hypothesis that ended so, read backwards through the steps."""
    ids, alphas, row = [ending.word], [], ending.parent
    for step in reversed(steps[: ending.step + 1]):
        place = step.place[sentence]
        if step.alphas is not None:
            alphas.append(step.alphas[place, row, :length].float())
        ids.append(step.words[place][row])
        row = step.parents[place][row]
    return Hypothesis(
        ids=tuple(reversed(ids[:-1])),  # without y_0
        cost=ending.cost,
        key=ending.key,
        alphas=torch.stack(alphas[::-1]).cpu() if alphas else None,
        finished=ending.finished,
        fallback=fallback,
    )
