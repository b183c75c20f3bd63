"""The soft search over the source sentence (App. A.1.2), and dot attention beside it.

Shapes: B sentences, k hypotheses of each, S source positions, N = n units of the decoder,
A = n' alignment units, H the size of an annotation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Alignment(nn.Module):
    """Additive attention.

    e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)     App. A.1.2
    """

    def __init__(self, units: int, annotation: int, alignment_units: int, *, bias: bool = True) -> None:
        """Without `bias` as GroundHog, which has none here."""
        super().__init__()
        self.Wa = nn.Parameter(torch.zeros(alignment_units, units))
        self.Ua = nn.Parameter(torch.zeros(alignment_units, annotation))
        self.va = nn.Parameter(torch.zeros(alignment_units))
        self.ba = nn.Parameter(torch.zeros(alignment_units)) if bias else None

    def keys(self, annotations: Tensor) -> Tensor:
        """Return U_a h_j + b_a, (…, A): it does not depend on i, so it is made once per sentence."""
        return functional.linear(annotations, self.Ua, self.ba)

    def forward(self, state_BKN: Tensor, keys_BSA: Tensor, mask_BS: Tensor) -> Tensor:
        """Return alpha, (B, k, S), exactly 0 where `mask_BS` is false."""
        query_BKA = functional.linear(state_BKN, self.Wa)
        return masked_softmax(torch.tanh(query_BKA.unsqueeze(2) + keys_BSA.unsqueeze(1)) @ self.va, mask_BS)


class DotAlignment(nn.Module):
    """Dot attention: e_tj = s_t . (P h_j)."""

    def __init__(self, units: int, annotation: int) -> None:
        """P maps an annotation to the size of a state."""
        super().__init__()
        self.P = nn.Parameter(torch.zeros(units, annotation))

    def keys(self, annotations: Tensor) -> Tensor:
        """Return P h_j, (…, N), once per sentence."""
        return functional.linear(annotations, self.P)

    def forward(self, state_BKN: Tensor, keys_BSN: Tensor, mask_BS: Tensor) -> Tensor:
        """Return alpha, (B, k, S), exactly 0 where `mask_BS` is false."""
        return masked_softmax(state_BKN @ keys_BSN.transpose(1, 2), mask_BS)


def masked_softmax(scores_BKS: Tensor, mask_BS: Tensor) -> Tensor:
    """Return alpha, (B, k, S), Eq. 6: exactly 0 where `mask_BS` is false, all 0 if it is false throughout."""
    mask_B1S = mask_BS.unsqueeze(1)
    alpha_BKS = scores_BKS.masked_fill(~mask_B1S, -torch.inf).softmax(dim=-1)
    return torch.where(mask_B1S, alpha_BKS, 0.0)
