"""Sentences side by side, padded to a common length."""

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """B pairs of sentences, time first. Every sentence ends in `</s>` (id 0), which is a word like any other.

    Where a mask is false the id must be a valid one; its embedding is ignored, even if Inf or NaN.
    """

    source_SB: Tensor  # int64
    source_mask_SB: Tensor  # bool
    target_TB: Tensor  # int64
    target_mask_TB: Tensor  # bool
