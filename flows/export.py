"""A system as a folder that `Translator.load` reads on a machine without the store.

model.safetensors   the parameters that translate: the best by dev, or the last
config.json         the network and its vocabulary sizes
source.shortlist    one word a line, the most frequent first
target.shortlist
text.json           how text becomes tokens, and the search of the evaluation
README.md           the model card
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rnnsearch.flows.places import check_new_folder, new_folder
from rnnsearch.flows.report.text import markdown_text
from rnnsearch.flows.translate import check_sizes
from rnnsearch.flows.translator import SOURCE, TARGET, TEXT, Described, TextConfig
from rnnsearch.model.checkpoint import BEST, CONFIG, MODEL, load_network
from rnnsearch.model.config import NetworkConfig, SearchConfig
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.store import Store

CARD = "README.md"


class CardScore(NamedTuple):
    """A number that was measured with this model."""

    metric: str
    value: str
    signature: str
    artifact: Digest


class Card(NamedTuple):
    """What a reader should know of a model beyond its files."""

    name: str
    corpora: Sequence[tuple[str, str]]  # name and licence of what it was trained on
    training: Mapping[str, str]  # such as updates, pairs, device
    scores: Sequence[CardScore]
    recipe: Digest  # of its training


def export_model(
    store: Store,
    folder: Path,
    *,
    model: Digest,
    source: Digest,
    target: Digest,
    text: TextConfig,
    search: SearchConfig,
    card: Card,
) -> None:
    """Write the system into the new `folder`, whole or not at all.

    `model` is the artifact of a training, `source` and `target` are its shortlists. Raises UsageError where the folder
    is there already or cannot be made, TranslateError where model and shortlists do not belong together.
    """
    check_new_folder(folder)
    trained = store.local_folder(model)
    shortlists = {SOURCE: _table(store, source), TARGET: _table(store, target)}
    network = load_network(trained)
    check_sizes(network, *shortlists.values())
    with new_folder(folder, store.backend) as building:
        best = (trained / BEST).exists()
        shutil.copyfile(trained / (BEST if best else MODEL), building / MODEL)
        shutil.copyfile(trained / CONFIG, building / CONFIG)
        for name, shortlist in shortlists.items():
            _write(building / name, "".join(word + "\n" for word in shortlist["word"].to_pylist()))
        _write(
            building / TEXT,
            Described(name=card.name, text=text, search=search).model_dump_json(indent=2) + "\n",
        )
        parameters = sum(parameter.numel() for parameter in network.parameters())
        sizes = [shortlist.num_rows for shortlist in shortlists.values()]
        _write(building / CARD, model_card(card, network.config, sizes, parameters, text, model, best=best))


def model_card(
    card: Card,
    network: NetworkConfig,
    words: Sequence[int],
    parameters: int,
    text: TextConfig,
    model: Digest,
    *,
    best: bool,
) -> str:
    """The card in Markdown. Equal arguments give equal text; foreign names are escaped."""
    tokenize = text.tokenize
    kinds = {
        "rnnsearch": "RNNsearch: bidirectional encoder, soft search over the source (Bahdanau, Cho, Bengio 2015)",
        "rnnencdec": "RNNencdec: the whole source in one vector, the paper's baseline",
        "luong": "dot attention in place of the paper's, otherwise the same parts",
    }
    facts = {
        "model": kinds[network.kind],
        "languages": f"{tokenize.source_language} to {tokenize.target_language}",
        "decoder order": network.decoder_order,
        "biases": network.biases,
        "units, embedding": f"{network.units}, {network.embedding}",
        "words": f"{words[0]:,} source, {words[1]:,} target, and `[UNK]`",
        "parameters": f"{parameters:,} ({'the best by dev' if best else 'the last'})",
        **{_cell(name): _cell(value) for name, value in card.training.items()},
        "artifact": f"`{model}`",
        "recipe": f"`{card.recipe}`",
    }
    scores = [
        f"| {_cell(one.metric)} | {_cell(one.value)} | `{one.signature.replace('`', '')}` | `{one.artifact[:12]}` |"
        for one in card.scores
    ]
    if scores:
        scores = ["| metric | value | signature | artifact |", "|---|---|---|---|", *scores]
    corpora = [f"- {_cell(name)}: {_cell(licence) or 'no licence stated'}" for name, licence in card.corpora]
    parts = [
        f"# {_cell(card.name)}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "## Use",
        "",
        "```",
        "rnnsearch translate --model THIS_FOLDER < text",
        "```",
        "",
        "## Scores",
        "",
        *(
            ["| metric | value | signature | artifact |", "|---|---|---|---|", *scores]
            if scores
            else ["None measured."]
        ),
        "",
        "## Trained on",
        "",
        *(corpora or ["Not stated."]),
        "",
        "## Limits",
        "",
        "- It translates one sentence at a time, as its training did; longer text suffers.",
        "- Words outside the shortlists become `[UNK]`.",
        "- It repeats what its training text says, errors and prejudice included.",
        "",
    ]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return markdown_text(text)


def _table(store: Store, digest: Digest) -> pa.Table:
    """The one table of a shortlist's artifact."""
    return pa.concat_tables([store.get_table(file.digest) for file in store.read_artifact(digest).files])


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
