"""From source words to annotations (App. A.2.1).

Shapes: B sentences, S source positions, M = m embedding, N = n units, H = 2n (n for RNNencdec).
"""

import torch
from rnnsearch.model.gated_unit import GatedUnit
from torch import Tensor, nn
from torch.nn import functional


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

    def forward(self, source_SB: Tensor, mask_SB: Tensor) -> Tensor:
        """Return the annotations, (S, B, H)."""
        embedding_SBM = functional.embedding(source_SB, self.E_src) + self.b_emb_src
        directions = [_scan(self.enc_f, embedding_SBM, mask_SB, reverse=False)]
        if self.enc_b is not None:
            directions.append(_scan(self.enc_b, embedding_SBM, mask_SB, reverse=True))
        return torch.cat(directions, dim=-1)


def _scan(unit: GatedUnit, inputs_SBM: Tensor, mask_SB: Tensor, *, reverse: bool) -> Tensor:
    projected_SBG = unit.project(inputs_SBM)
    length, sentences, _ = projected_SBG.shape
    state_BN = projected_SBG.new_zeros(sentences, unit.units)
    states = [state_BN] * length
    for j in reversed(range(length)) if reverse else range(length):
        state_BN = torch.where(mask_SB[j, :, None], unit.step(projected_SBG[j], state_BN), state_BN)
        states[j] = state_BN
    return torch.stack(states)
