"""A run of one store, carried into another with all that it used: blobs first, attempts next, the run last.

What is there already stays as it is. A transfer that was killed is begun again and ends in the same records.
"""

from dataclasses import replace
from typing import NamedTuple

from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.reach import Records, places, read_artifact
from rnnsearch.storage.runs import Run, StageUse
from rnnsearch.storage.store import Store


class Carried(NamedTuple):
    """What a transfer brought."""

    run: str
    stages: int
    blobs: int  # that the store did not have
    bytes: int  # of these


def carry_run(source: Store, target: Store, run: Run) -> Carried:
    """Bring a run that has ended, the attempts that it used and their blobs from `source` into `target`.

    StoreError where the run goes on still, its results are gone from `source`, or `target` has another run of its id.
    """
    if source.location == target.location:
        raise StoreError(f"{source.location} is the store that run {run.id} is in already; name another one")
    if run.state in ("running", "died"):
        raise StoreError(
            f"run {run.id} in {source.location} has not ended ({run.state}): run it to its end first"
        )
    used = [_attempt(source, run, use) for use in run.uses]
    keys = {attempt.key for attempt in used}
    shards = [
        shard
        for stage in source.shards.stages()
        for shard in source.shards.history(stage)
        if shard.part_of in keys and all(map(source.blobs.intact, shard.outputs.values()))
    ]
    records = Records(used, shards)
    for digest in {digest for attempt in used for digest in attempt.outputs.values()}:
        read_artifact(source, records, digest)
    with target.leases.hold(f"import-{run.id}"):
        for artifact in records.artifacts:  # from gc, until the run is there
            target.pins.pin(artifact, "artifact")
        needed = dict.fromkeys(digest for digest, _ in places(records, used, shards))
        for code in {each.recipe.code for each in (*used, *shards)}:
            if (parts := source.code_parts(code)) is not None:
                target.bring_code(code, parts, source.code_sources(code))
        sizes = [_carry_blob(source, target, digest) for digest in needed]
        for shard in shards:
            target.shards.bring(shard)
        numbers = [target.ledger.bring(attempt).number for attempt in used]
        uses = [use._replace(attempt=number) for use, number in zip(run.uses, numbers, strict=True)]
        target.runs.bring(replace(run, uses=tuple(uses)))
    new = [size for size in sizes if size is not None]
    return Carried(run.id, len({use.stage for use in run.uses}), len(new), sum(new))


def _attempt(source: Store, run: Run, use: StageUse) -> Attempt:
    """The attempt that a run used; its outputs must be there."""
    attempt = source.ledger.attempt(use.key, use.attempt, use.stage)
    if attempt is None or attempt.withdrawn or not all(map(source.intact, attempt.outputs.values())):
        raise StoreError(
            f"what run {run.id} has of {use.stage} is gone from {source.location}, or damaged; run it there again"
        )
    return attempt


def _carry_blob(source: Store, target: Store, digest: Digest) -> int | None:
    """Copy a blob, verified; its size, or None if it is there already."""
    target.pins.pin(digest, "blob")
    if target.blobs.intact(digest):
        return None
    return target.put_file(source.local_file(digest)).size
