"""Stage `align`: where a network looks while it is led along the references of the test set.

Links made by people join a sentence with its reference, so the attention that they can judge is that under teacher
forcing, not that of a translation with words of its own.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rnnsearch.flows.translate import TranslateError, check_sizes, load
from rnnsearch.model.batch import Batch
from rnnsearch.model.network import Network
from rnnsearch.pipeline.alignment import entropies, hard_links, links_text
from rnnsearch.pipeline.batches import pad
from rnnsearch.pipeline.encode import ids, index
from rnnsearch.pipeline.schemas import ALIGNMENTS

_TOGETHER = 32  # sentences
_MICRO = 1_000_000

Ids = npt.NDArray[np.int64]


class Aligned(NamedTuple):
    """One row for each row of the shard, in its order."""

    alignments: pa.Table


def align_shard(tokens: pa.Table, model: Path, source: pa.Table, target: pa.Table) -> Aligned:
    """Link the words of tokenised pairs by the largest weight; `model` is a training's folder.

    Raises TranslateError for a network without attention, and where shortlists and model differ in size.
    """
    network = load(model, "float32")
    check_sizes(network, source, target)
    sides = [
        [np.array(ids(text, known), np.int64) for text in tokens[name].to_pylist()]
        for name, known in (("source", index(source)), ("target", index(target)))
    ]
    links, spread = [""] * tokens.num_rows, [0] * tokens.num_rows
    for rows in _by_length(*sides):
        pairs = [[side[row] for row in rows] for side in sides]
        for row, weights in zip(rows, _weights(network, *pairs), strict=True):
            links[row] = links_text(hard_links(weights))
            spread[row] = round(_MICRO * float(entropies(weights).sum()))
    columns = [
        tokens["corpus"],
        tokens["line"],
        *([len(sentence) for sentence in side] for side in sides),
        links,
        spread,
    ]
    return Aligned(pa.table(columns, schema=ALIGNMENTS))


def _by_length(sources: Sequence[Ids], targets: Sequence[Ids]) -> Iterator[list[int]]:
    """Rows of similar length together."""
    order = sorted(range(len(sources)), key=lambda row: (len(targets[row]), len(sources[row])))
    for first in range(0, len(order), _TOGETHER):
        yield order[first : first + _TOGETHER]


def _weights(
    network: Network, sources: Sequence[Ids], targets: Sequence[Ids]
) -> Iterator[npt.NDArray[np.float64]]:
    """For each pair the weights of its target words over its source words and `</s>`."""
    padded = (pad(sources), pad(targets))
    alphas_TBS = network.scores(
        Batch(*(torch.from_numpy(part) for side in padded for part in side))
    ).alphas_TBS
    if alphas_TBS is None:
        raise TranslateError("the model has no attention to align with: RNNencdec looks at no source word")
    for b, (source, target) in enumerate(zip(sources, targets, strict=True)):
        yield alphas_TBS[: len(target), b, : len(source) + 1].double().numpy()
