"""Stage `translate`: a shard of tokenised test sentences through the best model of a training.

It stands on the bridge because it needs both islands: the words of `pipeline`, the search of `model`.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import torch

from rnnsearch.flows.errors import UsageError
from rnnsearch.model.checkpoint import load_network
from rnnsearch.model.config import SearchConfig
from rnnsearch.model.network import Network
from rnnsearch.model.search import EOS, Hypothesis, beam_search
from rnnsearch.pipeline.encode import ids, index
from rnnsearch.pipeline.schemas import HYPOTHESES, SPECIALS, sentence


class TranslateError(UsageError):
    """A model, a shortlist or an input that do not belong together."""


class Translated(NamedTuple):
    """One row for each row of the shard, in its order."""

    hypotheses: pa.Table


def translate_shard(
    tokens: pa.Table, model: Path, source: pa.Table, target: pa.Table, config: SearchConfig
) -> Translated:
    """Translate the sources of tokenised pairs; `model` is a training's folder, the others its shortlists.

    Each row holds the best hypothesis. Where none ended and unfinished ones are not kept, it is empty, not
    finished and of infinite cost. Raises TranslateError where shortlists and model differ in size.
    """
    network = load(model, config.precision)
    check_sizes(network, source, target)
    sources = tokens["source"].to_pylist()
    source_index = index(source)
    found = beam_search(network, [ids(text, source_index) for text in sources], config)
    names = vocabulary(target)
    empty = Hypothesis((), math.inf, math.inf, None, finished=False, fallback=config.retry_unknown)
    best = [hypotheses[0] if hypotheses else empty for hypotheses in found]
    columns = [
        tokens["corpus"],
        tokens["line"],
        sources,
        [sentence(words_of(hypothesis, names)) for hypothesis in best],
        [hypothesis.cost for hypothesis in best],
        [hypothesis.finished for hypothesis in best],
        [hypothesis.fallback for hypothesis in best],
        [None if hypothesis.alphas is None else hypothesis.alphas.tolist() for hypothesis in best],
    ]
    return Translated(pa.table(columns, schema=HYPOTHESES))


@functools.lru_cache(maxsize=2)
def load(model: Path, precision: str) -> Network:
    """The network of a training's folder, read once in a process; its folder never changes.

    With bfloat16 only products are of that precision, and the network is in float32.
    """
    return load_network(model).to(torch.float64 if precision == "float64" else torch.float32)


def check_sizes(network: Network, source: pa.Table, target: pa.Table) -> None:
    """Raise TranslateError where the network was trained with other shortlists than these."""
    sizes = network.encoder.E_src.shape[0], network.E_trg.shape[0]
    given = source.num_rows + len(SPECIALS), target.num_rows + len(SPECIALS)
    if sizes != given:
        raise TranslateError(
            f"the shortlists make {given[0]} source and {given[1]} target ids, but the network has {sizes[0]} "
            f"and {sizes[1]}; give the shortlists of its training"
        )


def vocabulary(shortlist: pa.Table) -> Sequence[str]:
    """The word of each id."""
    return [*SPECIALS, *shortlist["word"].to_pylist()]


def words_of(hypothesis: Hypothesis, names: Sequence[str]) -> list[str]:
    """The words of a hypothesis, `</s>` left out."""
    return [names[word] for word in hypothesis.ids if word != EOS]
