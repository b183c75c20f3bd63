"""The first values of the parameters (App. B.1)."""

import torch
from torch import Tensor

from rnnsearch.model.network import Network

_ATTENTION_STD = 0.001  # W_a and U_a
_STD = 0.01  # embeddings, W_s and everything else
_DOT_RANGE = 0.1  # of dot attention


def initialize(network: Network, seed: int) -> None:
    """Fill the parameters as App. B.1 says; equal seeds give equal values.

    U, U_z and U_r are random orthogonal, each by itself; W_a and U_a are N(0, 0.001^2); v_a and all biases
    are 0, so that the first alphas are uniform; all else is N(0, 0.01^2).

    `ours:` of dot attention, which the paper has not, all else is uniform on [-0.1, 0.1], as in Luong et al. 2015
    (Sec. 4.1). From the paper's small values its scores, which no tanh bounds, fall onto `</s>` within 40 updates
    of Adam and stay there.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            leaf = name.rpartition(".")[2]
            if leaf == "U":
                parameter.copy_(_orthogonal_blocks(parameter, generator))
            elif leaf == "va" or parameter.dim() == 1:
                parameter.zero_()
            elif network.config.kind == "luong":
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_((2 * drawn - 1) * _DOT_RANGE)
            else:
                std = _ATTENTION_STD if leaf in ("Wa", "Ua") else _STD
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std)


def _orthogonal_blocks(matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Return one random orthogonal n x n matrix a gate, one below the other (protocol trap 10)."""
    rows, n = matrix.shape
    blocks = []
    for _ in range(rows // n):
        normal = torch.randn(n, n, generator=generator, dtype=torch.float64)
        blocks.append(torch.linalg.svd(normal).U)
    return torch.cat(blocks)
