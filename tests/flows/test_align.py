"""The stage `align`: where a network looks while it is led along the references."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from rnnsearch.flows import align
from rnnsearch.flows.align import align_shard
from rnnsearch.flows.translate import TranslateError
from rnnsearch.model.batch import Batch
from rnnsearch.model.checkpoint import load_network, write_model
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.network import Network
from rnnsearch.pipeline.encode import ids, index
from rnnsearch.pipeline.schemas import ALIGNMENTS, EOS_ID, PAIRS, SHORTLIST, words

SOURCE = pa.table({"word": ["the", "a", "cat", "dog", "sees", "."]}, schema=SHORTLIST)
TARGET = pa.table({"word": ["le", "un", "chat", "chien", "voit", ".", "dort", "là"]}, schema=SHORTLIST)
TEXT = [
    ("the cat sees a dog .", "le chat voit un chien ."),
    ("a zebra", "un zèbre là"),  # unknown words keep their places
    ("a " * 20 + "cat", "un chat"),
    ("dog", "chien " * 9 + "dort"),
    ("the dog sees", "le chien voit"),
]


def make_model(folder: Path, kind: str) -> Path:
    config = NetworkConfig(kind=kind, units=7, embedding=5, alignment_units=6, maxout_units=4)
    sizes = SOURCE.num_rows + 2, TARGET.num_rows + 2
    network, generator = Network(config, *sizes), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) * 2.5 / parameter.shape[-1] ** 0.5
            )
    write_model(folder, config, sizes, dict(network.state_dict()), None)
    return folder


def pairs() -> pa.Table:
    columns = {
        "corpus": pa.array(["news"] * len(TEXT)).dictionary_encode(),
        "line": pa.array(range(5, 5 + len(TEXT)), pa.int64()),
        "key": pa.nulls(len(TEXT), pa.string()),
        "source": [source for source, _ in TEXT],
        "target": [target for _, target in TEXT],
    }
    return pa.table(columns).cast(PAIRS)


def alone(network: Network, source: str, target: str) -> torch.Tensor:
    """The weights of one pair under teacher forcing: its words down, the source words and `</s>` across."""
    sides = [[*ids(text, index(words_)), EOS_ID] for text, words_ in ((source, SOURCE), (target, TARGET))]
    x, y = (torch.tensor(side)[:, None] for side in sides)
    ones = [torch.ones_like(side, dtype=torch.bool) for side in (x, y)]
    alphas = network.scores(Batch(x, ones[0], y, ones[1])).alphas_TBS
    assert alphas is not None
    return alphas[:-1, 0]


@pytest.mark.parametrize("kind", ["rnnsearch", "luong"])
@pytest.mark.parametrize("together", [2, 32])
def test_each_word_of_a_reference_is_linked_where_its_pair_alone_would_link_it(
    tmp_path: Path, kind: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(align, "_TOGETHER", together)
    model = make_model(tmp_path / "model", kind)
    network = load_network(model)
    table = align_shard(pairs(), model, SOURCE, TARGET).alignments
    assert table.schema.equals(ALIGNMENTS, check_metadata=True)
    for row, (source, target) in zip(table.to_pylist(), TEXT, strict=True):
        weights = alone(network, source, target)
        ends = len(words(source))
        assert (row["source_words"], row["target_words"]) == (ends, len(words(target))) == (
            weights.shape[1] - 1, weights.shape[0],
        )  # fmt: skip
        expected = [f"{i}-{j}" for j, i in enumerate(weights.argmax(dim=1).tolist()) if i != ends]
        assert row["links"].split() == expected
        entropy = -(weights.double() * weights.double().log()).sum().item()
        assert row["entropy"] == pytest.approx(1e6 * entropy, rel=1e-4)
    assert sum(len(row.split()) for row in table["links"].to_pylist()) > 10


def test_a_network_without_attention_cannot_align(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "rnnencdec")
    with pytest.raises(TranslateError, match="no attention to align with"):
        align_shard(pairs(), model, SOURCE, TARGET)


def test_shortlists_of_another_training_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TranslateError, match="give the shortlists of its training"):
        align_shard(pairs(), make_model(tmp_path / "model", "rnnsearch"), TARGET, SOURCE)


def test_a_shard_without_rows_has_no_links(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "rnnsearch")
    assert align_shard(pairs().slice(0, 0), model, SOURCE, TARGET).alignments.num_rows == 0
