"""Words as rows of a table.

Shapes: K words, M = m dimensions.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rnnsearch.model.kernels import Kernels


def embed(kernels: Kernels, table_KM: Tensor, bias_M: Tensor, words: Tensor) -> Tensor:
    """Return E y + b for every word, (…, M).

    Not `torch.nn.functional.embedding`: its gradient is a new table of zeros, of which a batch fills a few rows.
    """
    found: Tensor = _Embed.apply(kernels, table_KM, bias_M, words)  # type: ignore[no-untyped-call]
    return found


class _Embed(Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, table_KM: Tensor, bias_M: Tensor, words: Tensor) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(table_KM, words)
        return table_KM.index_select(0, words.flatten()).add_(bias_M).view(*words.shape, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        table_KM, words = ctx.saved_tensors
        grad_RM = grad.flatten(0, -2)
        gradient_KM, add = ctx.kernels.gradient_of(table_KM)
        if not add:
            gradient_KM.zero_()
        gradient_KM.index_add_(0, words.flatten(), grad_RM)
        return None, None if add else gradient_KM, grad_RM.sum(0), None
