"""The gated hidden unit of the encoder and the decoder (App. A.1.1).

Shapes: B sentences, T positions, M the size of the input, N = n units, H the size of the context.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


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

    def project(self, inputs: Tensor) -> Tensor:
        """Return W x + b, (…, 3N): the part that does not depend on the state."""
        bias = functional.pad(self.b, (0, 3 * self.units - len(self.b)))
        return functional.linear(inputs, self.W, bias)

    def step(self, projected: Tensor, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the next state, (…, N), from what `project` returned, the state and the context (…, H)."""
        if self.C is not None and context is not None:
            projected = projected + functional.linear(context, self.C)
        candidate, gates = projected.split((self.units, 2 * self.units), dim=-1)
        update, reset = torch.sigmoid(gates + functional.linear(state, self.U[self.units :])).chunk(2, dim=-1)
        candidate = torch.tanh(candidate + functional.linear(reset * state, self.U[: self.units]))
        return state + update * (candidate - state)
