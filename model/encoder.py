"""From source words to annotations (App. A.2.1).

Shapes: B sentences, S source positions, M = m embedding, N = n units, H = 2n (n for RNNencdec).
"""

import torch
from torch import Tensor, nn

from rnnsearch.model.embedding import embed
from rnnsearch.model.gated_unit import GatedUnit
from rnnsearch.model.kernels import Kernels, Precision


class Encoder(nn.Module):
    """Two gated units over one embedding: h_j = [forward h_j ; backward h_j]; RNNencdec has only the first.

    A state is held over padding, so the backward unit starts at the last real word with h = 0.
    """

    def __init__(self, words: int, embedding: int, units: int, *, backward: bool, gate_biases: bool) -> None:
        """`backward` false leaves the second direction out."""
        super().__init__()
        self.E_src = nn.Parameter(torch.zeros(words, embedding))
        self.b_emb_src = nn.Parameter(torch.zeros(embedding))
        self.enc_f = GatedUnit(embedding, units, gate_biases=gate_biases)
        self.enc_b = GatedUnit(embedding, units, gate_biases=gate_biases) if backward else None

    def forward(self, kernels: Kernels, precision: Precision, source_SB: Tensor, mask_SB: Tensor) -> Tensor:
        """Return the annotations, (S, B, H)."""
        mask_SB = mask_SB.contiguous()
        # Selected, not multiplied by 0: a word under padding changes nothing, even if its embedding is infinite.
        embedding_SBM = torch.where(
            mask_SB[..., None], embed(kernels, self.E_src, self.b_emb_src, source_SB), 0.0
        )
        initial_BN = embedding_SBM.new_zeros(source_SB.shape[1], self.enc_f.units)
        forward_SBN = self.enc_f.scan(kernels, precision, embedding_SBM, mask_SB, initial_BN)
        if self.enc_b is None:
            return forward_SBN
        backward_SBN = self.enc_b.scan(kernels, precision, embedding_SBM, mask_SB, initial_BN, reverse=True)
        return torch.cat([forward_SBN, backward_SBN], dim=-1)
