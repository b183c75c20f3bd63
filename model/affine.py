"""Sums of products of rows and matrices, with a backward pass by the kernels.

Shapes: R rows, P what comes out, Q what goes in.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rnnsearch.model.kernels import Kernels, Precision


def affine(kernels: Kernels, precision: Precision, bias_P: Tensor | None, *terms: Tensor) -> Tensor:
    """Return x W^T + x' W'^T + … + b, (…, P), for terms x, W, x', W', … with x (…, Q) and W (P, Q)."""
    result: Tensor = _Affine.apply(kernels, precision, bias_P, *terms)  # type: ignore[no-untyped-call]
    return result


def matrix_gradient(
    kernels: Kernels, precision: Precision, matrix_PQ: Tensor, *blocks: tuple[Tensor, Tensor]
) -> Tensor | None:
    """Return the gradient of a matrix, or add it to its `.grad` and return None where the kernels accumulate.

    Each block is the gradient of what came out, (R, P'), and what went in, (R, Q), for the next P' of P rows.
    """
    gradient_PQ, add = kernels.gradient_of(matrix_PQ)
    start = 0
    for left_RP, right_RQ in blocks:
        rows = slice(start, start + left_RP.shape[1])
        kernels.outer(left_RP, right_RQ, gradient_PQ[rows], precision, add=add)
        start = rows.stop
    return None if add else gradient_PQ


class _Affine(Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: Kernels, precision: Precision, bias_P: Tensor | None, *terms: Tensor
    ) -> Tensor:
        rows, matrices = terms[::2], terms[1::2]
        flat_RP = rows[0].new_empty(rows[0][..., 0].numel(), matrices[0].shape[0])
        if bias_P is not None:
            flat_RP.copy_(bias_P)
        for i, (row, matrix) in enumerate(zip(rows, matrices, strict=True)):
            add = i > 0 or bias_P is not None
            kernels.multiply(row.flatten(0, -2), kernels.factor(matrix, precision), flat_RP, add=add)
        ctx.kernels, ctx.precision = kernels, precision
        ctx.save_for_backward(*terms)
        return flat_RP.view(*rows[0].shape[:-1], flat_RP.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_RP = grad.flatten(0, -2)
        _, _, needs_bias, *needs = ctx.needs_input_grad
        grads: list[Tensor | None] = [None, None, grad_RP.sum(0) if needs_bias else None]
        terms = ctx.saved_tensors
        for rows, matrix, needs_rows, needs_matrix in zip(
            terms[::2], terms[1::2], needs[::2], needs[1::2], strict=True
        ):
            grad_rows, grad_matrix = None, None
            if needs_rows:
                grad_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
                ctx.kernels.multiply(
                    grad_RP, ctx.kernels.factor(matrix.t(), ctx.precision), grad_rows.view(-1, rows.shape[-1])
                )
            if needs_matrix:
                block = grad_RP, rows.flatten(0, -2)
                grad_matrix = matrix_gradient(ctx.kernels, ctx.precision, matrix, block)
            grads += [grad_rows, grad_matrix]
        return tuple(grads)
