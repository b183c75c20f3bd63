"""One update: gradients, their sum over workers, clipping, the optimiser (protocol 2; App. B.2).

The order matters: workers sum first, and the sum is divided by the sentences of the global batch and clipped
after that, so that the number of workers changes nothing but rounding.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnnsearch.model.adadelta import make_optimizer
from rnnsearch.model.batch import Batch
from rnnsearch.model.checkpoint import Snapshot, Tensors
from rnnsearch.model.config import TrainConfig
from rnnsearch.model.flat import ENTROPY, LOSS, SENTENCES, STOP, TOKENS, FlatParameters
from rnnsearch.model.network import Network

# Adds up the same buffer of all workers, in place, alike on each of them.
SumOverWorkers = Callable[[Tensor], None]


class TrainingError(ValueError):
    """A training that cannot go on; the message says what was found and what to do."""


class Update(NamedTuple):
    """What one update did; equal on every worker."""

    loss: float  # nats, summed over the tokens of the global batch
    entropy: float | None  # of attention in the same forward pass, likewise; None for a network without
    tokens: int  # target tokens of the global batch, </s> counted
    sentences: int  # of the global batch
    norm: float  # of the gradient after the reduction and before clipping
    clipped: bool
    skipped: bool  # the norm or the loss was not finite: nothing moved, neither parameters nor optimiser
    stop: bool  # some worker asked to stop after this update


class Trainer:
    """A network in training: its flat parameters, its optimiser, and how often an update was skipped."""

    def __init__(
        self, network: Network, config: TrainConfig, sum_over_workers: SumOverWorkers | None = None
    ) -> None:
        """`sum_over_workers` is None for a worker alone."""
        self.network = network
        self.config = config
        self.flat = FlatParameters(network)
        self.optimizer = make_optimizer(config, self.flat.parameters_P)
        self.skipped = 0  # in all
        self.skipped_in_a_row = 0
        self._sum_over_workers = sum_over_workers

    def update(self, share: Batch | None, *, stop: bool = False) -> Update:
        """Learn from one global batch, of which this worker has `share`, or nothing where it is too small.

        Every worker must call it for every global batch. Raises TrainingError, on every worker alike, when
        `nonfinite_limit` updates in a row were skipped.
        """
        flat = self.flat
        flat.reduced_R.zero_()
        if share is not None:
            lesson = self.network.accumulate(share, self.config.precision)
            flat.slots[LOSS] = lesson.loss
            if lesson.entropy is not None:
                flat.slots[ENTROPY] = lesson.entropy
            flat.slots[TOKENS] = share.target_mask_TB.sum()
            flat.slots[SENTENCES] = share.target_mask_TB.shape[1]
        flat.slots[STOP] = float(stop)
        if self._sum_over_workers is not None:
            self._sum_over_workers(flat.reduced_R)
        return self._apply(flat.slots.tolist(), flat.gradient_norm().item())

    def _apply(self, slots: list[float], summed_norm: float) -> Update:
        factor = 1.0 if self.config.reduction == "sum" else 1.0 / max(slots[SENTENCES], 1.0)
        norm = summed_norm * factor
        skipped = not (math.isfinite(norm) and math.isfinite(slots[LOSS]))
        clipped = not skipped and norm >= self.config.clip_norm
        if skipped:  # ours: GroundHog puts 0.1 x parameter in place of the gradient and takes the step
            self.skipped += 1
            self.skipped_in_a_row += 1
            if self.skipped_in_a_row >= self.config.nonfinite_limit:
                raise TrainingError(
                    f"the gradient was not finite in {self.skipped_in_a_row} updates in a row (norm {norm}, "
                    f"loss {slots[LOSS]}): the training has diverged. The newest checkpoint is from before; "
                    "lower the learning rate or clip_norm, use a wider precision, or look at the data"
                )
        else:
            self.skipped_in_a_row = 0
            self.optimizer.step(
                self.flat.gradients_P, factor * self.config.clip_norm / norm if clipped else factor
            )
        return Update(
            loss=slots[LOSS],
            entropy=slots[ENTROPY] if self.network.attends else None,
            tokens=int(slots[TOKENS]),
            sentences=int(slots[SENTENCES]),
            norm=norm,
            clipped=clipped,
            skipped=skipped,
            stop=slots[STOP] > 0,
        )

    def parameters(self) -> Tensors:
        """A copy of the parameters on the host, by name."""
        return self._copy(self.flat.parameters_P)

    def snapshot(self, update: int, best: Tensors | None, facts: Mapping[str, Any]) -> Snapshot:
        """A copy, on the host, of all that decides the updates to come, with `best` and `facts` beside it."""
        counts = {
            "optimizer_steps": self.optimizer.steps,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
        }
        return Snapshot(
            update=update,
            parameters=self.parameters(),
            buffers={name: self._copy(buffer_P) for name, buffer_P in self.optimizer.buffers.items()},
            random_state=torch.get_rng_state(),
            best=best,
            facts={**facts, **counts},
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken of.

        Raises TrainingError where it is of another network or another optimiser.
        """
        buffers = self.optimizer.buffers
        if buffers.keys() != snapshot.buffers.keys():
            raise TrainingError(
                f"the state holds {sorted(snapshot.buffers)} of its optimiser, {self.config.optimizer} "
                f"needs {sorted(buffers)}: train on with the same optimiser, or from the start"
            )
        try:
            self.flat.fill(self.flat.parameters_P, snapshot.parameters, "the state")
            for name, buffer_P in buffers.items():
                self.flat.fill(buffer_P, snapshot.buffers[name], "the state")
        except ValueError as error:
            raise TrainingError(f"{error}: train on with the same network, or from the start") from error
        torch.set_rng_state(snapshot.random_state)
        self.restore_counts(snapshot.facts)

    def restore_counts(self, facts: Mapping[str, Any]) -> None:
        """The part of `restore` that is not tensors: for a worker whose tensors come from another one."""
        self.optimizer.steps = facts["optimizer_steps"]
        self.skipped = facts["skipped"]
        self.skipped_in_a_row = facts["skipped_in_a_row"]

    def _copy(self, buffer_P: Tensor) -> Tensors:
        return self.flat.named(buffer_P.detach().to("cpu", copy=True))
