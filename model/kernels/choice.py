"""Which kernels run: a matter of placement, never of the recipe."""

import logging
import os
from functools import cache

import torch

from rnnsearch.model.kernels.bfloat16 import KernelsError
from rnnsearch.model.kernels.build import BuildError
from rnnsearch.model.kernels.compiled import CompiledKernels
from rnnsearch.model.kernels.plain import Kernels

_LOG = logging.getLogger(__name__)
_VARIABLE = "RNNSEARCH_KERNELS"


def kernels_for(device: torch.device) -> Kernels:
    """Return the kernels for tensors on `device`: compiled ones on a processor, else plain torch.

    `RNNSEARCH_KERNELS=plain` or `compiled` leaves no choice. Where nothing compiles the plain ones run, and the
    log says so once. Raises KernelsError for other values, BuildError where `compiled` cannot be had.
    """
    wish = os.environ.get(_VARIABLE) or "auto"
    if wish not in ("auto", "plain", "compiled"):
        raise KernelsError(
            f"{_VARIABLE} is {wish!r}; set it to plain or compiled, or leave it out for the best"
        )
    if wish == "plain" or device.type != "cpu":
        return _plain()
    return _best() if wish == "auto" else _compiled()


@cache
def _plain() -> Kernels:
    return Kernels()


@cache
def _compiled() -> Kernels:
    return CompiledKernels()


@cache
def _best() -> Kernels:
    try:
        return _compiled()
    except BuildError as error:
        _LOG.warning("plain kernels run, which are slower: %s", error)
        return _plain()
