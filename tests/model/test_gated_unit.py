import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rnnsearch.model.gated_unit import GatedUnit
from rnnsearch.model.kernels import kernels_for

EXAMPLE = json.loads((Path(__file__).parents[1] / "golden" / "worked_example.json").read_text())


def scan(
    unit: GatedUnit, inputs: Tensor, initial: Tensor, mask: Tensor | None = None, *, reverse: bool = False
) -> Tensor:
    mask = torch.ones(inputs.shape[:2], dtype=torch.bool) if mask is None else mask
    return unit.scan(kernels_for(inputs.device), "float64", inputs, mask, initial, reverse=reverse)


@pytest.fixture
def unit() -> Callable[..., GatedUnit]:
    def make(seed: int = 0, inputs: int = 3, units: int = 4) -> GatedUnit:
        made = GatedUnit(inputs, units).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        return made

    return make


def worked_example() -> tuple[GatedUnit, Tensor, Tensor, Tensor]:
    """The unit, x, s_{i-1} and C c_i of the worked example."""
    unit = GatedUnit(2, 2).double()
    values = {name: torch.tensor(EXAMPLE[name], dtype=torch.float64) for name in EXAMPLE if name[0] in "WUC"}
    unit.load_state_dict(
        {
            "W": torch.cat([values[name] for name in ("W", "Wz", "Wr")]),
            "U": torch.cat([values[name] for name in ("U", "Uz", "Ur")]),
            "b": torch.zeros(6, dtype=torch.float64),
        }
    )
    step = EXAMPLE["gru_step"]
    context = torch.tensor(EXAMPLE["earlier_state"]["context"], dtype=torch.float64)
    constant = torch.cat([values[name] for name in ("C", "Cz", "Cr")]) @ context
    x, state = (torch.tensor(step[name], dtype=torch.float64) for name in ("y_prev_embedding", "s_prev"))
    return unit, x, state, constant


@pytest.mark.usefixtures("kernels")
def test_trap_1_the_reset_gate_multiplies_the_state_before_the_matrix() -> None:
    unit, x, state, constant = worked_example()
    one = torch.ones(1, 1, dtype=torch.bool)
    kernels = kernels_for(x.device)
    moved = unit.scan(kernels, "float64", x[None, None], one, state[None], constant[None])[0, 0]
    expected = torch.tensor(EXAMPLE["gru_step"]["s"], dtype=torch.float64)
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-6)
    r = torch.tensor(EXAMPLE["gru_step"]["r"], dtype=torch.float64)
    z = torch.tensor(EXAMPLE["gru_step"]["z"], dtype=torch.float64)
    after = torch.tanh(unit.W[:2] @ x + r * (unit.U[:2] @ state) + constant[:2])
    assert not torch.allclose((1 - z) * state + z * after, moved, atol=1e-3)


@pytest.mark.usefixtures("kernels")
def test_trap_2_an_update_gate_of_one_takes_the_candidate(unit: Callable[..., GatedUnit]) -> None:
    opened, closed = unit(), unit()
    x, state = torch.randn(2, 1, 1, 4, dtype=torch.float64)
    with torch.no_grad():
        opened.b[4:8], closed.b[4:8] = 50, -50
        r = torch.sigmoid(opened.W[8:] @ x[0, 0, :3] + opened.U[8:] @ state[0, 0] + opened.b[8:])
        candidate = torch.tanh(opened.W[:4] @ x[0, 0, :3] + opened.U[:4] @ (r * state[0, 0]) + opened.b[:4])
    torch.testing.assert_close(scan(opened, x[..., :3], state[0])[0, 0], candidate)
    torch.testing.assert_close(scan(closed, x[..., :3], state[0])[0, 0], state[0, 0])


@pytest.mark.usefixtures("kernels")
def test_a_state_is_held_where_the_mask_is_false(unit: Callable[..., GatedUnit]) -> None:
    made, inputs, initial = (
        unit(),
        torch.randn(4, 2, 3, dtype=torch.float64),
        torch.randn(2, 4, dtype=torch.float64),
    )
    mask = torch.tensor([[1, 1], [1, 0], [0, 0], [1, 0]], dtype=torch.bool)
    states = scan(made, inputs, initial, mask)
    assert torch.equal(states[2, 0], states[1, 0])
    assert torch.equal(states[1:, 1], states[:1, 1].expand(3, -1))
    backwards = scan(made, inputs, initial, mask, reverse=True)
    assert torch.equal(backwards[1:, 1], initial[1:].expand(3, -1))


@pytest.mark.usefixtures("kernels")
def test_reverse_is_the_sequence_read_from_its_end(unit: Callable[..., GatedUnit]) -> None:
    made, inputs, initial = (
        unit(),
        torch.randn(5, 2, 3, dtype=torch.float64),
        torch.randn(2, 4, dtype=torch.float64),
    )
    backwards, flipped = (
        scan(made, inputs, initial, reverse=True),
        scan(made, inputs.flip(0), initial).flip(0),
    )
    torch.testing.assert_close(backwards, flipped, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_inputs_constant_and_initial_state_agree_with_finite_differences(
    unit: Callable[..., GatedUnit], reverse: bool
) -> None:
    made = unit()
    mask = torch.tensor([[1, 1], [1, 0], [1, 0]], dtype=torch.bool)
    inputs = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    initial = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    constant = torch.randn(2, 12, dtype=torch.float64, requires_grad=True)

    def states(*values: Tensor) -> Tensor:
        kernels = kernels_for(values[0].device)
        return made.scan(kernels, "float64", values[0], mask, *values[1:], reverse=reverse)

    assert torch.autograd.gradcheck(states, (inputs, initial, constant))
