"""The soft search over the source sentence (App. A.1.2), and dot attention beside it.

Shapes: B sentences, S source and T target positions, N = n units of the decoder, A = n' alignment units,
H the size of an annotation.
"""

import torch
from torch import Tensor, nn

from rnnsearch.model.affine import affine
from rnnsearch.model.kernels import Kernels, Precision


class Alignment(nn.Module):
    """Additive attention.

    e_ij     = v_a . tanh(W_a s_{i-1} + U_a h_j)     App. A.1.2
    alpha_ij = exp(e_ij) / sum_k exp(e_ik)           Eq. 6
    c_i      = sum_j alpha_ij h_j                    Eq. 5

    Only the next state gives the next query, so the sums are made step by step: `decoder.search_softly`.
    """

    def __init__(self, units: int, annotation: int, alignment_units: int, *, bias: bool = True) -> None:
        """Without `bias` as GroundHog, which has none here."""
        super().__init__()
        self.Wa = nn.Parameter(torch.zeros(alignment_units, units))
        self.Ua = nn.Parameter(torch.zeros(alignment_units, annotation))
        self.va = nn.Parameter(torch.zeros(alignment_units))
        self.ba = nn.Parameter(torch.zeros(alignment_units)) if bias else None

    def keys(self, kernels: Kernels, precision: Precision, annotations_SBH: Tensor) -> Tensor:
        """Return U_a h_j + b_a, (S, B, A): it does not depend on i, so it is made once per sentence."""
        return affine(kernels, precision, self.ba, annotations_SBH, self.Ua)


class DotAlignment(nn.Module):
    """Dot attention: e_tj = s_t . (P h_j)."""

    def __init__(self, units: int, annotation: int) -> None:
        """P maps an annotation to the size of a state."""
        super().__init__()
        self.P = nn.Parameter(torch.zeros(units, annotation))

    def keys(self, kernels: Kernels, precision: Precision, annotations_SBH: Tensor) -> Tensor:
        """Return P h_j, (S, B, N), once per sentence."""
        return affine(kernels, precision, None, annotations_SBH, self.P)

    def forward(
        self, states_TBN: Tensor, keys_SBN: Tensor, annotations_SBH: Tensor, mask_SB: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the contexts, (T, B, H), and alphas, (T, B, S), of all states at once: none waits for another."""
        scores_BTS = torch.einsum("tbn,sbn->bts", states_TBN, keys_SBN)
        alphas_BTS = masked_softmax(scores_BTS, mask_SB.t())
        contexts_TBH = torch.einsum("bts,sbh->tbh", alphas_BTS, annotations_SBH)
        return contexts_TBH, alphas_BTS.transpose(0, 1)


def entropy(alphas_TBS: Tensor, target_mask_TB: Tensor) -> Tensor:
    """-sum_j alpha_ij log alpha_ij in nats, summed over the target words: 0 looks at one source word, ln S at all.

    A scalar of float64, without gradient. Padding of the source, where alpha is 0, adds nothing.
    """
    entropy_TB = torch.special.entr(alphas_TBS.detach()).sum(2, dtype=torch.float64)
    return torch.where(target_mask_TB, entropy_TB, 0.0).sum()


def masked_softmax(scores_BTS: Tensor, mask_BS: Tensor) -> Tensor:
    """Return alpha, Eq. 6: exactly 0 where `mask_BS` is false, also where that leaves a sentence nothing."""
    mask_B1S = mask_BS[:, None]
    lowest = torch.finfo(
        scores_BTS.dtype
    ).min  # not minus infinity: of nothing but that, softmax has no gradient
    alphas_BTS = scores_BTS.masked_fill(~mask_B1S, lowest).softmax(dim=2)
    return torch.where(mask_B1S, alphas_BTS, 0.0)
