"""The first values of the parameters (App. B.1)."""

import torch
from torch import Tensor

from rnnsearch.model.network import Network

_ATTENTION_STD = 0.001  # W_a and U_a
_STD = 0.01  # embeddings, W_s and everything else


def initialize(network: Network, seed: int) -> None:
    """Fill the parameters as App. B.1 says; equal seeds give equal values.

    U, U_z and U_r are random orthogonal, each by itself; W_a and U_a are N(0, 0.001^2); v_a and all biases
    are 0, so that the first alphas are uniform; all else is N(0, 0.01^2). `ours:` P of dot attention, which
    the paper has not, is N(0, 0.01^2).
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            leaf = name.rpartition(".")[2]
            if leaf == "U":
                parameter.copy_(_orthogonal_blocks(parameter, generator))
            elif leaf == "va" or parameter.dim() == 1:
                parameter.zero_()
            else:
                std = _ATTENTION_STD if leaf in ("Wa", "Ua") else _STD
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std)


def _orthogonal_blocks(matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Return one random orthogonal n x n matrix a gate, one below the other (PAPER 6, trap 10)."""
    rows, n = matrix.shape
    blocks = []
    for _ in range(rows // n):
        normal = torch.randn(n, n, generator=generator, dtype=torch.float64)
        blocks.append(torch.linalg.svd(normal).U)
    return torch.cat(blocks)
