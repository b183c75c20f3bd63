"""The few operations that the network spends its time in: plain torch, or compiled for this processor."""

from rnnsearch.model.kernels.choice import kernels_for
from rnnsearch.model.kernels.plain import Factor, Kernels, Precision

__all__ = ["Factor", "Kernels", "Precision", "kernels_for"]
