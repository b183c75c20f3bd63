"""Products of bfloat16: both operands are rounded to bfloat16, the sums are float32.

A processor without such products computes them in float32 from rounded operands: the same definition, at the speed of
float32. Torch's own product would be a hundred times slower there.
"""

import os
import platform
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor

Bfloat16 = Literal["native", "rounded"]


class KernelsError(ValueError):
    """The environment asks for kernels that there are not."""


VARIABLE = "RNNSEARCH_BFLOAT16"
"""`native` or `rounded` instead of what suits the processor."""

WITHOUT_PRODUCTS = "this CPU has no such products; float32 ones of rounded operands run, as fast as float32"


def products_on(device: torch.device) -> Bfloat16:
    """How products of bfloat16 are computed on `device`; a GPU has them. KernelsError for an unknown `VARIABLE`."""
    return "native" if device.type != "cpu" else _on_cpu()


@cache
def _on_cpu() -> Bfloat16:
    forced = os.environ.get(VARIABLE)
    for way in get_args(Bfloat16):
        if forced == way:
            return cast(Bfloat16, way)
    if forced:
        raise KernelsError(f"{VARIABLE} is {forced!r}; set it to native or rounded, or leave it out")
    supported = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # heeds ONEDNN_MAX_CPU_ISA
    if platform.machine().lower() in ("x86_64", "amd64"):  # AVX-512 alone counts as support, and is slow
        supported = supported and bool({"avx512_bf16", "amx_bf16"} & set(cpu_flags().split()))
    return "native" if supported else "rounded"


def cpu_flags() -> str:
    """What the processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def rounded(values: Tensor) -> Tensor:
    """The values rounded to bfloat16, in their own dtype."""
    return values.bfloat16().to(values.dtype)
