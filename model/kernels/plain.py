"""The kernels in plain torch: for every device and dtype, and what the compiled ones must equal.

They write into buffers that their caller owns and know no autograd: the backward passes are written by hand.

Shapes: R rows, P and Q the sides of a matrix, B sentences, S source positions, N units, A alignment units, H the size
of an annotation. Gates lie side by side as in `GatedUnit`: s~ | z | r, (B, 3N).
"""

from copy import copy
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from rnnsearch.model.kernels.bfloat16 import products_on, rounded

Precision = Literal["float64", "float32", "bfloat16"]


class Factor(NamedTuple):
    """A matrix made ready to be multiplied by many rows."""

    rows: int  # P: what comes out
    columns: int  # Q: what goes in
    data: Tensor  # (Q, P) here; other kernels have a layout of their own
    rounds: bool = False  # float32 values of bfloat16: the rows are rounded too


class Attention:
    """The additive soft search of one batch, step after step (App. A.1.2)."""

    def __init__(self, keys_BSA: Tensor, annotations_BSH: Tensor, mask_BS: Tensor, va_A: Tensor) -> None:
        """Masked positions are ignored, even if NaN."""
        self._keys_BSA, self._mask_BS, self._va_A = keys_BSA, mask_BS, va_A
        self._annotations_BSH = torch.where(mask_BS[..., None], annotations_BSH, 0.0)
        self._tanh_BSA = torch.empty_like(keys_BSA, memory_format=torch.contiguous_format)

    def forward(self, query_BA: Tensor, alphas_BS: Tensor, context_BH: Tensor) -> None:
        """Write alpha and c for the query W_a s."""
        torch.add(self._keys_BSA, query_BA[:, None], out=self._tanh_BSA).tanh_()
        scores_BS = (self._tanh_BSA @ self._va_A).masked_fill_(~self._mask_BS, -torch.inf)
        alphas_BS.copy_(torch.where(self._mask_BS, scores_BS.softmax(dim=1), 0.0))
        torch.bmm(alphas_BS[:, None], self._annotations_BSH, out=context_BH[:, None])

    def backward(
        self,
        query_BA: Tensor,
        alphas_BS: Tensor,
        grad_context_BH: Tensor,
        grad_query_BA: Tensor,
        grad_keys_BSA: Tensor,
        grad_va_BA: Tensor,
    ) -> None:
        """Write the gradient of the query; add to those of the keys and, sentence by sentence, of v_a.

        The tanh of the forward pass is not kept (protocol trap 23) but made again. The gradient of the annotations
        is one product over all steps, so it is left to the caller.
        """
        grad_alphas_BS = torch.bmm(self._annotations_BSH, grad_context_BH[..., None]).squeeze(2)
        grad_scores_BS = alphas_BS * (grad_alphas_BS - (grad_alphas_BS * alphas_BS).sum(1, keepdim=True))
        tanh_BSA = torch.add(self._keys_BSA, query_BA[:, None], out=self._tanh_BSA).tanh_()
        tanh_BSA.masked_fill_(~self._mask_BS[..., None], 0.0)
        grad_va_BA += torch.bmm(grad_scores_BS[:, None], tanh_BSA).squeeze(1)
        inner_BSA = tanh_BSA.square_().neg_().add_(1.0).mul_(self._va_A).mul_(grad_scores_BS[..., None])
        grad_keys_BSA += inner_BSA
        torch.sum(inner_BSA, dim=1, out=grad_query_BA)


class Kernels:
    """Plain torch."""

    name = "plain"
    accumulates = False  # whether backward passes add to `.grad` themselves: see `accumulating`

    def accumulating(self) -> Self:
        """Return these kernels for one backward pass that adds the gradients of matrices to their `.grad`.

        Autograd would make a gradient beside the buffer and add it in another pass over memory.
        """
        other = copy(self)
        other.accumulates = True
        return other

    def gradient_of(self, matrix: Tensor) -> tuple[Tensor, bool]:
        """Return where the gradient of a matrix goes, and whether that is its `.grad`, to be added to."""
        gradient = matrix.grad if self.accumulates else None
        return (torch.empty_like(matrix), False) if gradient is None else (gradient, True)

    def factor(self, matrix_PQ: Tensor, precision: Precision) -> Factor:
        """Make `matrix_PQ` ready for `multiply`; with bfloat16 it is rounded to that, once."""
        rows, columns = matrix_PQ.shape
        data_QP = matrix_PQ.detach().t()
        if precision != "bfloat16":
            return Factor(rows, columns, data_QP)
        if products_on(matrix_PQ.device) == "native":
            return Factor(rows, columns, data_QP.bfloat16())
        return Factor(rows, columns, rounded(data_QP), rounds=True)

    def multiply(self, rows_RQ: Tensor, factor: Factor, out_RP: Tensor, *, add: bool = False) -> None:
        """Write `rows_RQ @ matrix_PQ.T`, or add it to what is there."""
        if factor.rounds:
            rows_RQ = rounded(rows_RQ)
        if factor.data.dtype != rows_RQ.dtype:
            product_RP = rows_RQ.to(factor.data.dtype) @ factor.data
            out_RP.copy_(out_RP + product_RP if add else product_RP)
        elif add:
            out_RP.addmm_(rows_RQ, factor.data)
        else:
            torch.mm(rows_RQ, factor.data, out=out_RP)

    def outer(
        self, left_RP: Tensor, right_RQ: Tensor, out_PQ: Tensor, precision: Precision, *, add: bool = False
    ) -> None:
        """Write `left_RP.T @ right_RQ`, the gradient of a matrix over all rows at once, or add it."""
        native = precision == "bfloat16" and products_on(left_RP.device) == "native"
        if precision == "bfloat16" and not native:
            left_RP, right_RQ = rounded(left_RP), rounded(right_RQ)
        if native:
            product_PQ = left_RP.bfloat16().t() @ right_RQ.bfloat16()
            out_PQ.copy_(out_PQ + product_PQ if add else product_PQ)
        elif add:
            out_PQ.addmm_(left_RP.t(), right_RQ)
        else:
            torch.mm(left_RP.t(), right_RQ, out=out_PQ)

    def reset(self, gates_BG: Tensor, state_BN: Tensor, reset_BN: Tensor) -> None:
        """Turn the pre-activations of z and r into z and r; write r o s."""
        n = state_BN.shape[1]
        torch.mul(gates_BG[:, n:].sigmoid_()[:, n:], state_BN, out=reset_BN)

    def update(self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, next_BN: Tensor) -> None:
        """Turn the pre-activation of s~ into s~; write (1 - z) o s + z o s~, or s where `mask_B` is false."""
        n = state_BN.shape[1]
        candidate_BN = gates_BG[:, :n].tanh_()
        torch.lerp(state_BN, candidate_BN, gates_BG[:, n : 2 * n], out=next_BN)
        torch.where(mask_B[:, None], next_BN, state_BN, out=next_BN)

    def update_backward(
        self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, grad_BN: Tensor, grad_gates_BG: Tensor
    ) -> None:
        """From the gradient of the next state, write those of s~'s and z's pre-activations.

        `grad_BN` becomes the part of the earlier state's gradient that passes by the gates.
        """
        n = state_BN.shape[1]
        candidate_BN, update_BN = gates_BG[:, :n], gates_BG[:, n : 2 * n]
        taken_BN = torch.where(mask_B[:, None], grad_BN * update_BN, 0.0)
        torch.mul(taken_BN, 1 - candidate_BN.square(), out=grad_gates_BG[:, :n])
        torch.mul(taken_BN * (1 - update_BN), candidate_BN - state_BN, out=grad_gates_BG[:, n : 2 * n])
        grad_BN -= taken_BN

    def reset_backward(
        self,
        gates_BG: Tensor,
        state_BN: Tensor,
        grad_reset_BN: Tensor,
        grad_BN: Tensor,
        grad_gates_BG: Tensor,
    ) -> None:
        """From the gradient of r o s, write that of r's pre-activation; add to the earlier state's."""
        n = state_BN.shape[1]
        reset_BN = gates_BG[:, 2 * n :]
        passed_BN = grad_reset_BN * reset_BN
        grad_BN += passed_BN
        torch.mul(passed_BN * (1 - reset_BN), state_BN, out=grad_gates_BG[:, 2 * n :])

    def attention(
        self,
        keys_BSA: Tensor,
        annotations_BSH: Tensor,
        mask_BS: Tensor,
        va_A: Tensor,
        precision: Precision = "float32",
    ) -> Attention:
        """Return the soft search of one batch; other kernels may keep keys and annotations in `precision`."""
        return Attention(keys_BSA, annotations_BSH, mask_BS, va_A)

    def cross_entropy(
        self, logits_RK: Tensor, bias_K: Tensor, words_R: Tensor, nll_R: Tensor, *, gradient: bool
    ) -> None:
        """Write -log softmax(logits + bias)[word]; with `gradient`, turn the logits into that of its sum."""
        logits_RK += bias_K
        normaliser_R1 = logits_RK.logsumexp(dim=1, keepdim=True)
        torch.sub(normaliser_R1[:, 0], logits_RK.gather(1, words_R[:, None])[:, 0], out=nll_R)
        if gradient:
            logits_RK.sub_(normaliser_R1).exp_()
            logits_RK[torch.arange(len(words_R), device=words_R.device), words_R] -= 1
