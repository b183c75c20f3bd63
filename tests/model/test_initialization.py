import itertools
from collections.abc import Callable

import pytest
import torch

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Network

CONFIG = NetworkConfig(units=50, embedding=40, alignment_units=60, maxout_units=30)


def initialized(seed: int = 1, config: NetworkConfig = CONFIG) -> Network:
    network = Network(config, 300, 400)
    initialize(network, seed)
    return network


@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
def test_trap_10_every_gate_has_an_orthogonal_matrix_of_its_own(kind: str) -> None:
    network = initialized(config=CONFIG.model_copy(update={"kind": kind}))
    matrices = [parameter for name, parameter in network.named_parameters() if name.endswith(".U")]
    assert len(matrices) == (2 if kind == "rnnencdec" else 3)
    blocks = [block for matrix in matrices for block in matrix.detach().split(50)]
    for block in blocks:
        assert (block @ block.t() - torch.eye(50)).abs().max() < 1e-5
    assert all(not torch.allclose(a, b, atol=0.1) for a, b in itertools.pairwise(blocks))


def test_trap_11_attention_starts_uniform_and_its_matrices_learn_from_the_second_update_on(
    make_batch: Callable[..., Batch],
) -> None:
    network = initialized()
    batch = make_batch([3, 6], [4, 4])
    alphas = network.scores(batch).alphas_TBS
    assert torch.allclose(alphas[:, 0, :3], torch.tensor(1 / 3))
    assert torch.allclose(alphas[:, 1], torch.tensor(1 / 6))
    network.loss(batch).backward()
    part = network.alignment
    assert all((matrix.grad == 0).all() for matrix in (part.Wa, part.Ua))
    assert (part.va.grad != 0).any()
    with torch.no_grad():
        part.va -= part.va.grad
    network.zero_grad()
    network.loss(batch).backward()
    assert all((matrix.grad != 0).any() for matrix in (part.Wa, part.Ua))


def test_standard_deviations_are_the_papers() -> None:
    for name, parameter in initialized().named_parameters():
        leaf = name.rpartition(".")[2]
        if parameter.dim() == 1:
            assert (parameter == 0).all(), name  # biases and v_a
        elif leaf != "U":
            assert parameter.std().item() == pytest.approx(
                0.001 if leaf in ("Wa", "Ua") else 0.01, rel=0.1
            ), name
            assert abs(parameter.mean().item()) < 0.1 * parameter.std().item(), name


def test_dot_attention_starts_from_larger_values_and_looks_at_every_word(
    make_batch: Callable[..., Batch],
) -> None:
    network = initialized(config=CONFIG.model_copy(update={"kind": "luong"}))
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 0).all(), name
        elif not name.endswith(".U"):
            assert parameter.abs().max().item() == pytest.approx(0.1, rel=0.05), name
            assert parameter.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1), name
    alphas = network.scores(make_batch([6], [4])).alphas_TBS
    assert alphas.min() > 0.8 / 6
    assert alphas.max() < 1.2 / 6


def test_equal_seeds_give_equal_values_whatever_was_drawn_before() -> None:
    first = initialized(seed=5).state_dict()
    torch.randn(7)
    again, other = initialized(seed=5).state_dict(), initialized(seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["E_trg"], other["E_trg"])
