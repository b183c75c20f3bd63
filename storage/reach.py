"""What the records of a store name: for gc, which keeps what is reached, and for verify, which looks for it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rnnsearch.storage.artifacts import Artifact
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import DamagedError, MissingError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store


class Place(NamedTuple):
    """Where a blob is used."""

    stage: str
    key: Digest
    output: str
    path: str  # in the artifact; "" for its manifest, or for a shard's output


@dataclass
class Records:
    """All attempts of a store, each artifact read once."""

    attempts: Sequence[Attempt]
    shards: Sequence[Attempt]
    artifacts: dict[Digest, Artifact | None] = field(
        default_factory=dict
    )  # None: its manifest cannot be read


def read_records(store: Store, known: Mapping[Digest, Artifact] | None = None) -> Records:
    """Read every attempt of both ledgers and the artifacts that they name, but for those `known`."""
    ledgers = (store.ledger, store.shards)
    attempts, shards = (
        [each for stage in ledger.stages() for each in ledger.history(stage)] for ledger in ledgers
    )
    records = Records(attempts, shards, dict(known or {}))
    for attempt in attempts:
        for digest in (*attempt.outputs.values(), *attempt.recipe.inputs.values()):
            read_artifact(store, records, digest)
    return records


def read_artifact(store: Store, records: Records, digest: Digest) -> Artifact | None:
    """An artifact, or None if its manifest is missing or damaged."""
    if digest not in records.artifacts:
        try:
            records.artifacts[digest] = store.read_artifact(digest)
        except (MissingError, DamagedError):
            records.artifacts[digest] = None
    return records.artifacts[digest]


def places(
    records: Records, attempts: Iterable[Attempt], shards: Iterable[Attempt]
) -> Iterator[tuple[Digest, Place]]:
    """Every blob that these attempts name as an output, and where."""
    for attempt in attempts:
        for output, digest in attempt.outputs.items():
            yield digest, Place(attempt.stage, attempt.key, output, "")
            artifact = records.artifacts.get(digest)
            for entry in artifact.files if artifact else ():
                yield entry.digest, Place(attempt.stage, attempt.key, output, entry.path)
    for shard in shards:
        for output, digest in shard.outputs.items():
            yield digest, Place(f"{shard.stage} (shards)", shard.key, output, "")


def kept_runs(store: Store, keep_last: int) -> tuple[Run, ...]:
    """The runs whose results stay: tagged, in progress, among the last, or among the last that finished."""
    runs = store.runs.list()
    finished = [run for run in runs if run.state == "finished"]
    last = {run.id for run in (*_last(runs, keep_last), *_last(finished, keep_last))}
    return tuple(run for run in runs if run.tags or run.state == "running" or run.id in last)


def _last(runs: Sequence[Run], count: int) -> Sequence[Run]:
    return runs[max(0, len(runs) - count) :]
