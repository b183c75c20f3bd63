"""Lineage, read from the ledger: what an artifact was made from, what was made from it, and where a row went."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run, RunState
from rnnsearch.storage.store import Store

_SHORTEST = 4  # digits of a digest that are taken as its beginning


class Link(NamedTuple):
    """An artifact as an input or output of an attempt."""

    name: str
    artifact: Digest
    attempt: Attempt


@dataclass(frozen=True)
class Graph:
    """All attempts of a store, linked by the artifacts that they share."""

    attempts: tuple[Attempt, ...]  # oldest first
    makers: Mapping[Digest, tuple[Link, ...]]  # artifact: the attempts that have it as an output
    users: Mapping[Digest, tuple[Link, ...]]  # artifact: the attempts that have it as an input

    def maker(
        self, artifact: Digest, preferred: Collection[tuple[Digest, int]] = (), seen_as: str = ""
    ) -> Link | None:
        """The attempt that made an artifact, for two stages may make the same bytes.

        Of several: those of `seen_as` (`stage:output`), then a preferred (key, number), then the newest that stands.
        """
        links = self.makers.get(artifact, ())
        links = tuple(link for link in links if f"{link.attempt.stage}:{link.name}" == seen_as) or links
        for choice in (
            [link for link in links if (link.attempt.key, link.attempt.number) in preferred],
            [link for link in links if link.attempt.withdrawn is None],
            links,
        ):
            if choice:
                return choice[-1]
        return None


class Branch(NamedTuple):
    """An artifact, the attempt on this branch, and what is further up or down."""

    name: str  # the input's or output's name at the attempt nearer to the root
    artifact: Digest
    attempt: Attempt | None  # None: no record tells who made it
    output: str  # the artifact's name at `attempt`; "" without
    branches: "tuple[Branch, ...]"
    repeated: bool  # its branches are shown where it stands first


class Subject(NamedTuple):
    """What a word means: attempts, the run they are of, and the one artifact meant."""

    attempts: tuple[Attempt, ...]
    run: Run | None = None  # None: no finished run used them
    artifact: Digest | None = None
    whole: bool = False  # the word names the run itself


class RunUse(NamedTuple):
    """One use of an artifact or attempt by a run."""

    run: str
    state: RunState
    stage: str
    how: Literal["computed", "cached", "read"]
    recipe: Digest


class Sighting(NamedTuple):
    """A row of a corpus, in one output of one stage."""

    stage: str
    output: str
    path: str
    row: Mapping[str, Any]  # of a dropped row: `partner`, the corpus:line it was dropped for, and `threshold`


def read_graph(store: Store) -> Graph:
    """Read every attempt of the ledger."""
    attempts = sorted(
        (attempt for stage in store.ledger.stages() for attempt in store.ledger.history(stage)),
        key=lambda attempt: (attempt.recorded, attempt.key, attempt.number),
    )
    makers: dict[Digest, tuple[Link, ...]] = {}
    users: dict[Digest, tuple[Link, ...]] = {}
    for attempt in attempts:
        for name, digest in attempt.outputs.items():
            makers[digest] = (*makers.get(digest, ()), Link(name, digest, attempt))
        for name, digest in attempt.recipe.inputs.items():
            users[digest] = (*users.get(digest, ()), Link(name, digest, attempt))
    return Graph(tuple(attempts), makers, users)


def find_subject(store: Store, graph: Graph, word: str, scope: str | None = None) -> Subject:
    """What `word` names: a run or tag, a stage, or the beginning of a recipe's key or an artifact's digest.

    Of several attempts it is the one that the run `scope` used; without `scope`, the newest finished run that used
    one of them; the newest attempt only where no finished run used any. MissingError if the word names nothing, or
    nothing that the run `scope` used; StoreError if it names several artifacts or keys.
    """
    run = _find_run(store, word) if scope is None else None
    if run is not None:
        uses = {(use.key, use.attempt): position for position, use in enumerate(run.uses)}
        used = [attempt for attempt in graph.attempts if (attempt.key, attempt.number) in uses]
        return Subject(tuple(sorted(used, key=lambda each: uses[each.key, each.number])), run=run, whole=True)
    candidates, artifact = _candidates(store, graph, word)
    runs = [store.runs.find(scope)] if scope is not None else reversed(_finished(store))
    for run in runs:
        if chosen := _used_in(run, candidates, stage=word):
            return Subject((chosen,), run, artifact)
    if scope is not None:
        raise MissingError(
            f"run {run.id if run else scope} did not use {word}; `rnnsearch runs {scope}` lists its stages"
        )
    if artifact is not None:
        maker = graph.maker(artifact)
        return Subject((maker.attempt,) if maker else candidates[:1], artifact=artifact)
    return Subject(candidates[-1:])


def uses_of(store: Store, graph: Graph, word: str) -> tuple[RunUse, ...]:
    """Which runs used what `word` names (a stage, a recipe or an artifact), oldest first, and how.

    An artifact is used by a run that made it, took it from the cache, or read it as an input.
    """
    candidates, artifact = _candidates(store, graph, word)
    known = {(attempt.key, attempt.number): attempt for attempt in candidates}
    found = []
    for run in store.runs.list():
        for use in run.uses:
            attempt = known.get((use.key, use.attempt))
            if attempt is None:
                continue
            if artifact is None or artifact in attempt.outputs.values():
                found.append(
                    RunUse(run.id, run.state, use.stage, "cached" if use.hit else "computed", use.key)
                )
            if artifact is not None and artifact in attempt.recipe.inputs.values():
                found.append(RunUse(run.id, run.state, use.stage, "read", use.key))
    return tuple(found)


def _candidates(store: Store, graph: Graph, word: str) -> tuple[tuple[Attempt, ...], Digest | None]:
    """The attempts that `word` may mean, oldest first (makers before readers), and the artifact if it names one."""
    if of_stage := tuple(attempt for attempt in graph.attempts if attempt.stage == word):
        return of_stage, None
    if len(word) >= _SHORTEST:
        keys = {attempt.key for attempt in graph.attempts if attempt.key.startswith(word)}
        artifacts = {digest for digest in (*graph.makers, *graph.users) if digest.startswith(word)}
        if len(keys) + len(artifacts) > 1:
            raise StoreError(
                f"{word} begins {len(keys)} recipes and {len(artifacts)} artifacts; give more digits"
            )
        if keys:
            return tuple(attempt for attempt in graph.attempts if attempt.key in keys), None
        for artifact in artifacts:
            links = (*graph.makers.get(artifact, ()), *graph.users.get(artifact, ()))
            return tuple(link.attempt for link in links), artifact
    raise MissingError(
        f"nothing in {store.location} is called {word!r}; give a run, a tag, a stage such as evaluate/rnnsearch, "
        f"or at least {_SHORTEST} digits of an artifact or recipe"
    )


def _finished(store: Store) -> list[Run]:
    return [run for run in store.runs.list() if run.state == "finished"]


def _used_in(run: Run, candidates: Sequence[Attempt], stage: str) -> Attempt | None:
    """The first candidate that a run used; of a stage what the run used last."""
    known = {(attempt.key, attempt.number): attempt for attempt in candidates}
    last = run.use(stage)
    if last is not None and (last.key, last.attempt) in known:
        return known[last.key, last.attempt]
    used = {(use.key, use.attempt) for use in run.uses}
    return next((attempt for identity, attempt in known.items() if identity in used), None)


def ends_of(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The attempts of which no other one takes an output."""
    attempts = tuple(attempts)
    taken = {digest for attempt in attempts for digest in attempt.recipe.inputs.values()}
    return tuple(attempt for attempt in attempts if not taken.intersection(attempt.outputs.values()))


def upstream(
    graph: Graph, attempt: Attempt, preferred: Collection[tuple[Digest, int]] = ()
) -> tuple[Branch, ...]:
    """What an attempt was made from, to the beginning; of several makers those `preferred`, such as a run's own."""
    shown = {(attempt.key, attempt.number)}

    def grow(of: Attempt) -> tuple[Branch, ...]:
        branches = []
        for name, artifact in sorted(of.recipe.inputs.items()):
            link = graph.maker(artifact, preferred, of.observations.get("made_by", {}).get(name, ""))
            if link is None:
                branches.append(Branch(name, artifact, None, "", (), repeated=False))
                continue
            identity = (link.attempt.key, link.attempt.number)
            repeated = identity in shown
            shown.add(identity)
            further = () if repeated else grow(link.attempt)
            branches.append(Branch(name, artifact, link.attempt, link.name, further, repeated))
        return tuple(branches)

    return grow(attempt)


def downstream(
    graph: Graph,
    attempt: Attempt,
    outputs: Collection[str] | None = None,
    within: Collection[tuple[Digest, int]] | None = None,
) -> tuple[Branch, ...]:
    """What was made from an attempt's outputs (all, or those named), to the end; only by attempts `within`, if given.

    Of attempts that record which stage made their inputs, only those that read this stage's count: another stage may
    have made equal bytes. Of older records every reader of the bytes does, but none that is on the way already.
    """
    shown = {(attempt.key, attempt.number)}

    def grow(of: Attempt, names: Collection[str], way: frozenset[tuple[Digest, int]]) -> tuple[Branch, ...]:
        branches = []
        for name, artifact in sorted(of.outputs.items()):
            for link in graph.users.get(artifact, ()) if name in names else ():
                identity = (link.attempt.key, link.attempt.number)
                made_by = link.attempt.observations.get("made_by", {}).get(link.name, "")
                if identity in way or (within is not None and identity not in within):
                    continue
                if made_by not in ("", f"{of.stage}:{name}"):
                    continue
                repeated = identity in shown
                shown.add(identity)
                further = () if repeated else grow(link.attempt, link.attempt.outputs, way | {identity})
                branches.append(Branch(name, artifact, link.attempt, link.name, further, repeated))
        return tuple(branches)

    return grow(attempt, attempt.outputs if outputs is None else outputs, frozenset(shown))


def trace_row(store: Store, attempts: Iterable[Attempt], corpus: str, line: int) -> Iterator[Sighting]:
    """Every row of (corpus, line) in the tables that these attempts made, in order.

    `dropped` says why it went, `kept` that it stayed. Outputs that are gone are passed over; reads are verified.
    """
    for attempt in attempts:
        for output, digest in attempt.outputs.items():
            try:
                files = store.read_artifact(digest).files
            except (MissingError, DamagedError):
                continue
            for entry in files:
                if entry.rows:
                    yield from _rows_in(store, attempt.stage, output, entry, corpus, line)


def _rows_in(
    store: Store, stage: str, output: str, entry: FileEntry, corpus: str, line: int
) -> Iterator[Sighting]:
    try:
        file = pq.ParquetFile(pa.BufferReader(store.get_bytes(entry.digest)))
    except (MissingError, DamagedError, pa.ArrowException):
        return
    if not {"corpus", "line"} <= set(file.schema_arrow.names):
        return
    column = file.schema_arrow.names.index("line")
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max and not statistics.min <= line <= statistics.max:
            continue
        table = file.read_row_group(group)
        hit = pc.and_(pc.equal(table["line"], line), pc.equal(table["corpus"].cast(pa.string()), corpus))
        for row in table.filter(hit).to_pylist():
            yield Sighting(stage, output, entry.path, row)


def _find_run(store: Store, word: str) -> Run | None:
    try:
        return store.runs.find(word)
    except MissingError:
        return None
