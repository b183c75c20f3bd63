"""Garbage collection: bytes that no kept run reaches. Records of attempts stay; only their outputs go.

It may work beside a run. What is condemned is thrown away first, where any use brings it back; then the records are
read anew, what is needed after all comes back, and only the rest is deleted. A process that relies on a blob without
a record of it has pinned it before it looked (`Blobs.put_bytes`, `Store.keep`): either gc reads the pin, or the
process sees that the blob is gone. Blobs of no record may be those of a run in progress: while one lives they stay.
On S3, where a blob is thrown away by copying and deleting, a write of the same bytes just between the two is lost:
its next use finds it missing and it is made again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import FullError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.reach import Records, kept_runs, places, read_artifact, read_records
from rnnsearch.storage.store import Store

KEEP_LAST = 5
"""Runs whose results are kept without a tag."""

_LEASE = "gc"
_UNKNOWN = "(no record)"


class StageBytes(NamedTuple):
    """What would go of one stage."""

    stage: str
    attempts: int
    blobs: int
    bytes: int


class GcPlan(NamedTuple):
    """What gc would do now."""

    runs: tuple[str, ...]  # whose results stay
    blobs: tuple[Digest, ...]  # to go
    attempts: tuple[Attempt, ...]  # whose outputs go
    shards: tuple[Attempt, ...]  # remembered work whose outputs go
    stages: tuple[StageBytes, ...]

    @property
    def bytes(self) -> int:
        """Bytes to go."""
        return sum(stage.bytes for stage in self.stages)


class _Reached(NamedTuple):
    artifacts: frozenset[Digest]
    blobs: frozenset[Digest]
    shards: frozenset[Digest]  # keys


def plan_gc(store: Store, keep_last: int = KEEP_LAST) -> GcPlan:
    """What no kept run reaches, by stage. Nothing is changed."""
    return _plan(store, read_records(store), keep_last)


def _plan(store: Store, records: Records, keep_last: int) -> GcPlan:
    reached = _reach(store, records, keep_last)
    used = dict[Digest, str]()
    gone = [each for each in records.attempts if not each.withdrawn and not _is_reached(each, reached)]
    shards = [each for each in records.shards if each.key not in reached.shards]
    for digest, place in places(records, gone, shards):
        used.setdefault(digest, place.stage)
    busy = _is_busy(store)
    condemned = {
        digest: size
        for digest, size in store.blobs.sizes().items()
        if digest not in reached.blobs and (digest in used or not busy)
    }
    stages = _by_stage(condemned, used, gone)
    kept = tuple(run.id for run in kept_runs(store, keep_last))
    return GcPlan(kept, tuple(condemned), tuple(gone), tuple(shards), stages)


def collect(store: Store, keep_last: int = KEEP_LAST) -> GcPlan:
    """Do it, and return what was done. One gc works at a time; LeaseBusyError if another does."""
    try:
        return _collect(store, keep_last)
    except FullError:
        store.blobs.forget_states()  # room for the lease, so that gc can make more
        return _collect(store, keep_last)


def _collect(store: Store, keep_last: int) -> GcPlan:
    with store.leases.hold(_LEASE, patience=0):
        for digest in store.blobs.thrown_away():  # by a gc that was killed
            store.blobs.bring_back(digest)
        records = read_records(store)
        plan = _plan(store, records, keep_last)
        for digest in plan.blobs:
            store.blobs.throw_away(digest)
        return _finish(
            store,
            plan,
            read_records(store, {name: found for name, found in records.artifacts.items() if found}),
            keep_last,
        )


def _finish(store: Store, plan: GcPlan, records: Records, keep_last: int) -> GcPlan:
    """Judge again by records read after the throwing away: bring back what is needed, delete the rest."""
    reached = _reach(store, records, keep_last)
    lost = tuple(digest for digest in plan.blobs if digest not in reached.blobs)
    for digest in reached.blobs.intersection(plan.blobs):
        store.blobs.bring_back(digest)
    gone = tuple(each for each in plan.attempts if not _is_reached(each, reached))
    shards = tuple(each for each in plan.shards if each.key not in reached.shards)
    for digest in lost:
        store.blobs.empty_trash(digest)
    for shard in shards:
        store.shards.delete(shard.key, shard.stage)
    for attempt in gone:  # last: on a full disk there was no room for it before
        store.ledger.withdraw_collected(attempt)
    return plan._replace(blobs=lost, attempts=gone, shards=shards)


def _reach(store: Store, records: Records, keep_last: int) -> _Reached:
    """What is kept: by runs, by leases and by pins."""
    uses = {(use.key, use.attempt) for run in kept_runs(store, keep_last) for use in run.uses}
    leases = store.leases.held()
    artifacts = {digest for lease in leases for digest in lease.needs} | store.pins.pinned("artifact")
    for attempt in records.attempts:
        if (attempt.key, attempt.number) in uses:
            artifacts.update(attempt.outputs.values(), attempt.recipe.inputs.values())
    blobs = artifacts | store.pins.pinned("blob")
    for digest in artifacts:
        artifact = read_artifact(store, records, digest)
        blobs.update(entry.digest for entry in (artifact.files if artifact else ()))
    blobs.update(attempt.recipe.code for attempt in (*records.attempts, *records.shards))
    live = {key for key, _ in uses} | {Digest(lease.name) for lease in leases}
    shards = _kept_shards(records, blobs, live)
    blobs.update(digest for shard in shards for digest in shard.outputs.values())
    return _Reached(frozenset(artifacts), frozenset(blobs), frozenset(shard.key for shard in shards))


def _kept_shards(records: Records, blobs: Collection[Digest], live: Collection[Digest]) -> list[Attempt]:
    """Work remembered for shards that stays: what is in kept artifacts, and what spares work to stages that go on.

    A killed stage resumes by it, and the partial values of a fold are named by no artifact. It stays while its
    inputs do, and something of its kind (stage, code, settings) was done for a kept stage or an unfinished one.
    """
    finished = {attempt.key for attempt in records.attempts}
    kinds = {
        _kind(shard)
        for shard in records.shards
        if shard.part_of is None or shard.part_of in live or shard.part_of not in finished
    }
    return [
        shard
        for shard in records.shards
        if all(digest in blobs for digest in shard.outputs.values())
        or (_kind(shard) in kinds and all(digest in blobs for digest in shard.recipe.inputs.values()))
    ]


def _kind(shard: Attempt) -> Digest:
    return replace(shard.recipe, inputs={}).key


def _is_reached(attempt: Attempt, reached: _Reached) -> bool:
    return all(digest in reached.artifacts for digest in attempt.outputs.values())


def _is_busy(store: Store) -> bool:
    """Whether a run or a lease lives, so that blobs may just have been written for records to come."""
    others = [lease for lease in store.leases.held() if lease.name != _LEASE]
    return bool(others) or any(run.state == "running" for run in store.runs.list())


def _by_stage(
    condemned: Mapping[Digest, int], used: Mapping[Digest, str], gone: Iterable[Attempt]
) -> tuple[StageBytes, ...]:
    """The blobs to go with their sizes, summed by the stage that made them."""
    totals = dict[str, StageBytes]()
    for digest, size in condemned.items():
        stage = used.get(digest, _UNKNOWN)
        old = totals.get(stage, StageBytes(stage, 0, 0, 0))
        totals[stage] = old._replace(blobs=old.blobs + 1, bytes=old.bytes + size)
    for attempt in gone:
        old = totals.get(attempt.stage, StageBytes(attempt.stage, 0, 0, 0))
        totals[attempt.stage] = old._replace(attempts=old.attempts + 1)
    return tuple(totals[stage] for stage in sorted(totals))
