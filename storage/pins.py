"""Pins: what living processes rely on without a record of it yet, so that gc keeps its hands off.

A process pins first and looks after; gc throws away first, and reads the pins before it deletes. So either gc sees
the pin, or the process sees that the thing is gone.
"""

from typing import Literal

from rnnsearch.storage.backends import TEMPORARY, Backend, living_files
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.processes import current_process

PinKind = Literal["blob", "artifact"]


class Pins:
    """The pins of one store. Those of dead processes count for nothing, and are swept."""

    def __init__(self, backend: Backend) -> None:
        """Keep pins among the temporaries of `backend`."""
        self._backend = backend
        self._mine: set[str] = set()

    def pin(self, digest: Digest, kind: PinKind) -> None:
        """Keep gc from a blob, or from an artifact with all its blobs, until `release` or this process's end."""
        name = f"{TEMPORARY}/{current_process().token()}.{kind}.{digest}"
        if name not in self._mine:
            self._backend.create_exclusive(name, b"")
            self._mine.add(name)

    def pinned(self, kind: PinKind) -> frozenset[Digest]:
        """What processes have pinned that may live."""
        parts = [name.split(".") for name in living_files(self._backend.children(TEMPORARY))]
        return frozenset(Digest(part[2]) for part in parts if len(part) == 3 and part[1] == kind)

    def release(self) -> None:
        """Take this object's pins away: all that relied on them is recorded."""
        for name in sorted(self._mine):
            self._backend.delete(name)
        self._mine.clear()
