"""The negative log-likelihood over a large vocabulary, a few hundred words at a time.

Shapes: R target words, L what the last matrix sees, K words to choose from.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rnnsearch.model.kernels import Kernels, Precision

CHUNK = 576  # words whose logits exist at the same time: 69 MB in float32 at K = 30,000 (protocol trap 23)
BLOCK = 96  # words whose logits are made and normalised together: 11.5 MB, which stay in the cache


class WordLoss(NamedTuple):
    """What the words of a batch cost, in nats."""

    total: Tensor  # differentiable
    nll_R: Tensor  # of each word; without gradient


def word_loss(
    kernels: Kernels,
    precision: Precision,
    features_RL: Tensor,
    output_KL: Tensor,
    bias_K: Tensor,
    words_R: Tensor,
) -> WordLoss:
    """Return -log softmax(W_o t + b)[y] of each word, and the sum.

    The gradient is made together with the loss, in the buffer of the logits, so that they are never made twice.
    """
    differentiable = any(part.requires_grad for part in (features_RL, output_KL, bias_K))
    gradient = differentiable and torch.is_grad_enabled()
    return WordLoss(
        *_WordLoss.apply(  # type: ignore[no-untyped-call]
            kernels, precision, gradient, features_RL, output_KL, bias_K, words_R
        )
    )


class _WordLoss(Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        precision: Precision,
        gradient: bool,
        features_RL: Tensor,
        output_KL: Tensor,
        bias_K: Tensor,
        words_R: Tensor,
    ) -> tuple[Tensor, Tensor]:
        factor = kernels.factor(output_KL, precision)
        nll_R = features_RL.new_empty(len(words_R))
        chunk = math.ceil(
            len(words_R) / max(1, math.ceil(len(words_R) / CHUNK))
        )  # even sizes, as few as can be
        logits = features_RL.new_empty(chunk, len(output_KL))
        if gradient:
            back = kernels.factor(output_KL.t(), precision)
            grad_features_RL, grad_bias_K = torch.empty_like(features_RL), torch.zeros_like(bias_K)
            grad_output_KL, add = kernels.gradient_of(output_KL)
            if not add and not len(words_R):
                grad_output_KL.zero_()
        for start in range(0, len(words_R), max(1, chunk)):
            rows = slice(start, min(start + chunk, len(words_R)))
            for first in range(start, rows.stop, BLOCK):
                part = slice(first, min(first + BLOCK, rows.stop))
                block = logits[first - start : part.stop - start]
                kernels.multiply(features_RL[part], factor, block)
                kernels.cross_entropy(block, bias_K, words_R[part], nll_R[part], gradient=gradient)
                if gradient:
                    grad_bias_K += block.sum(0)
            if gradient:
                done = logits[: rows.stop - start]
                kernels.multiply(done, back, grad_features_RL[rows])
                kernels.outer(done, features_RL[rows], grad_output_KL, precision, add=add or start > 0)
        if gradient:
            ctx.save_for_backward(grad_features_RL, None if add else grad_output_KL, grad_bias_K)
        ctx.mark_non_differentiable(nll_R)
        return nll_R.sum(), nll_R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        one = not grad.is_cuda and grad == 1  # a GPU would have to be waited for
        scaled = (part if one or part is None else part * grad for part in ctx.saved_tensors)
        return None, None, None, *scaled, None
