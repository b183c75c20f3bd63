"""The gated hidden unit of the encoder and the decoder (App. A.1.1).

Shapes: B sentences, T positions, M the size of the input, N = n units, G = 3n gates, H the size of a context.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from rnnsearch.model.affine import matrix_gradient
from rnnsearch.model.kernels import Factor, Kernels, Precision


class GatedUnit(nn.Module):
    """One step of the paper's recurrent unit; not `torch.nn.GRUCell`.

        s~_i = tanh(W x_i + U (r_i o s_{i-1}) + C c_i)
        z_i  = sigmoid(W_z x_i + U_z s_{i-1} + C_z c_i)
        r_i  = sigmoid(W_r x_i + U_r s_{i-1} + C_r c_i)
        s_i  = (1 - z_i) o s_{i-1} + z_i o s~_i

    The reset gate is applied before `U`, not after it, and z_i = 1 takes the new state, where
    torch keeps the old one. The matrices of s~, z and r lie one below the other, in this order.
    """

    def __init__(
        self, inputs: int, units: int, context: int | None = None, *, gate_biases: bool = True
    ) -> None:
        """Leave `context` out for a unit without C; with `gate_biases` false only s~ has a bias."""
        super().__init__()
        self.units = units
        self.W = nn.Parameter(torch.zeros(3 * units, inputs))
        self.U = nn.Parameter(torch.zeros(3 * units, units))
        self.C = None if context is None else nn.Parameter(torch.zeros(3 * units, context))
        self.b = nn.Parameter(torch.zeros(3 * units if gate_biases else units))

    @property
    def bias(self) -> Tensor:
        """The biases of all three, (G,)."""
        return functional.pad(self.b, (0, 3 * self.units - len(self.b)))

    def scan(
        self,
        kernels: Kernels,
        precision: Precision,
        inputs_TBM: Tensor,
        mask_TB: Tensor,
        initial_BN: Tensor,
        constant_BG: Tensor | None = None,
        *,
        reverse: bool = False,
    ) -> Tensor:
        """Return the states of a whole sequence, (T, B, N), held where `mask_TB` is false.

        `constant_BG` is added to the pre-activations of every position. In `reverse` the last position is
        read first.
        """
        states_TBN: Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
            kernels,
            precision,
            reverse,
            mask_TB,
            inputs_TBM,
            self.W,
            self.U,
            self.bias,
            initial_BN,
            constant_BG,
        )
        return states_TBN


class Recurrence(NamedTuple):
    """The state's part of a gated unit, forwards and backwards, for the hand-written passes."""

    kernels: Kernels
    units: int
    candidate: Factor  # U
    gates: Factor  # U_z over U_r

    @classmethod
    def forwards(cls, kernels: Kernels, precision: Precision, U: Tensor) -> "Recurrence":
        """Make U ready for `step`."""
        n = U.shape[1]
        return cls(kernels, n, kernels.factor(U[:n], precision), kernels.factor(U[n:], precision))

    @classmethod
    def backwards(cls, kernels: Kernels, precision: Precision, U: Tensor) -> "Recurrence":
        """Make U ready for `step_back`."""
        n = U.shape[1]
        return cls(kernels, n, kernels.factor(U[:n].t(), precision), kernels.factor(U[n:].t(), precision))

    def step(
        self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, reset_BN: Tensor, next_BN: Tensor
    ) -> None:
        """Write r o s and the next state; `gates_BG` goes in as W x + C c + b and comes out as s~ | z | r."""
        self.kernels.multiply(state_BN, self.gates, gates_BG[:, self.units :], add=True)
        self.kernels.reset(gates_BG, state_BN, reset_BN)
        self.kernels.multiply(reset_BN, self.candidate, gates_BG[:, : self.units], add=True)
        self.kernels.update(gates_BG, state_BN, mask_B, next_BN)

    def step_back(
        self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, grad_BN: Tensor, grad_gates_BG: Tensor
    ) -> None:
        """Turn the gradient of the next state into that of the state; write that of the pre-activations."""
        n = self.units
        self.kernels.update_backward(gates_BG, state_BN, mask_B, grad_BN, grad_gates_BG)
        grad_reset_BN = torch.empty_like(grad_BN)
        self.kernels.multiply(grad_gates_BG[:, :n], self.candidate, grad_reset_BN)
        self.kernels.reset_backward(gates_BG, state_BN, grad_reset_BN, grad_BN, grad_gates_BG)
        self.kernels.multiply(grad_gates_BG[:, n:], self.gates, grad_BN, add=True)


def recurrent_gradient(
    kernels: Kernels,
    precision: Precision,
    U: Tensor,
    grad_gates_TBG: Tensor,
    states_TBN: Tensor,
    resets_TBN: Tensor,
) -> Tensor | None:
    """Return the gradient of U over all steps; `states_TBN` are those that the steps started from."""
    n = U.shape[1]
    grad_gates_RG = grad_gates_TBG.flatten(0, 1)
    return matrix_gradient(
        kernels,
        precision,
        U,
        (grad_gates_RG[:, :n], resets_TBN.flatten(0, 1)),
        (grad_gates_RG[:, n:], states_TBN.flatten(0, 1)),
    )


class _Scan(Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        precision: Precision,
        reverse: bool,
        mask_TB: Tensor,
        inputs_TBM: Tensor,
        W: Tensor,
        U: Tensor,
        bias_G: Tensor,
        initial_BN: Tensor,
        constant_BG: Tensor | None,
    ) -> Tensor:
        length, sentences, _ = inputs_TBM.shape
        n = U.shape[1]
        gates_TBG = inputs_TBM.new_empty(length, sentences, 3 * n)
        gates_TBG.copy_(bias_G if constant_BG is None else bias_G + constant_BG)
        kernels.multiply(
            inputs_TBM.flatten(0, 1), kernels.factor(W, precision), gates_TBG.flatten(0, 1), add=True
        )
        states = inputs_TBM.new_empty(
            length + 1, sentences, n
        )  # position -1, or T in reverse, is the initial one
        before_TBN, after_TBN = (states[1:], states[:-1]) if reverse else (states[:-1], states[1:])
        states[length if reverse else 0] = initial_BN
        resets_TBN = inputs_TBM.new_empty(length, sentences, n)
        recurrence = Recurrence.forwards(kernels, precision, U)
        for t in reversed(range(length)) if reverse else range(length):
            recurrence.step(gates_TBG[t], before_TBN[t], mask_TB[t], resets_TBN[t], after_TBN[t])
        ctx.kernels, ctx.precision, ctx.reverse = kernels, precision, reverse
        ctx.save_for_backward(mask_TB, inputs_TBM, W, U, gates_TBG, before_TBN, resets_TBN)
        return after_TBN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states_TBN: Tensor) -> tuple[Tensor | None, ...]:
        mask_TB, inputs_TBM, W, U, gates_TBG, before_TBN, resets_TBN = ctx.saved_tensors
        kernels, precision = ctx.kernels, ctx.precision
        length = len(mask_TB)
        recurrence = Recurrence.backwards(kernels, precision, U)
        grad_gates_TBG = torch.empty_like(gates_TBG)
        grad_BN = before_TBN.new_zeros(before_TBN.shape[1:])
        for t in range(length) if ctx.reverse else reversed(range(length)):
            grad_BN += grad_states_TBN[t]
            recurrence.step_back(gates_TBG[t], before_TBN[t], mask_TB[t], grad_BN, grad_gates_TBG[t])
        grad_gates_RG = grad_gates_TBG.flatten(0, 1)
        grad_inputs_TBM = torch.empty_like(inputs_TBM)
        kernels.multiply(grad_gates_RG, kernels.factor(W.t(), precision), grad_inputs_TBM.flatten(0, 1))
        grad_W = matrix_gradient(kernels, precision, W, (grad_gates_RG, inputs_TBM.flatten(0, 1)))
        grad_U = recurrent_gradient(kernels, precision, U, grad_gates_TBG, before_TBN, resets_TBN)
        grad_constant_BG = grad_gates_TBG.sum(0) if ctx.needs_input_grad[9] else None
        grad_bias_G = grad_gates_RG.sum(0)
        return None, None, None, None, grad_inputs_TBM, grad_W, grad_U, grad_bias_G, grad_BN, grad_constant_BG
