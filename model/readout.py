"""The deep output with a maxout layer (App. A.2.2).

Shapes: N = n units, M = m embedding, H context, L = l maxout units, K words.
"""

from typing import cast

import torch
from torch import Tensor, nn

from rnnsearch.model.affine import affine
from rnnsearch.model.kernels import Kernels, Precision


class Readout(nn.Module):
    """From state, previous word and context to one logit a word.

    t~_i  = U_o s + V_o E y_{i-1} + C_o c_i       s is s_{i-1} or s_i, as the decoder order says
    t_ij  = max(t~_{i,2j-1}, t~_{i,2j})           neighbours, not halves
    p(y_i) is proportional to exp(y_i' W_o t_i)   W_o is W_o2 W_o1 where it is factored, as GroundHog
    """

    def __init__(
        self, units: int, embedding: int, context: int, maxout: int, words: int, *, rank: int | None
    ) -> None:
        """`rank` None: W_o (words, maxout); else W_o1 (rank, maxout) and W_o2 (words, rank)."""
        super().__init__()
        self.Uo = nn.Parameter(torch.zeros(2 * maxout, units))
        self.Vo = nn.Parameter(torch.zeros(2 * maxout, embedding))
        self.Co = nn.Parameter(torch.zeros(2 * maxout, context))
        self.bo = nn.Parameter(torch.zeros(2 * maxout))
        self.Wo = nn.Parameter(torch.zeros(words, maxout)) if rank is None else None
        self.Wo1 = None if rank is None else nn.Parameter(torch.zeros(rank, maxout))
        self.Wo2 = None if rank is None else nn.Parameter(torch.zeros(words, rank))
        self.b_out = nn.Parameter(torch.zeros(words))

    def features(
        self, kernels: Kernels, precision: Precision, state: Tensor, embedding: Tensor, context: Tensor
    ) -> Tensor:
        """Return what the last matrix sees: t, or W_o1 t where W_o is factored."""
        pairs = affine(kernels, precision, self.bo, state, self.Uo, embedding, self.Vo, context, self.Co)
        maxout = pairs.view(*pairs.shape[:-1], pairs.shape[-1] // 2, 2).amax(dim=-1)
        return maxout if self.Wo1 is None else affine(kernels, precision, None, maxout, self.Wo1)

    @property
    def output(self) -> Tensor:
        """The last matrix, one row a word."""
        return cast(Tensor, self.Wo if self.Wo2 is None else self.Wo2)
