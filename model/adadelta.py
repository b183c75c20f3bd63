"""Adadelta (protocol 2; App. B.2), and Adam behind the same interface, on flat buffers of P positions.

Adadelta, with g the clipped gradient, rho = 0.95, eps = 1e-6 and no learning rate:

    E[g2] = rho E[g2] + (1 - rho) g g                 before the step
    d     = sqrt(E[d2] + eps) / sqrt(E[g2] + eps) g
    x     = x - d
    E[d2] = rho E[d2] + (1 - rho) d d                 after it

Clipping is fused: `step` takes the factor that the gradient is to be multiplied by, and reads it once.
"""

from typing import Protocol

import torch
from torch import Tensor

from rnnsearch.model.config import TrainConfig

CHUNK = 262_144  # positions handled at once on a CPU: buffers of 1 MB stay in its cache, 4 to 6 times as fast


class Optimizer(Protocol):
    """Turns summed gradients into a step of `parameters_P`. Its state is flat buffers and a few counts."""

    def step(self, gradients_P: Tensor, factor: float) -> None:
        """Update the parameters with `factor` times the gradients."""

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers of P positions that make the state: what is in them may be read and overwritten."""

    @property
    def steps(self) -> int:
        """Steps taken so far."""

    @steps.setter
    def steps(self, steps: int) -> None: ...


class Adadelta:
    """As the paper uses it; equals `torch.optim.Adadelta(rho=.95, eps=1e-6, lr=1)` within rounding."""

    def __init__(self, parameters_P: Tensor, *, rho: float = 0.95, epsilon: float = 1e-6) -> None:
        """Both running means start at zero."""
        self._parameters_P = parameters_P
        self._rho, self._epsilon = rho, epsilon
        self.squared_gradient_P = torch.zeros_like(parameters_P)  # E[g2]
        self.squared_step_P = torch.zeros_like(parameters_P)  # E[d2]
        self.steps = 0
        self._chunk = CHUNK if parameters_P.device.type == "cpu" else max(1, parameters_P.numel())
        self._scratch = parameters_P.new_empty(3, min(self._chunk, parameters_P.numel()))

    @property
    def buffers(self) -> dict[str, Tensor]:
        """E[g2] and E[d2]."""
        return {"squared_gradient": self.squared_gradient_P, "squared_step": self.squared_step_P}

    @torch.no_grad()
    def step(self, gradients_P: Tensor, factor: float) -> None:
        """One update of the parameters from `factor` times the gradients."""
        rho, epsilon = self._rho, self._epsilon
        buffers = (self._parameters_P, gradients_P, self.squared_gradient_P, self.squared_step_P)
        for parameters, gradients, squared_gradient, squared_step in zip(
            *(torch.split(buffer_P, self._chunk) for buffer_P in buffers), strict=True
        ):
            clipped, step, root = self._scratch[:, : parameters.numel()]
            torch.mul(gradients, factor, out=clipped)
            squared_gradient.mul_(rho).addcmul_(clipped, clipped, value=1 - rho)
            torch.add(squared_gradient, epsilon, out=root).sqrt_()
            torch.add(squared_step, epsilon, out=step).sqrt_().div_(root).mul_(clipped)
            parameters.sub_(step)
            squared_step.mul_(rho).addcmul_(step, step, value=1 - rho)
        self.steps += 1


class Adam:
    """Adam with torch's fused kernel (ours: the paper has only Adadelta)."""

    def __init__(self, parameters_P: Tensor, learning_rate: float, decay_steps: int | None = None) -> None:
        """Both running means start at zero; beta and epsilon are torch's.

        With `decay_steps` the rate falls by the same amount each step and reaches 0 after so many.
        """
        self._learning_rate, self._decay_steps = learning_rate, decay_steps
        self._steps = 0
        self._parameters_P = torch.nn.Parameter(parameters_P)
        self._first_P = torch.zeros_like(parameters_P)
        self._second_P = torch.zeros_like(parameters_P)
        self._count = torch.zeros((), dtype=torch.float32, device=parameters_P.device)
        self._adam = torch.optim.Adam([self._parameters_P], lr=learning_rate, fused=True)
        self._adam.state[self._parameters_P] = {
            "step": self._count,
            "exp_avg": self._first_P,
            "exp_avg_sq": self._second_P,
        }

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The running means of the gradient and of its square."""
        return {"mean_gradient": self._first_P, "mean_squared_gradient": self._second_P}

    @property
    def steps(self) -> int:
        """Steps taken so far: the bias correction goes by it."""
        return self._steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps = steps
        self._count.fill_(steps)

    @torch.no_grad()
    def step(self, gradients_P: Tensor, factor: float) -> None:
        """One update of the parameters from `factor` times the gradients, which are multiplied in place."""
        self._parameters_P.grad = gradients_P.mul_(factor)
        if self._decay_steps is not None:
            left = max(0.0, 1 - self._steps / self._decay_steps)
            self._adam.param_groups[0]["lr"] = self._learning_rate * left
        self._adam.step()
        self._steps += 1


def make_optimizer(config: TrainConfig, parameters_P: Tensor) -> Optimizer:
    """The optimiser that the configuration names, at its start."""
    if config.optimizer == "adam":
        return Adam(parameters_P, config.learning_rate, config.updates if config.decay == "linear" else None)
    return Adadelta(parameters_P)
