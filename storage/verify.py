"""Re-hash the whole store: what is missing, damaged, or named by no record."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from rnnsearch.storage.digests import Digest
from rnnsearch.storage.reach import Place, places, read_records
from rnnsearch.storage.store import Store


class Problem(NamedTuple):
    """A blob that is not as it should be, and what needs it."""

    digest: Digest
    places: tuple[Place, ...]


class Verification(NamedTuple):
    """What a look at every byte found."""

    blobs: int
    bytes: int
    missing: tuple[Problem, ...]
    damaged: tuple[Problem, ...]
    orphaned: tuple[Digest, ...]  # intact, but named by no record: of an unfinished stage, or for gc
    records: tuple[str, ...]  # names of damaged records: they count as not there

    @property
    def sound(self) -> bool:
        """Whether all that is recorded is there, as it was stored."""
        return not (self.missing or self.damaged or self.records)


def verify(
    store: Store, *, threads: int = 8, progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Hash every blob, whatever is remembered of it. `progress` gets blobs done and in all.

    Attempts that were taken back, or whose outputs gc deleted, are not missed.
    """
    records = read_records(store)
    standing = [attempt for attempt in records.attempts if attempt.withdrawn is None]
    users = dict[Digest, list[Place]]()
    for digest, place in places(records, standing, records.shards):
        users.setdefault(digest, []).append(place)
    stored = list(store.blobs.digests())
    with ThreadPoolExecutor(threads) as pool:
        conditions = []
        for done, condition in enumerate(pool.map(store.blobs.examine, stored), 1):
            conditions.append(condition)
            if progress is not None:
                progress(done, len(stored))
    damaged = {digest for digest, condition in zip(stored, conditions, strict=True) if condition == "damaged"}
    codes = {attempt.recipe.code for attempt in (*records.attempts, *records.shards)}
    known = {digest for digest, _ in places(records, records.attempts, records.shards)} | codes
    there = set(stored)
    return Verification(
        blobs=len(stored),
        bytes=sum(store.blobs.size(digest) or 0 for digest in stored),
        missing=_problems(users, (digest for digest in users if digest not in there)),
        damaged=_problems(users, damaged),
        orphaned=tuple(digest for digest in stored if digest not in known and digest not in damaged),
        records=(
            *store.ledger.damaged(),
            *store.shards.damaged(),
            *store.runs.damaged(),
            *store.damaged_code(),
        ),
    )


def discard_damaged(store: Store, found: Verification) -> None:
    """Delete the damaged blobs and records, so that the next run makes again what they held."""
    for problem in found.damaged:
        store.blobs.delete(problem.digest)
    for name in found.records:
        store.backend.delete(name)


def _problems(users: dict[Digest, list[Place]], digests: Iterable[Digest]) -> tuple[Problem, ...]:
    return tuple(Problem(digest, tuple(users.get(digest, ()))) for digest in sorted(digests))
