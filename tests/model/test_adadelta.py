"""Adadelta and Adam against torch's own and against values worked out by hand."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from rnnsearch.model.adadelta import CHUNK, Adadelta, Adam, Optimizer, make_optimizer
from rnnsearch.model.config import TrainConfig


def _gradients(steps: int, size: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    scales = torch.logspace(-4, 1, steps, dtype=torch.float64)
    return [
        (torch.randn(size, generator=generator, dtype=torch.float64) * scale).to(dtype) for scale in scales
    ]


def test_trap_14_two_steps_of_adadelta_give_the_known_value() -> None:
    parameter = torch.ones(1, dtype=torch.float64)
    optimizer = Adadelta(parameter)
    for gradient in (0.5, -0.25):
        optimizer.step(torch.tensor([gradient], dtype=torch.float64), 1.0)
    assert parameter.item() == pytest.approx(0.998414640316, abs=1e-12)


def test_trap_15_epsilon_is_inside_the_roots() -> None:
    parameter = torch.zeros(1, dtype=torch.float64)
    Adadelta(parameter).step(torch.tensor([2.0], dtype=torch.float64), 1.0)
    assert parameter.item() == pytest.approx(-math.sqrt(1e-6) / math.sqrt(0.05 * 4 + 1e-6) * 2, rel=1e-14)


def test_trap_15_accumulators_are_fed_the_clipped_gradient() -> None:
    optimizer = Adadelta(torch.zeros(2, dtype=torch.float64))
    optimizer.step(torch.tensor([3.0, 4.0], dtype=torch.float64), 1 / 5)
    expected = 0.05 * torch.tensor([0.6, 0.8], dtype=torch.float64) ** 2
    torch.testing.assert_close(optimizer.squared_gradient_P, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_adadelta_equals_torchs_within_rounding(dtype: torch.dtype, tolerance: float) -> None:
    size = 1_000
    ours, theirs = torch.ones(size, dtype=dtype), torch.nn.Parameter(torch.ones(size, dtype=dtype))
    optimizer = Adadelta(ours)
    reference = torch.optim.Adadelta([theirs], rho=0.95, eps=1e-6, lr=1)
    for gradient in _gradients(60, size, dtype):
        optimizer.step(gradient, 0.25)
        theirs.grad = gradient * 0.25
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=tolerance, atol=tolerance)


def test_a_buffer_of_several_chunks_is_updated_to_its_end() -> None:
    size = 2 * CHUNK + 3
    ours, theirs = torch.zeros(size), torch.nn.Parameter(torch.zeros(size))
    theirs.grad = torch.linspace(-1, 1, size)
    Adadelta(ours).step(theirs.grad, 1.0)
    torch.optim.Adadelta([theirs], rho=0.95, eps=1e-6, lr=1).step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-9)


def test_adam_equals_torchs_plain_one_within_rounding() -> None:
    size = 100
    ours = torch.ones(size, dtype=torch.float64)
    theirs = torch.nn.Parameter(torch.ones(size, dtype=torch.float64))
    optimizer = Adam(ours, learning_rate=2e-3)
    reference = torch.optim.Adam([theirs], lr=2e-3)
    for gradient in _gradients(30, size):
        theirs.grad = gradient * 0.5
        reference.step()
        optimizer.step(gradient, 0.5)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)


def test_a_rate_that_decays_falls_by_as_much_each_step_to_nothing_after_the_last() -> None:
    size, steps = 100, 8
    ours = torch.ones(size, dtype=torch.float64)
    theirs = torch.nn.Parameter(torch.ones(size, dtype=torch.float64))
    optimizer = Adam(ours, learning_rate=0.1, decay_steps=steps)
    reference = torch.optim.Adam([theirs], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(reference, lambda step: 1 - step / steps)
    for gradient in _gradients(steps, size):
        theirs.grad = gradient.clone()
        reference.step()
        schedule.step()
        optimizer.step(gradient, 1.0)
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)
    before = ours.clone()
    optimizer.step(torch.ones(size, dtype=torch.float64), 1.0)
    assert torch.equal(ours, before)


@pytest.mark.parametrize("settings", [{"decay": "linear"}, {"best_by": "bleu", "dev_bleu_sentences": 0}])
def test_settings_of_a_training_that_do_not_fit_together_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"decay = 'linear'|best_by = 'bleu'"):
        TrainConfig.model_validate(settings)


@pytest.mark.parametrize(
    "settings", [{"optimizer": "adadelta"}, {"optimizer": "adam"}, {"optimizer": "adam", "decay": "linear"}]
)
def test_an_optimiser_goes_on_from_its_buffers_bit_for_bit(settings: dict[str, str]) -> None:
    config = TrainConfig.model_validate({"updates": 12, "learning_rate": 0.01, **settings})

    def run(optimizer: Optimizer, gradients: list[Tensor]) -> None:
        for gradient in gradients:
            optimizer.step(gradient.clone(), 1.0)

    straight = torch.ones(50)
    run(make_optimizer(config, straight), _gradients(10, 50, torch.float32))
    resumed = torch.ones(50)
    first = make_optimizer(config, resumed)
    run(first, _gradients(10, 50, torch.float32)[:5])
    second = make_optimizer(config, resumed)
    for key, buffer_P in second.buffers.items():
        buffer_P.copy_(first.buffers[key])
    second.steps = first.steps
    run(second, _gradients(10, 50, torch.float32)[5:])
    assert torch.equal(straight, resumed)
