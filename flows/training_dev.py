"""What a training measures on dev: its loss, and BLEU of a greedy search. Neither touches what is trained.

Both are cut into parts that do not depend on the number of workers, so neither do the results (protocol trap 19).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from rnnsearch.flows.training_data import Sides, dev_batches
from rnnsearch.flows.training_job import Workers
from rnnsearch.model.batch import Batch
from rnnsearch.model.config import SearchConfig
from rnnsearch.model.search import EOS, UNKNOWN, SearchError, beam_search
from rnnsearch.model.step import Trainer
from rnnsearch.pipeline.bleu import COLUMNS, IntArray, bleu, statistics
from rnnsearch.pipeline.schemas import UNK, sentence

_POSITIONS = 51  # dev batches hold `batch` sentences of 50 words and </s>, and fewer of longer ones
_TOGETHER = 50  # sentences that are searched together: enough for full speed, few enough to share 200 of them
_GREEDY = SearchConfig(  # ends with its first </s>
    beam=1,
    width="narrowing",
    normalize=False,
    max_length_ratio=2,  # a network that knows little yet repeats itself for as long as it may
)


class DevLoss(NamedTuple):
    """Loss of the dev set, in nats summed over its tokens."""

    loss: float
    tokens: int  # </s> counted
    sentences: int


def dev_loss(trainer: Trainer, dev: Sides, workers: Workers) -> DevLoss:
    """Loss of the whole dev set; each of its batches is computed by one of the workers."""
    batch = trainer.config.batch
    cuts = dev_batches(dev, batch, batch * _POSITIONS)
    device = trainer.flat.parameters_P.device
    losses = torch.zeros(len(cuts), dtype=torch.float64, device=device)
    with torch.no_grad():
        for number in range(workers.rank, len(cuts), workers.size):
            part = moved(dev.batch(cuts[number]), device)
            losses[number] = trainer.network.loss(part, trainer.config.precision)
    if workers.sum is not None:
        workers.sum(losses)
    tokens = sum(len(row) + 1 for row in dev.target)
    return DevLoss(math.fsum(losses.tolist()), tokens, len(dev.target))


def dev_bleu(trainer: Trainer, dev: Sides, workers: Workers) -> float | None:
    """Tokenised BLEU, 0 to 100, of greedy translations of these sentences; each is searched by one worker.

    It is that of the words: ids stand for the words of the shortlist one to one, a reference's rare word is one that
    no hypothesis can have, and `[UNK]` never matches. None where the network gives no numbers, on every worker alike:
    none is left waiting for one that failed.
    """
    counts = torch.zeros(COLUMNS, dtype=torch.float64, device=trainer.flat.parameters_P.device)
    longest_first = sorted(range(len(dev.source)), key=lambda row: -len(dev.source[row]))
    groups = math.ceil(len(longest_first) / _TOGETHER)
    try:
        for group in range(workers.rank, groups, workers.size):
            counts += torch.from_numpy(_searched(trainer, dev, longest_first[group::groups])).to(counts)
    except SearchError:
        counts.fill_(torch.nan)
    if workers.sum is not None:
        workers.sum(counts)
    if not bool(counts.isfinite().all()):
        return None
    return bleu(counts.cpu().numpy().astype(np.int64)).score


def _searched(trainer: Trainer, dev: Sides, rows: Sequence[int]) -> IntArray:
    """The statistics of these sentences, summed."""
    config = _GREEDY.model_copy(update={"precision": trainer.config.precision})
    found = beam_search(trainer.network, [dev.source[row].tolist() for row in rows], config)
    hypotheses = [_text(hypothesis.ids) for (hypothesis,) in found]
    totals: IntArray = statistics(hypotheses, [_text(dev.target[row].tolist()) for row in rows]).sum(axis=0)
    return totals


def _text(ids: Sequence[int]) -> str:
    return sentence(UNK if word == UNKNOWN else str(word) for word in ids if word != EOS)


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device."""
    if device.type == "cpu":
        return batch
    return Batch(*(part.to(device, non_blocking=True) for part in batch))
