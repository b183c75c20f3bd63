"""Beam search over a trained network (PAPER 4), batched over sentences and their hypotheses.

The source is encoded once a sentence; a row is one hypothesis, and the rows of a sentence stand together. At every
step each row is continued by its best words, the best continuations of a sentence are kept, and those that end leave
the beam. Sentences that are decided leave the batch.

Letters: B sentences, W hypotheses of each, R = B W rows, S source words with `</s>`, K target words.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rnnsearch.model.config import SearchConfig
from rnnsearch.model.network import Network

EOS = 0
UNKNOWN = 1

ROWS = 384  # hypotheses a step: enough for the products to run at full speed
POSITIONS = 32_768  # rows x source words a step: bounds the alignment's memory (131 MB at n' = 1000 in float32)
BLOCK = 128  # words looked at together when the best of a row are sought


class SearchError(ValueError):
    """A sentence or a network that cannot be searched."""


class Hypothesis(NamedTuple):
    """One translation of one sentence."""

    ids: tuple[int, ...]  # with the `</s>` that ends it, where it ended
    cost: float  # summed -log p in nats, `</s>` included
    key: float  # what hypotheses are ranked by: cost / len(ids) if normalised, else the cost
    alphas: Tensor | None  # (len(ids), S) float32: weights on the source and its `</s>`; None without attention
    finished: bool  # false: it had not ended when the steps were used up
    fallback: bool  # true: nothing ended without [UNK], and it was allowed again


class _Ending(NamedTuple):
    """A hypothesis that left the beam at `step`: continued from `row` of that step by `word`."""

    key: float
    step: int
    row: int
    word: int
    cost: float
    finished: bool


class _Step(NamedTuple):
    """What is remembered of a step: where its rows came from, and their attention."""

    parents: list[int]  # row of the step before
    words: list[int]  # word that made the row
    alphas_RS: Tensor | None


def beam_search(
    network: Network,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first, at most `config.n_best`.

    `sentences` are source ids without `</s>`. Which sentences are searched together changes nothing but the last
    bits of the network's sums. Hypotheses that ended come first; unfinished ones follow if `keep_unfinished`, so the
    list of a sentence may be empty otherwise. The search of a sentence stops when nothing better can come: the cost
    of a hypothesis only grows, and its length is bounded.

    An empty sentence has the empty translation, at the cost that the network gives it.

    `before_step` is called before each step; what it raises ends the search.

    Raises SearchError for ids outside the network's vocabulary, and where the network gives no number.
    """
    for position, sentence in enumerate(sentences):
        if sentence and not (0 <= min(sentence) and max(sentence) < network.source_size):
            raise SearchError(
                f"sentence {position} has ids from {min(sentence)} to {max(sentence)}, but the network knows "
                f"{network.source_size} source words; encode it with the shortlist the network was trained on"
            )
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    todo = list(range(len(sentences)))
    setting: SearchConfig | None = config
    while todo and setting is not None:
        fallback = config.unknown == "forbid" and setting.unknown == "allow"
        for batch in _batches([len(sentences[i]) + 1 for i in todo], setting.beam):
            chosen = [todo[i] for i in batch]
            results = _search_batch(network, [sentences[i] for i in chosen], setting, before_step, fallback)
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
    """Positions of sentences to search together: of like length, longest first, as many as the bounds allow."""
    batches: list[list[int]] = []
    room = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if room == 0:
            room = max(1, min(ROWS // beam, POSITIONS // (beam * lengths[i])))
            batches.append([])
        batches[-1].append(i)
        room -= 1
    return batches


@torch.inference_mode()
def _search_batch(
    network: Network,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None,
    fallback: bool,
) -> list[list[Hypothesis]]:
    """Search these sentences together."""
    lengths = [len(sentence) + 1 for sentence in sentences]
    limits = [
        max(1, math.floor(config.max_length_ratio * n) + config.max_length_extra) if n > 1 else 1 for n in lengths
    ]
    least = [
        min(math.floor(config.min_length_ratio * n), limit - 1) for n, limit in zip(lengths, limits, strict=True)
    ]
    source_SB, mask_SB = _padded(sentences, network.device)
    memory = network.encode(source_SB, mask_SB)
    state = network.start(memory)
    word_R: Tensor | None = None
    live = list(range(len(sentences)))  # the sentences still searched, as positions in `sentences`
    cost_BW = torch.zeros(len(live), 1, dtype=torch.float64)
    endings: list[list[_Ending]] = [[] for _ in sentences]
    steps = [_Step([], [], None)]
    while live:
        if before_step is not None:
            before_step()
        step = len(steps) - 1
        width = cost_BW.shape[1]
        prediction = network.predict(memory, state, word_R)
        logp_RK = prediction.logp
        for b, i in enumerate(live):  # forbidden words: minus infinity, not renormalised
            rows = slice(b * width, (b + 1) * width)
            if lengths[i] == 1:
                logp_RK[rows, EOS + 1 :] = -torch.inf
            elif step < least[i]:
                logp_RK[rows, EOS] = -torch.inf
        if config.unknown == "forbid":
            logp_RK[:, UNKNOWN] = -torch.inf
        if prediction.alpha is not None:
            steps[-1] = steps[-1]._replace(alphas_RS=prediction.alpha.float())

        value_RC, word_RC = _best_words(logp_RK, config.beam)
        if value_RC.isnan().any():
            raise SearchError("the network's log-probabilities are not numbers; its weights are damaged or diverged")
        count = value_RC.shape[1]
        total_BC = (cost_BW.flatten()[:, None] - value_RC.double().cpu()).view(len(live), width * count)
        order_BC = total_BC.argsort(dim=1, stable=True)  # equal costs: the better parent first, then the lower word

        next_live: list[int] = []
        next_sentences: list[int] = []
        next_rows: list[list[tuple[float, int, int]]] = []  # cost, parent row, word
        total = total_BC.gather(1, order_BC)[:, : config.beam].tolist()
        order = order_BC[:, : config.beam].tolist()
        words = word_RC.cpu().view(len(live), width * count).gather(1, order_BC[:, : config.beam]).tolist()
        for b, i in enumerate(live):
            room = config.beam - (len(endings[i]) if config.width == "narrowing" else 0)
            rows_ = []
            for cost, place, word in zip(total[b][:room], order[b][:room], words[b][:room], strict=True):
                if cost == math.inf:
                    break
                row = b * width + place // count
                if word == EOS:
                    key = cost / (step + 1) if config.normalize else cost
                    endings[i].append(_Ending(key, step, row, word, cost, finished=True))
                elif step + 1 == limits[i]:
                    key = cost / (step + 1) if config.normalize else cost
                    endings[i].append(_Ending(key, step, row, word, cost, finished=False))
                else:
                    rows_.append((cost, row, word))
            if rows_ and not _decided(endings[i], rows_[0][0], limits[i], config):
                next_live.append(i)
                next_sentences.append(b)
                next_rows.append(rows_)
        if not next_live:
            break
        if len(next_live) < len(live):
            memory = memory.select(torch.tensor(next_sentences, device=network.device))
        live = next_live
        width = max(len(rows_) for rows_ in next_rows)
        padded = [rows_ + [(math.inf, rows_[0][1], rows_[0][2])] * (width - len(rows_)) for rows_ in next_rows]
        cost_BW = torch.tensor([[cost for cost, _, _ in rows_] for rows_ in padded], dtype=torch.float64)
        parents = [row for rows_ in padded for _, row, _ in rows_]
        made = [word for rows_ in padded for _, _, word in rows_]
        word_R = torch.tensor(made, device=network.device)
        state = network.advance(prediction.carry.select(torch.tensor(parents, device=network.device)), word_R)
        steps.append(_Step(parents, made, None))
    return [
        [
            _traced(ending, steps, length, fallback)
            for ending in sorted(some, key=lambda ending: (not ending.finished, ending.key))[: config.n_best]
            if ending.finished or config.keep_unfinished
        ]
        for some, length in zip(endings, lengths, strict=True)
    ]


def _padded(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sentences with their `</s>`, time first, and where their words are."""
    lengths = torch.tensor([len(sentence) + 1 for sentence in sentences])
    source_BS = torch.full((len(sentences), int(lengths.max())), EOS)
    for b, sentence in enumerate(sentences):
        source_BS[b, : len(sentence)] = torch.tensor(sentence, dtype=torch.int64)
    mask_BS = torch.arange(source_BS.shape[1]) < lengths[:, None]
    return source_BS.t().contiguous().to(device), mask_BS.t().contiguous().to(device)


def _best_words(logp_RK: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best words of each row and their log-probabilities, by ascending id.

    The best words lie in the blocks with the best maxima, so that most of a row is passed over once."""
    rows, words = logp_RK.shape
    count = min(count, words)
    if words < 4 * BLOCK * count:
        value_RC, word_RC = logp_RK.topk(count, dim=1)
    else:
        blocks = words // BLOCK
        body_RNW = logp_RK[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
        best_RC = body_RNW.amax(dim=2).topk(count, dim=1).indices
        some_RC = body_RNW.gather(1, best_RC[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
        id_RC = (best_RC[:, :, None] * BLOCK + torch.arange(BLOCK, device=logp_RK.device)).flatten(1)
        tail = torch.arange(blocks * BLOCK, words, device=logp_RK.device).expand(rows, -1)
        some_RC = torch.cat([some_RC, logp_RK[:, blocks * BLOCK :]], dim=1)
        id_RC = torch.cat([id_RC, tail], dim=1)
        value_RC, place_RC = some_RC.topk(count, dim=1)
        word_RC = id_RC.gather(1, place_RC)
    word_RC, order_RC = word_RC.sort(dim=1)
    return value_RC.gather(1, order_RC), word_RC


def _decided(endings: Sequence[_Ending], cost: float, limit: int, config: SearchConfig) -> bool:
    """Whether no hypothesis that grows from one of this cost can be among the best `n_best`.

    Costs only grow. Divided by its length, a hypothesis of cost c ends at c / limit or worse."""
    if len(endings) < config.n_best:
        return False
    worst = heapq.nsmallest(config.n_best, (ending.key for ending in endings))[-1]
    return worst <= (cost / limit if config.normalize else cost)


def _traced(ending: _Ending, steps: Sequence[_Step], length: int, fallback: bool) -> Hypothesis:
    """The hypothesis that ended so, read backwards through the steps."""
    ids = [ending.word]
    alphas = []
    row = ending.row
    for step in range(ending.step, -1, -1):
        alphas_RS = steps[step].alphas_RS
        if alphas_RS is not None:
            alphas.append(alphas_RS[row, :length])
        if step > 0:
            ids.append(steps[step].words[row])
            row = steps[step].parents[row]
    return Hypothesis(
        ids=tuple(reversed(ids)),
        cost=ending.cost,
        key=ending.key,
        alphas=torch.stack(alphas[::-1]).cpu() if alphas else None,
        finished=ending.finished,
        fallback=fallback,
    )
