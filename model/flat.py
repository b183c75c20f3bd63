"""A network's parameters and gradients as views of two flat buffers.

One buffer makes one all-reduce, one norm and one optimiser step out of dozens. Shapes: P positions of the
buffer, padding included.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

ALIGNMENT = 16  # positions: 64 bytes of float32, so that every matrix starts on a cache line
NORM_BLOCK = (
    16_384  # positions: one partial norm each, so that the norm does not depend on the number of threads
)
LOSS, ENTROPY, TOKENS, SENTENCES, STOP = range(5)  # what travels behind the gradients: sums over the workers
SLOTS = 5


class FlatParameters:
    """Parameters and gradients of a network, moved into flat buffers that the network goes on using.

    `parameters_P` and `gradients_P` are padded with zeros that stay zero. `reduced_R` is `gradients_P` and,
    behind it, the slots LOSS, ENTROPY, TOKENS, SENTENCES and STOP: all that workers sum in an update.
    """

    def __init__(self, network: nn.Module) -> None:
        """All parameters must have one dtype and device, and keep them: move the network before."""
        named = [
            (name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad
        ]
        kinds = {(parameter.dtype, parameter.device) for _, parameter in named}
        if len(kinds) != 1:
            raise ValueError(
                f"parameters of one dtype and device are needed, found {sorted(map(str, kinds))}"
            )
        (dtype, device), *_ = kinds
        self._places: dict[str, tuple[int, torch.Size]] = {}
        size = 0
        for name, parameter in named:
            self._places[name] = (size, parameter.shape)
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        size = -(-size // NORM_BLOCK) * NORM_BLOCK
        self.parameters_P = torch.zeros(size, dtype=dtype, device=device)
        self.reduced_R = torch.zeros(size + SLOTS, dtype=dtype, device=device)
        self.gradients_P = self.reduced_R[:size]
        self.slots = self.reduced_R[size:]
        values, gradients = self.named(self.parameters_P), self.named(self.gradients_P)
        with torch.no_grad():
            for name, parameter in named:
                values[name].copy_(parameter)
                parameter.data = values[name]
                parameter.grad = gradients[name]

    def named(self, buffer_P: Tensor) -> dict[str, Tensor]:
        """Views of a buffer of P positions, named and shaped as the parameters."""
        return {
            name: buffer_P[start : start + shape.numel()].view(shape)
            for name, (start, shape) in self._places.items()
        }

    def fill(self, buffer_P: Tensor, tensors: Mapping[str, Tensor], what: str) -> None:
        """Copy named tensors into a buffer of P positions.

        Raises ValueError where a name or a shape differs; `what` tells the reader what was being filled.
        """
        views = self.named(buffer_P)
        if set(views) != set(tensors):
            raise ValueError(
                f"{what} is of another network: it lacks {_list(views.keys() - tensors.keys())} "
                f"and has {_list(tensors.keys() - views.keys())}"
            )
        with torch.no_grad():
            for name, view in views.items():
                if view.shape != tensors[name].shape:
                    raise ValueError(
                        f"{what} is of another network: {name} is {tuple(tensors[name].shape)}, "
                        f"not {tuple(view.shape)}"
                    )
                view.copy_(tensors[name])

    def gradient_norm(self) -> Tensor:
        """L2 norm of the gradients, a float64 scalar on their device; the same for any number of threads."""
        blocks = torch.linalg.vector_norm(self.gradients_P.view(-1, NORM_BLOCK), dim=1)
        norm: Tensor = torch.linalg.vector_norm(blocks.double())
        return norm


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
