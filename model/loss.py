# ruff: noqa: N815 - shape suffixes are capitals
"""The negative log-likelihood over a large vocabulary, a few hundred words at a time.

Shapes: R target words, L what the last matrix sees, K words to choose from.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rnnsearch.model.kernels import Kernels, Precision

CHUNK = 512  # words whose logits exist at the same time: 61 MB in float32 at K = 30,000 (PAPER 6, trap 23)


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
    gradient = torch.is_grad_enabled() and output_KL.requires_grad
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
        logits = features_RL.new_empty(min(CHUNK, len(words_R)), len(output_KL))
        if gradient:
            back = kernels.factor(output_KL.t(), precision)
            grad_features_RL = torch.empty_like(features_RL)
            grad_output_KL, grad_bias_K = torch.zeros_like(output_KL), torch.zeros_like(bias_K)
        for start in range(0, len(words_R), CHUNK):
            rows = slice(start, start + CHUNK)
            features = features_RL[rows]
            chunk = logits[: len(features)]
            kernels.multiply(features, factor, chunk)
            kernels.cross_entropy(chunk, bias_K, words_R[rows], nll_R[rows], gradient=gradient)
            if gradient:
                kernels.multiply(chunk, back, grad_features_RL[rows])
                kernels.outer(chunk, features, grad_output_KL, precision, add=True)
                grad_bias_K += chunk.sum(0)
        if gradient:
            ctx.save_for_backward(grad_features_RL, grad_output_KL, grad_bias_K)
        ctx.mark_non_differentiable(nll_R)
        return nll_R.sum(), nll_R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (saved if not grad.is_cuda and grad == 1 else saved * grad for saved in ctx.saved_tensors)
        return None, None, None, *scaled, None
