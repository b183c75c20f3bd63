import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rnnsearch.model.attention import Alignment, DotAlignment
from rnnsearch.model.decoder import search_softly
from rnnsearch.model.gated_unit import GatedUnit
from rnnsearch.model.kernels import kernels_for

EXAMPLE = json.loads((Path(__file__).parents[1] / "golden" / "worked_example.json").read_text())
CPU = torch.device("cpu")


def attend(
    keys: Tensor, annotations: Tensor, mask: Tensor, va: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Alphas and contexts of one step."""
    alphas, contexts = keys.new_empty(keys.shape[:2]), keys.new_empty(len(keys), annotations.shape[2])
    kernels_for(CPU).attention(keys, annotations, mask, va).forward(query, alphas, contexts)
    return alphas, contexts


def example(name: str) -> Tensor:
    return torch.tensor(EXAMPLE[name], dtype=torch.float64)


def inputs(sentences: int = 3, positions: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (sentences, positions, 4), (sentences, positions, 6), (4,), (sentences, 4)
    keys, annotations, va, query = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    mask = torch.arange(positions) < torch.tensor([positions, 2, 3][:sentences])[:, None]
    return [keys, annotations, mask, va, query]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("which", ["earlier_state", "later_state"])
def test_the_worked_example_is_met(which: str) -> None:
    expected = EXAMPLE[which]
    annotations = example("annotations")[None]
    keys, query = (
        annotations @ example("Ua").t(),
        example("Wa") @ torch.tensor(expected["s"], dtype=torch.float64),
    )
    alphas, contexts = attend(
        keys, annotations, torch.ones(1, 3, dtype=torch.bool), example("va"), query[None]
    )
    assert alphas[0].tolist() == pytest.approx(expected["alpha"], abs=1e-6)
    assert contexts[0].tolist() == pytest.approx(expected["context"], abs=1e-6)
    assert (torch.tanh(keys[0] + query) @ example("va")).tolist() == pytest.approx(
        expected["scores"], abs=1e-6
    )


@pytest.mark.usefixtures("kernels")
def test_a_constant_added_to_all_scores_changes_no_alpha() -> None:
    keys, annotations, mask, va, query = inputs()
    always_one = torch.full(
        (3, 5, 1), 50.0, dtype=torch.float64
    )  # tanh of it is 1: its weight is the constant
    alphas, _ = attend(keys, annotations, mask, va, query)
    more = torch.cat([keys, always_one], dim=2), annotations, mask
    constant = torch.tensor([7.5], dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    moved, _ = attend(*more, torch.cat([va, constant[0]]), torch.cat([query, constant[1]], dim=1))
    torch.testing.assert_close(moved, alphas, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("kernels")
def test_keys_made_once_equal_keys_made_at_every_step() -> None:
    generator = torch.Generator().manual_seed(0)
    alignment, unit = Alignment(4, 6, 5).double(), GatedUnit(3, 4, 6).double()
    with torch.no_grad():
        for parameter in (*alignment.parameters(), *unit.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    annotations, words = torch.randn(5, 2, 6, dtype=torch.float64), torch.randn(4, 2, 3, dtype=torch.float64)
    initial, mask = torch.randn(2, 4, dtype=torch.float64), torch.ones(5, 2, dtype=torch.bool)
    kernels = kernels_for(CPU)
    keys = alignment.keys(kernels, "float64", annotations)
    searched = search_softly(
        kernels, "float64", unit, alignment, words, mask[:4], initial, keys, annotations, mask
    )
    for i in range(4):
        scores = torch.tanh(
            searched.states_TBN[i] @ alignment.Wa.t() + annotations @ alignment.Ua.t() + alignment.ba
        )
        alphas = (scores @ alignment.va).softmax(dim=0)
        torch.testing.assert_close(searched.alphas_TBS[i], alphas.t(), rtol=0, atol=1e-14)


@pytest.mark.usefixtures("kernels")
def test_the_soft_context_is_not_the_annotation_of_the_highest_alpha() -> None:
    keys, annotations, mask, va, query = inputs()
    alphas, contexts = attend(keys, annotations, mask, va, query)
    hard = annotations[torch.arange(3), alphas.argmax(dim=1)]
    soft = torch.stack([sum(alphas[b, j] * annotations[b, j] for j in range(5)) for b in range(3)])
    torch.testing.assert_close(contexts, soft)
    assert (contexts - hard).norm(dim=1).min() > 0.1


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e6])
def test_trap_6_nothing_is_read_where_the_mask_is_false(poison: float) -> None:
    keys, annotations, mask, va, query = inputs()
    clean = attend(keys, annotations, mask, va, query)
    grad = torch.ones(3, 6, dtype=torch.float64)

    def gradients(keys: Tensor, annotations: Tensor) -> list[Tensor]:
        out = [torch.zeros(3, 4), torch.zeros(3, 5, 4), torch.zeros(3, 4)]
        out = [part.double() for part in out]
        kernels_for(CPU).attention(keys, annotations, mask, va).backward(query, clean[0], grad, *out)
        return out

    expected = gradients(keys, annotations)
    dirty_keys, dirty_annotations = (
        part.masked_fill(~mask[..., None], poison) for part in (keys, annotations)
    )
    for ours, theirs in zip(attend(dirty_keys, dirty_annotations, mask, va, query), clean, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(gradients(dirty_keys, dirty_annotations), expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_trap_8_large_energies_do_not_overflow(dtype: torch.dtype) -> None:
    energies = torch.tensor([1000.0, 999.0, 5000.0])  # the third is padding
    keys = torch.full((1, 3, 3), -100.0, dtype=dtype)
    keys[0].fill_diagonal_(
        100.0
    )  # tanh gives a one for each position's own energy, minus ones for the others'
    va = ((energies - energies.sum()) / 2).to(dtype)  # so that v_j minus the other two is e_j
    alphas, contexts = attend(
        keys,
        torch.eye(3, dtype=dtype)[None],
        torch.tensor([[True, True, False]]),
        va,
        torch.zeros(1, 3, dtype=dtype),
    )
    assert alphas[0].tolist() == pytest.approx([0.731059, 0.268941, 0.0], abs=1e-4)
    assert contexts[0].tolist() == alphas[0].tolist()


@pytest.mark.usefixtures("kernels")
def test_trap_9_a_sentence_without_a_word_has_no_weights_and_no_context() -> None:
    keys, annotations, _, va, query = inputs()
    alphas, contexts = attend(keys, annotations, torch.zeros(3, 5, dtype=torch.bool), va, query)
    assert (alphas == 0).all()
    assert (contexts == 0).all()


def test_dot_attention_is_masked_in_the_same_way() -> None:
    keys, annotations = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    states = torch.randn(2, 3, 4, dtype=torch.float64) * 1000
    mask = torch.arange(5)[:, None] < torch.tensor([5, 2, 0])
    contexts, alphas = DotAlignment(4, 4)(states, keys, annotations, mask)
    assert (alphas[:, ~mask.t()] == 0).all()
    torch.testing.assert_close(alphas.sum(2), torch.tensor([[1.0, 1.0, 0.0]] * 2, dtype=torch.float64))
    assert contexts.isfinite().all()
