"""Workers of a training as threads of one process; their sum goes over the ranks in order."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rnnsearch.flows.training_job import Workers


@dataclass
class Meeting:
    """Where workers that are threads meet, as processes do in a collective."""

    size: int
    box: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=120)


@dataclass(frozen=True, kw_only=True)
class Threads(Workers):
    meeting: Meeting

    @property
    def sum(self) -> Callable[[Tensor], None] | None:
        def add(tensor: Tensor) -> None:
            parts = self._gather(tensor.clone())
            tensor.copy_(torch.stack(parts).sum(0))

        return None if self.size == 1 else add

    def agree(self, value: Any) -> Any:
        return self._gather(value)[0]

    def spread(self, tensor: Tensor) -> None:
        first = self._gather(tensor.clone())[0]
        tensor.copy_(first)

    def _gather(self, value: Any) -> list[Any]:
        self.meeting.box[self.rank] = value
        self.meeting.barrier.wait()
        found = [self.meeting.box[rank] for rank in range(self.size)]
        self.meeting.barrier.wait()
        return found


def together(
    size: int, work: Callable[[Workers], Any], stop: Callable[[int], bool] | None = None
) -> list[Any]:
    """Run `work` on so many workers; raise what one of them raised."""
    meeting, results = Meeting(size), {}

    def one(rank: int) -> None:
        stopping = (lambda: False) if stop is None else (lambda: stop(rank))
        try:
            results[rank] = work(Threads(rank=rank, size=size, stopping=stopping, meeting=meeting))
        except BaseException as error:
            results[rank] = error
            meeting.barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,), name=str(rank)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results.values():
        if isinstance(result, BaseException) and not isinstance(result, threading.BrokenBarrierError):
            raise result
    return [results[rank] for rank in range(size)]
