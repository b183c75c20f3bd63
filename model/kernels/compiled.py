"""The kernels compiled for this processor (`kernels.cpp`)."""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from rnnsearch.model.kernels import build
from rnnsearch.model.kernels.bfloat16 import products_on
from rnnsearch.model.kernels.plain import Attention, Factor, Kernels, Precision

_SIGNATURES = {  # p: a pointer, i: an integer
    "pack": "iipiip",
    "multiply": "iiipiippii",
    "reset": "iipipp",
    "update": "iipippp",
    "update_backward": "iipippppi",
    "reset_backward": "iipippppi",
    "attend": "pppp",
    "attend_backward": "ppppppp",
    "cross_entropy": "iippppi",
}
_PACKED = ("float32", "bfloat16", "rounded")
_WHOLE = ("float32", "float64")
_TYPES = {
    "pack": _PACKED,
    "multiply": _PACKED,
    "attend": (*_WHOLE, "bfloat16"),
    "attend_backward": (*_WHOLE, "bfloat16"),
}
_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


class _Source(ctypes.Structure):
    """`Source` of kernels.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("sentences", "positions", "key_size", "annotation_size")),
        ("keys", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("key_sentence", "key_position")),
        ("annotations", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("annotation_sentence", "annotation_position")),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("mask_sentence", "mask_position")),
        ("va", ctypes.c_void_p),
    ]


class CompiledAttention(Attention):
    """The soft search in one pass over keys and annotations, without a buffer for the tanh."""

    def __init__(
        self,
        forward: Callable[..., None],
        backward: Callable[..., None],
        keys_BSA: Tensor,
        annotations_BSH: Tensor,
        mask_BS: Tensor,
        va_A: Tensor,
    ) -> None:
        """Keys and annotations may have any strides but in their last dimension."""
        self._held = keys_BSA, annotations_BSH, mask_BS, va_A  # the pointers below are theirs
        self._forward, self._backward = forward, backward
        self._source = ctypes.byref(
            _Source(
                *keys_BSA.shape, annotations_BSH.shape[2],
                keys_BSA.data_ptr(), *keys_BSA.stride()[:2],
                annotations_BSH.data_ptr(), *annotations_BSH.stride()[:2],
                mask_BS.data_ptr(), *mask_BS.stride(), va_A.data_ptr(),
            )
        )  # fmt: skip

    def forward(self, query_BA: Tensor, alphas_BS: Tensor, context_BH: Tensor) -> None:
        """As its namesake."""
        self._forward(self._source, query_BA.data_ptr(), alphas_BS.data_ptr(), context_BH.data_ptr())

    def backward(
        self,
        query_BA: Tensor,
        alphas_BS: Tensor,
        grad_context_BH: Tensor,
        grad_query_BA: Tensor,
        grad_keys_BSA: Tensor,
        grad_va_BA: Tensor,
    ) -> None:
        """As its namesake."""
        self._backward(
            self._source, query_BA.data_ptr(), alphas_BS.data_ptr(), grad_context_BH.data_ptr(),
            grad_query_BA.data_ptr(), grad_keys_BSA.data_ptr(), grad_va_BA.data_ptr(),
        )  # fmt: skip


def _typed(library: ctypes.CDLL, name: str, signature: str) -> Callable[..., None]:
    function = library[name]
    function.argtypes = [ctypes.c_void_p if kind == "p" else ctypes.c_int64 for kind in signature]
    function.restype = None
    return function


class CompiledKernels(Kernels):
    """C++ with wide vectors, on all threads of torch.

    Products in float64 are plain torch's; those in bfloat16, where the processor has none, are float32's of rounded
    operands (`bfloat16.py`). Rows must lie
    one after the other as the callers' buffers do; the columns of what is multiplied may have any stride.
    """

    name = "compiled"

    def __init__(self) -> None:
        """Compile and load. Raises BuildError, also where the processor or this torch cannot run them."""
        library = build.load()
        able = int(library.works())
        if not able & 1:
            raise build.BuildError(
                "this CPU lacks AVX2, or this torch another micro-kernel than expected: products would be wrong, or "
                "depend on the rows beside them"
            )
        native = able & 2 and products_on(torch.device("cpu")) == "native"
        self._layouts = {"float32": "float32", "bfloat16": "bfloat16" if native else "rounded"}
        self._functions = {
            (name, suffix): _typed(library, f"{name}_{suffix}", signature)
            for name, signature in _SIGNATURES.items()
            for suffix in _TYPES.get(name, _WHOLE)
        }
        self._packed_size = library.packed_size
        self._packed_size.restype = ctypes.c_int64

    def factor(self, matrix_PQ: Tensor, precision: Precision) -> Factor:
        """Pack the matrix, its values rounded if the precision is bfloat16."""
        if precision not in self._layouts or matrix_PQ.dtype != torch.float32:
            return super().factor(matrix_PQ, precision)
        return self._packed(matrix_PQ.detach().t(), precision)

    def _packed(self, matrix_QP: Tensor, precision: Precision) -> Factor:
        depth, columns = matrix_QP.shape
        layout = self._layouts[precision]
        dtype = torch.bfloat16 if layout == "bfloat16" else torch.float32
        data = torch.empty(self._packed_size(depth, columns), dtype=dtype)
        self._functions["pack", layout](
            depth, columns, matrix_QP.data_ptr(), *matrix_QP.stride(), data.data_ptr()
        )
        return Factor(columns, depth, data, rounds=layout == "rounded")

    def multiply(self, rows_RQ: Tensor, factor: Factor, out_RP: Tensor, *, add: bool = False) -> None:
        """Write `rows_RQ @ matrix_PQ.T`, or add it to what is there. ValueError where the shapes do not fit."""
        if factor.data.dim() == 2:
            super().multiply(rows_RQ, factor, out_RP, add=add)
            return
        if rows_RQ.shape[1] != factor.columns or out_RP.shape != (len(rows_RQ), factor.rows):
            raise ValueError(
                f"a product of {tuple(rows_RQ.shape)} and {(factor.columns, factor.rows)} does not fit into "
                f"{tuple(out_RP.shape)}"
            )
        self._functions["multiply", "rounded" if factor.rounds else _NAMES[factor.data.dtype]](
            len(rows_RQ), factor.rows, factor.columns, rows_RQ.data_ptr(), *rows_RQ.stride(),
            factor.data.data_ptr(), out_RP.data_ptr(), out_RP.stride(0), add,
        )  # fmt: skip

    def outer(
        self, left_RP: Tensor, right_RQ: Tensor, out_PQ: Tensor, precision: Precision, *, add: bool = False
    ) -> None:
        """Write `left_RP.T @ right_RQ`, or add it, with sums in float32."""
        if precision not in self._layouts or left_RP.dtype != torch.float32:
            super().outer(left_RP, right_RQ, out_PQ, precision, add=add)
            return
        self.multiply(left_RP.t(), self._packed(right_RQ, precision), out_PQ, add=add)

    def reset(self, gates_BG: Tensor, state_BN: Tensor, reset_BN: Tensor) -> None:
        """As its namesake."""
        self._of(
            "reset",
            state_BN,
            gates_BG.data_ptr(),
            gates_BG.stride(0),
            state_BN.data_ptr(),
            reset_BN.data_ptr(),
        )

    def update(self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, next_BN: Tensor) -> None:
        """As its namesake."""
        self._of(
            "update", state_BN, gates_BG.data_ptr(), gates_BG.stride(0), state_BN.data_ptr(), mask_B.data_ptr(),
            next_BN.data_ptr(),
        )  # fmt: skip

    def update_backward(
        self, gates_BG: Tensor, state_BN: Tensor, mask_B: Tensor, grad_BN: Tensor, grad_gates_BG: Tensor
    ) -> None:
        """As its namesake."""
        self._of(
            "update_backward", state_BN, gates_BG.data_ptr(), gates_BG.stride(0), state_BN.data_ptr(),
            mask_B.data_ptr(), grad_BN.data_ptr(), grad_gates_BG.data_ptr(), grad_gates_BG.stride(0),
        )  # fmt: skip

    def reset_backward(
        self,
        gates_BG: Tensor,
        state_BN: Tensor,
        grad_reset_BN: Tensor,
        grad_BN: Tensor,
        grad_gates_BG: Tensor,
    ) -> None:
        """As its namesake."""
        self._of(
            "reset_backward", state_BN, gates_BG.data_ptr(), gates_BG.stride(0), state_BN.data_ptr(),
            grad_reset_BN.data_ptr(), grad_BN.data_ptr(), grad_gates_BG.data_ptr(), grad_gates_BG.stride(0),
        )  # fmt: skip

    def attention(
        self,
        keys_BSA: Tensor,
        annotations_BSH: Tensor,
        mask_BS: Tensor,
        va_A: Tensor,
        precision: Precision = "float32",
    ) -> Attention:
        """Return the soft search of one batch; in bfloat16 half as much is read at every step."""
        if precision == "bfloat16":
            keys_BSA, annotations_BSH = keys_BSA.bfloat16(), annotations_BSH.bfloat16()
        dtype = _NAMES[keys_BSA.dtype]
        functions = self._functions["attend", dtype], self._functions["attend_backward", dtype]
        return CompiledAttention(*functions, keys_BSA, annotations_BSH, mask_BS, va_A)

    def cross_entropy(
        self, logits_RK: Tensor, bias_K: Tensor, words_R: Tensor, nll_R: Tensor, *, gradient: bool
    ) -> None:
        """As its namesake, in three passes over a row."""
        self._of(
            "cross_entropy", logits_RK, logits_RK.data_ptr(), bias_K.data_ptr(), words_R.data_ptr(),
            nll_R.data_ptr(), gradient,
        )  # fmt: skip

    def _of(self, name: str, rows: Tensor, *arguments: int) -> None:
        """Call a kernel in the dtype of `rows`, whose shape are its first two arguments."""
        self._functions[name, _NAMES[rows.dtype]](*rows.shape, *arguments)
