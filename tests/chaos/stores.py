"""What is looked at in a store before and after: what is finished, what came out, what was left lying about."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from arena import Case

from rnnsearch.storage.backends import TEMPORARY
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store
from rnnsearch.storage.verify import verify

Outputs = Mapping[str, Mapping[str, Digest]]
"""By stage and name."""


class Finished(NamedTuple):
    """What has a record: how many attempts each recipe of a stage, and of a shard, has."""

    stages: Mapping[tuple[str, Digest], int]
    shards: Mapping[tuple[str, Digest], int]


def finished(location: Path) -> Finished:
    """What is recorded in a store; nothing where there is none yet."""
    if not (location / "store.json").exists():
        return Finished({}, {})
    store = Store.open(location)
    counts = [
        {
            (stage, key): number
            for stage in ledger.stages()
            for key in ledger.keys(stage)
            if (number := len(ledger.attempts(key, stage)))
        }
        for ledger in (store.ledger, store.shards)
    ]
    return Finished(*counts)


def last_run(location: Path) -> Run:
    """The run that began last."""
    return Store.open(location).runs.list()[-1]


def last_update(case: Case) -> int:
    """How far a training of a case has got, by what its workers told."""
    updates = [0]
    for path in case.store.glob("work/*/epoch-*/messages.jsonl"):
        lines = path.read_text().split("\n")[:-1]  # what is after the last end of line may be torn
        updates += [json.loads(line).get("update", 0) for line in lines]
    return max(updates)


def outputs(location: Path, run: Run | None = None) -> Outputs:
    """The digests of all that the last run (or `run`) used or made."""
    store = Store.open(location)
    found = {}
    for use in (run or last_run(location)).uses:
        attempt = store.ledger.attempt(use.key, use.attempt, use.stage)
        found[use.stage] = {} if attempt is None else dict(attempt.outputs)
    return found


def done_again(before: Finished, after: Finished) -> list[str]:
    """What was finished before and has one more attempt after."""
    return [
        f"{kind} {stage} {key[:12]}"
        for kind, old, new in (
            ("stage", before.stages, after.stages),
            ("shard of", before.shards, after.shards),
        )
        for (stage, key), number in old.items()
        if new.get((stage, key), 0) != number
    ]


def left_over(case: Case) -> list[str]:
    """Unfinished files, unfinished work, held leases, and living processes, as they are now."""
    store = case.store
    found = [f"process {process}" for process in case.settle()]
    for pattern in (f"{TEMPORARY}/*", "local/*/tmp/*", "work/*", "trash/*"):
        found += sorted(str(path.relative_to(store)) for path in store.glob(pattern))
    opened = Store.open(store)
    return found + [f"lease {lease.name}" for lease in opened.leases.held()]


class Bytes(NamedTuple):
    """What a look at every byte finds."""

    wrong: tuple[str, ...]  # missing or damaged
    orphaned: frozenset[Digest]  # named by no record


def look(location: Path) -> Bytes:
    """Hash everything."""
    found = verify(Store.open(location))
    wrong = [f"{word} {each}" for word in ("missing", "damaged", "records") for each in getattr(found, word)]
    return Bytes(tuple(wrong), frozenset(found.orphaned))


class Reference(NamedTuple):
    """What an undisturbed run leaves."""

    outputs: Outputs
    orphaned: frozenset[Digest]


def reference_of(location: Path) -> Reference:
    """What the last run of a store, undisturbed, left."""
    return Reference(outputs(location), look(location).orphaned)


def forget(location: Path, stage: str) -> None:
    """Make a store as if a stage had never run, though what follows it had; empty folders go, to be made again."""
    store = Store.open(location)
    for key in store.ledger.keys(stage):
        for kind in store.shards.stages():
            for shard in store.shards.history(kind):
                if shard.part_of == key:
                    store.shards.delete(shard.key, kind)
        store.ledger.delete(key, stage)
        shutil.rmtree(location / "leases" / f"{key}.json")
    for digest in verify(store).orphaned:
        store.blobs.delete(digest)
    store.pins.release()
    for folder in location.glob("local/*/folders"):
        shutil.rmtree(folder)
    for path in sorted(location.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
