"""The decoder's recurrence with its soft search, under teacher forcing (App. A.1, A.2.2).

Shapes: B sentences, S source and T target positions, M = m embedding, N = n units, G = 3n gates,
A = n' alignment units, H the size of an annotation.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rnnsearch.model.affine import matrix_gradient
from rnnsearch.model.attention import Alignment
from rnnsearch.model.gated_unit import GatedUnit, Recurrence, recurrent_gradient
from rnnsearch.model.kernels import Kernels, Precision


class Searched(NamedTuple):
    """A decoder's way through its target sentences."""

    states_TBN: Tensor  # s_0 … s_T: T + 1 of them, held over padding
    contexts_TBH: Tensor
    alphas_TBS: Tensor  # without gradient


def search_softly(
    kernels: Kernels,
    precision: Precision,
    unit: GatedUnit,
    alignment: Alignment,
    inputs_TBM: Tensor,
    mask_TB: Tensor,
    initial_BN: Tensor,
    keys_SBA: Tensor,
    annotations_SBH: Tensor,
    source_mask_SB: Tensor,
) -> Searched:
    """Run c_i = sum_j alpha_ij h_j with alpha from s_{i-1}, then s_i = f(s_{i-1}, x_i, c_i), for all i.

    The inputs x_i are the embeddings of y_{i-1}, or of y_i in the order groundhog (protocol 1.2).
    """
    return Searched(
        *_Search.apply(  # type: ignore[no-untyped-call]
            kernels, precision, mask_TB, source_mask_SB.t(), inputs_TBM, initial_BN, keys_SBA, annotations_SBH,
            unit.W, unit.U, unit.C, unit.bias, alignment.Wa, alignment.va,
        )
    )  # fmt: skip


class _Search(Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        precision: Precision,
        mask_TB: Tensor,
        source_mask_BS: Tensor,
        inputs_TBM: Tensor,
        initial_BN: Tensor,
        keys_SBA: Tensor,
        annotations_SBH: Tensor,
        W: Tensor,
        U: Tensor,
        C: Tensor,
        bias_G: Tensor,
        Wa: Tensor,
        va_A: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        length, sentences, _ = inputs_TBM.shape
        new, n = inputs_TBM.new_empty, U.shape[1]
        gates_TBG = new(length, sentences, 3 * n).copy_(bias_G)
        kernels.multiply(
            inputs_TBM.flatten(0, 1), kernels.factor(W, precision), gates_TBG.flatten(0, 1), add=True
        )
        states_TBN = new(length + 1, sentences, n)
        states_TBN[0] = initial_BN
        resets_TBN = new(length, sentences, n)
        contexts_TBH = new(length, sentences, C.shape[1])
        alphas_TBS = new(length, sentences, len(keys_SBA))
        query_BA = new(sentences, len(Wa))
        recurrence = Recurrence.forwards(kernels, precision, U)
        query_factor, context_factor = kernels.factor(Wa, precision), kernels.factor(C, precision)
        attention = kernels.attention(
            keys_SBA.transpose(0, 1), annotations_SBH.transpose(0, 1), source_mask_BS, va_A, precision
        )
        for t in range(length):
            kernels.multiply(states_TBN[t], query_factor, query_BA)
            attention.forward(query_BA, alphas_TBS[t], contexts_TBH[t])
            kernels.multiply(contexts_TBH[t], context_factor, gates_TBG[t], add=True)
            recurrence.step(gates_TBG[t], states_TBN[t], mask_TB[t], resets_TBN[t], states_TBN[t + 1])
        ctx.kernels, ctx.precision = kernels, precision
        ctx.save_for_backward(
            mask_TB, source_mask_BS, inputs_TBM, keys_SBA, annotations_SBH, W, U, C, Wa, va_A,
            gates_TBG, states_TBN, resets_TBN, contexts_TBH, alphas_TBS,
        )  # fmt: skip
        ctx.mark_non_differentiable(alphas_TBS)
        return states_TBN, contexts_TBH, alphas_TBS

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_states_TBN: Tensor, grad_contexts_TBH: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        (
            mask_TB, source_mask_BS, inputs_TBM, keys_SBA, annotations_SBH, W, U, C, Wa, va_A,
            gates_TBG, states_TBN, resets_TBN, contexts_TBH, alphas_TBS,
        ) = ctx.saved_tensors  # fmt: skip
        kernels, precision = ctx.kernels, ctx.precision
        length, sentences, _ = gates_TBG.shape
        before_TBN = states_TBN[:-1]
        queries_TBA = gates_TBG.new_empty(length, sentences, len(Wa))
        kernels.multiply(before_TBN.flatten(0, 1), kernels.factor(Wa, precision), queries_TBA.flatten(0, 1))
        recurrence = Recurrence.backwards(kernels, precision, U)
        query_factor, context_factor = kernels.factor(Wa.t(), precision), kernels.factor(C.t(), precision)
        attention = kernels.attention(
            keys_SBA.transpose(0, 1), annotations_SBH.transpose(0, 1), source_mask_BS, va_A, precision
        )
        grad_gates_TBG = torch.empty_like(gates_TBG)
        grad_queries_TBA = torch.empty_like(queries_TBA)
        grad_contexts_TBH = grad_contexts_TBH.clone(memory_format=torch.contiguous_format)
        grad_keys_BSA = gates_TBG.new_zeros(sentences, len(keys_SBA), len(va_A))
        grad_va_BA = gates_TBG.new_zeros(sentences, len(va_A))
        grad_BN = grad_states_TBN[length].clone(memory_format=torch.contiguous_format)
        for t in reversed(range(length)):
            recurrence.step_back(gates_TBG[t], before_TBN[t], mask_TB[t], grad_BN, grad_gates_TBG[t])
            kernels.multiply(grad_gates_TBG[t], context_factor, grad_contexts_TBH[t], add=True)
            attention.backward(
                queries_TBA[t],
                alphas_TBS[t],
                grad_contexts_TBH[t],
                grad_queries_TBA[t],
                grad_keys_BSA,
                grad_va_BA,
            )
            kernels.multiply(grad_queries_TBA[t], query_factor, grad_BN, add=True)
            grad_BN += grad_states_TBN[t]
        grad_gates_RG = grad_gates_TBG.flatten(0, 1)
        grad_inputs_TBM = torch.empty_like(inputs_TBM)
        kernels.multiply(grad_gates_RG, kernels.factor(W.t(), precision), grad_inputs_TBM.flatten(0, 1))
        grad_annotations_BSH = torch.bmm(alphas_TBS.permute(1, 2, 0), grad_contexts_TBH.transpose(0, 1))
        inputs, contexts, states = (part.flatten(0, 1) for part in (inputs_TBM, contexts_TBH, before_TBN))
        grad_W = matrix_gradient(kernels, precision, W, (grad_gates_RG, inputs))
        grad_C = matrix_gradient(kernels, precision, C, (grad_gates_RG, contexts))
        grad_Wa = matrix_gradient(kernels, precision, Wa, (grad_queries_TBA.flatten(0, 1), states))
        grad_U = recurrent_gradient(kernels, precision, U, grad_gates_TBG, before_TBN, resets_TBN)
        return (
            None, None, None, None, grad_inputs_TBM, grad_BN, grad_keys_BSA.transpose(0, 1),
            grad_annotations_BSH.transpose(0, 1), grad_W, grad_U, grad_C, grad_gates_RG.sum(0), grad_Wa,
            grad_va_BA.sum(0),
        )  # fmt: skip
