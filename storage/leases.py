"""Leases: who may compute what, and how others see that the holder is gone.

A lease's record names the holding process, an epoch that grows with each new holder, and a counter that the holder
raises while it lives. An observer on the same host looks whether the process lives; any other times the counter on
its own monotonic clock: no wall clock is trusted. A holder that lost its lease (it slept, it was cut off) learns it
from `check`; whatever it writes late lands in places named by its old epoch.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from rnnsearch.storage.backends import Backend, Versioned
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.processes import ProcessIdentity, current_process, life_of
from rnnsearch.storage.records import seal, unseal

FOLDER = "leases"

LEASE_SECONDS = 30.0
"""How long an observer elsewhere waits for a sign of life."""

_BEATS = 5  # signs of life in one lease's time
_POLL_SECONDS = 0.5  # of a waiter: a dead holder on this host is seen within two of them

_log = logging.getLogger(__name__)


class LeaseLostError(StoreError):
    """Another process holds the lease now."""


class LeaseBusyError(StoreError):
    """The lease is held by a living process, and the caller did not want to wait for longer."""


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """What is written of a lease."""

    name: str
    epoch: int  # from 1; one more with each holder
    holder: ProcessIdentity | None  # None: free
    token: str  # of this holding
    counter: int  # raised while the holder lives
    seconds: float  # without a sign of life after which the lease is anyone's
    needs: tuple[Digest, ...] = ()  # artifacts that gc keeps while it is held


class Lease:
    """A held lease; `leases.hold` makes one and keeps it alive."""

    def __init__(self, backend: Backend, record: LeaseRecord, version: str) -> None:
        """Take what has been written already."""
        self._backend = backend
        self._record = record
        self._version = version
        self._renewed = time.monotonic()
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._writing = threading.Lock()

    @property
    def name(self) -> str:
        """The lease's name."""
        return self._record.name

    @property
    def epoch(self) -> int:
        """The number of this holding: belongs into the path of all that is not immutable."""
        return self._record.epoch

    @property
    def lost(self) -> bool:
        """Whether another may hold the lease now."""
        return self._lost.is_set() or time.monotonic() - self._renewed > self._record.seconds

    def check(self) -> None:
        """Return if the lease is still held, by the store's word; else LeaseLostError. To be called before a record."""
        self._beat()
        if self.lost:
            raise LeaseLostError(
                f"the lease of {self.name} (epoch {self.epoch}) is held by another process now; "
                "this one was too long without a sign of life; run again to use what the other makes"
            )

    def _beat(self) -> None:
        """Raise the counter."""
        with self._writing:
            if self._lost.is_set() or self._ended.is_set():
                return
            began = time.monotonic()
            record = replace(self._record, counter=self._record.counter + 1)
            version = self._backend.replace_if(_name(self.name), _seal(record), self._version)
            if version is None:
                self._lost.set()
            else:
                self._record, self._version, self._renewed = record, version, began

    def _keep_alive(self) -> None:
        while not self._ended.wait(self._record.seconds / _BEATS):
            try:
                self._beat()
            except StoreError as error:  # a store out of reach may come back within the lease's time
                _log.warning("no sign of life for the lease of %s: %s", self.name, error)
            if self._lost.is_set():
                return

    def _release(self) -> None:
        self._ended.set()
        with self._writing:
            if not self._lost.is_set():
                free = replace(self._record, holder=None, counter=self._record.counter + 1, needs=())
                try:
                    self._backend.replace_if(_name(self.name), _seal(free), self._version)
                except (
                    StoreError
                ) as error:  # must not hide what ended the block; without signs of life it runs out
                    _log.warning("the lease of %s could not be given back: %s", self.name, error)


class Leases:
    """The leases of one store."""

    def __init__(self, backend: Backend) -> None:
        """Keep records in `backend`."""
        self._backend = backend

    @contextlib.contextmanager
    def hold(
        self,
        name: str,
        *,
        seconds: float = LEASE_SECONDS,
        patience: float | None = None,
        needs: Sequence[Digest] = (),
        on_wait: Callable[[LeaseRecord], None] | None = None,
    ) -> Iterator[Lease]:
        """Hold a lease for the length of a block, alive by a thread.

        Waits for a living holder, for ever or for `patience` seconds (then LeaseBusyError; 0: does not wait).
        `on_wait` is called with the holder's record at every look: it may raise to give up.
        """
        lease = self._acquire(name, seconds, patience, tuple(needs), on_wait)
        thread = threading.Thread(target=lease._keep_alive, name=f"lease of {name}", daemon=True)
        thread.start()
        try:
            yield lease
        finally:
            lease._release()
            thread.join()

    def read(self, name: str) -> LeaseRecord | None:
        """What is written of a lease, or None."""
        found = self._look(name)
        return None if found is None else found[0]

    def held(self) -> list[LeaseRecord]:
        """The leases whose holder is not known to be dead."""
        names = [unquote(name.removesuffix(".json")) for name in self._backend.children(FOLDER)]
        records = [self.read(name) for name in names]
        return [record for record in records if record is not None and _may_live(record)]

    def _acquire(
        self,
        name: str,
        seconds: float,
        patience: float | None,
        needs: tuple[Digest, ...],
        on_wait: Callable[[LeaseRecord], None] | None,
    ) -> Lease:
        began = time.monotonic()
        seen, since = "", began  # the version that was seen last, and since when on this clock
        while True:
            found = self._look(name)
            if found is None or not _may_live(found[0]):
                lease = self._take(name, found, seconds, needs)
                if lease is not None:
                    return lease
                continue
            record, version = found
            now = time.monotonic()
            if version != seen:
                seen, since = version, now
            elif now - since > record.seconds:
                lease = self._take(name, found, seconds, needs)
                if lease is not None:
                    return lease
                continue
            if on_wait is not None:
                on_wait(record)
            if patience is not None and now - began >= patience:
                raise LeaseBusyError(
                    f"{name} is being worked on by {_described(record)}; wait for it, or end it"
                )
            time.sleep(_POLL_SECONDS)

    def _take(
        self, name: str, found: tuple[LeaseRecord, str] | None, seconds: float, needs: tuple[Digest, ...]
    ) -> Lease | None:
        """Make this process the holder, unless another one was quicker."""
        record = LeaseRecord(
            name=name,
            epoch=1 if found is None else found[0].epoch + 1,
            holder=current_process(),
            token=secrets.token_hex(8),
            counter=0,
            seconds=seconds,
            needs=needs,
        )
        expected = None if found is None else found[1]
        version = self._backend.replace_if(_name(name), _seal(record), expected)
        return None if version is None else Lease(self._backend, record, version)

    def _look(self, name: str) -> tuple[LeaseRecord, str] | None:
        found = self._backend.read_versioned(_name(name))
        return None if found is None else (_parse(name, found), found.version)


def _may_live(record: LeaseRecord) -> bool:
    return record.holder is not None and life_of(record.holder) != "dead"


def _described(record: LeaseRecord) -> str:
    holder = record.holder
    return "nobody" if holder is None else f"process {holder.pid} on {holder.host}"


def _name(name: str) -> str:
    return f"{FOLDER}/{quote(name, safe='')}.json"


def _seal(record: LeaseRecord) -> bytes:
    return seal({**asdict(record), "needs": list(record.needs)})


def _parse(name: str, found: Versioned) -> LeaseRecord:
    body: dict[str, Any] = unseal(found.data, _name(name))
    holder = body.pop("holder")
    needs = tuple(body.pop("needs"))
    return LeaseRecord(**body, holder=None if holder is None else ProcessIdentity(**holder), needs=needs)
