"""One way to make a stage a Prefect task: look it up, or lease it, compute what is missing, record it last."""

import platform
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.console import RunConsole
from rnnsearch.flows.download import doubt_downloads
from rnnsearch.flows.job import Files, Finished, Job, clear_work
from rnnsearch.flows.recipe import Outputs, code_changed, code_of, look_up, partial_roots, recipe_of
from rnnsearch.flows.settings import PlacementConfig
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.shards import MergeTask, ShardTask, compute_merge, compute_shard, needs, shard_name
from rnnsearch.flows.steps import Step
from rnnsearch.flows.work import WORK, FoldWork, MapWork, RunWork
from rnnsearch.pipeline.errors import TextError
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import explained
from rnnsearch.storage.leases import Lease, LeaseRecord
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store


class StageError(RuntimeError):
    """A stage that failed by what it was given; the message names the stage and the reason."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """What the stages of one run share."""

    store: Store
    run: str
    cluster: Cluster
    placement: PlacementConfig
    console: RunConsole
    stopping: threading.Event = field(default_factory=threading.Event)  # no stage begins after it is set
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)  # as many stages work at once


@dataclass(kw_only=True)
class _Counts:
    """How many shards (and partial values) a stage had, and which of them were computed now."""

    shards: int = 0
    recipes: list[Recipe] = field(default_factory=list)

    @property
    def computed(self) -> int:
        """How many were computed now."""
        return len(self.recipes)


def as_task(stage: Stage, session: Session) -> Task[[Mapping[str, Outputs]], Outputs | State[Outputs]]:
    """The Prefect task of a stage. It takes the outputs of the stages before it; a hit ends in state `Cached`.

    The ledger is the only cache: Prefect's own served stale results (architecture 4).
    """

    @task(name=stage.name, task_run_name=stage.name, cache_policy=NO_CACHE, persist_result=False)
    def compute(upstream: Mapping[str, Outputs]) -> Outputs | State[Outputs]:
        with session.slots:
            outputs, cached = run_stage(stage, session, upstream)
        return Completed(name="Cached", data=outputs) if cached else outputs

    return compute


def run_stage(stage: Stage, session: Session, upstream: Mapping[str, Outputs]) -> tuple[Outputs, bool]:
    """Return the outputs of a stage and whether they were there already.

    The ledger's attempt is written last: a crash at any point leaves either the finished stage or nothing that a
    rerun would trust. A second run of the same recipe waits for the first and is a hit.
    """
    if session.stopping.is_set():
        raise StageError("the run is ending")
    recipe, store = recipe_of(stage, upstream), session.store
    began = time.monotonic()
    found = look_up(store, recipe, stage.roots, keep=True)
    if found.attempt is None:
        with store.leases.hold(
            recipe.key,
            needs=tuple(recipe.inputs.values()),
            on_wait=lambda held: session.console.progress(stage.name, _waits_for(held)),
        ) as lease:
            found = look_up(store, recipe, stage.roots, keep=True)
            if found.attempt is None:
                session.console.begin(stage.name, "; ".join(found.reasons[:1]))
                try:
                    return _compute(stage, session, recipe, found.reasons, lease), False
                except Exception as error:
                    session.console.end(stage.name, "Stopped" if session.stopping.is_set() else "Failed")
                    if isinstance(error, TextError):
                        doubt_downloads(store, stage, recipe, str(error))
                    if isinstance(error, OSError):
                        raise explained(error, f"use {error.filename or 'the disk'}") from error
                    raise
    attempt = found.attempt
    if attempt is None:
        raise StageError(f"{stage.name} has neither an attempt nor a reason to have none")
    clear_work(store, recipe.key)  # of a process that was killed after its record
    saved = float(attempt.observations.get("seconds", 0.0))
    session.console.end(stage.name, "Cached", f"{saved:.1f} s saved" if saved >= 1 else "")
    _note_use(session, stage, attempt.key, attempt.number, True, (), time.monotonic() - began, _Counts())
    return dict(attempt.outputs), True


def _compute(stage: Stage, session: Session, recipe: Recipe, reasons: Sequence[str], lease: Lease) -> Outputs:
    began, counts = time.monotonic(), _Counts()
    work = WORK[stage.kind]
    observations: Mapping[str, Any] = {}
    _require_same_code(stage, session, counts)
    if isinstance(work, MapWork):
        files = _map(stage, session, recipe, work, counts)
    elif isinstance(work, FoldWork):
        files = _fold(stage, session, recipe, work, counts)
    else:
        files, observations = _run(stage, session, recipe, work, lease)
    if not (
        isinstance(work, RunWork) and work.needs_cluster
    ):  # a training imports all it needs when it starts
        _require_same_code(stage, session, counts)
    outputs = {name: session.store.write_artifact(entries).digest for name, entries in files.items()}
    if set(outputs) != set(stage.outputs):
        raise StageError(f"{stage.name} made {sorted(outputs)}, its stage promises {sorted(stage.outputs)}")
    seconds = time.monotonic() - began
    session.store.put_code(code_of(stage.roots))
    lease.check()
    attempt = session.store.ledger.record(
        recipe,
        outputs,
        rows=_rows(files),
        placement=_placement(session),
        observations={**observations, "seconds": round(seconds, 3), "made_by": _makers(stage)},
        environment={
            "host": socket.gethostname(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
    )
    clear_work(session.store, recipe.key)
    shards = f"{counts.computed} of {counts.shards} shards, " if counts.shards else ""
    session.console.end(stage.name, "Computed", f"{shards}{seconds:.1f} s")
    _note_use(session, stage, recipe.key, attempt.number, False, reasons, seconds, counts)
    return outputs


def _require_same_code(stage: Stage, session: Session, counts: _Counts) -> None:
    """StageError if the stage's code was edited since the run began: then nobody knows which of the two ran."""
    if not code_changed(stage):
        return
    for recipe in counts.recipes:
        session.store.shards.delete(recipe.key, recipe.stage)
    raise StageError(
        f"the code of {stage.name} changed since this run began; run again to use it as it is now"
    )


def _run(
    stage: Stage, session: Session, recipe: Recipe, work: RunWork, lease: Lease
) -> tuple[Files, Mapping[str, Any]]:
    job = Job(
        location=session.store.location,
        stage=stage.name,
        key=recipe.key,
        epoch=lease.epoch,
        inputs=recipe.inputs,
        config=recipe.config,
        placement=session.placement,
        code=recipe.code,
        unkeyed=stage.unkeyed,
    )
    if work.on_cluster:
        made = session.cluster.run(work.function, job)
        return made if isinstance(made, Finished) else (made, {})
    if work.needs_cluster:
        session.cluster.connect()
    finished = work.function(job, lambda note: session.console.progress(stage.name, note))
    return finished.files, finished.observations


def _map(stage: Stage, session: Session, recipe: Recipe, work: MapWork, counts: _Counts) -> Files:
    done = _over_shards(stage, session, recipe, work.function, stage.roots, counts)
    return {
        output: [files[output]._replace(path=shard_name(position)) for position, files in enumerate(done)]
        for output in stage.outputs
    }


def _fold(
    stage: Stage, session: Session, recipe: Recipe, work: FoldWork, counts: _Counts
) -> Mapping[str, Sequence[FileEntry]]:
    done = _over_shards(stage, session, recipe, work.partial, partial_roots(stage), counts)
    task_ = MergeTask(
        location=session.store.location,
        function=work.merge,
        partials=[files["partial"].digest for files in done],
        whole={name: recipe.inputs[name] for name in stage.whole},
        config=recipe.config,
    )
    return session.cluster.run(compute_merge, task_)


def _over_shards(
    stage: Stage,
    session: Session,
    recipe: Recipe,
    function: Callable[..., Any],
    roots: tuple[str, ...],
    counts: _Counts,
) -> list[Mapping[str, FileEntry]]:
    """The files of every shard, in order; shards that an earlier attempt finished are not computed again."""
    store = session.store
    wanted = needs(function)
    rows = _zip_shards(stage, store, recipe)
    base = replace(
        recipe,
        stage=stage.kind,
        code=code_of(roots).digest,
        config={name: value for name, value in recipe.config.items() if name in wanted.sections},
    )
    whole = {name: recipe.inputs[name] for name in stage.whole if name in wanted.names}
    tasks, places, done = [], [], dict[int, Mapping[str, FileEntry]]()
    for position, shard in enumerate(rows):
        shard_recipe = replace(base, inputs={**shard, **whole})
        known = _known_shard(store, shard_recipe)
        if known is not None:
            done[position] = known
            continue
        tasks.append(
            ShardTask(store.location, function, shard, whole, recipe.config, shard_recipe, recipe.key)
        )
        places.append(position)
    counts.shards, counts.recipes = len(rows), [task.recipe for task in tasks]
    for finished, (position, result) in enumerate(
        session.cluster.map(compute_shard, tasks) if tasks else (), 1
    ):
        done[places[position]] = result.files
        session.console.progress(stage.name, Step(f"shard {finished} of {len(tasks)}", finished, len(tasks)))
    return [done[position] for position in range(len(rows))]


def _zip_shards(stage: Stage, store: Store, recipe: Recipe) -> list[Mapping[str, Digest]]:
    """For each shard, its blob in every sharded input. Several artifacts of one input follow one another."""
    columns: dict[str, list[Digest]] = {}
    for name, refs in stage.sharded.items():
        keys = [name] if len(refs) == 1 else [f"{name}[{position}]" for position in range(len(refs))]
        columns[name] = [
            file.digest for key in keys for file in store.read_artifact(recipe.inputs[key]).files
        ]
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise StageError(f"{stage.name} walks inputs of unequal numbers of shards: {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known_shard(store: Store, recipe: Recipe) -> Mapping[str, FileEntry] | None:
    for attempt in reversed(store.shards.attempts(recipe.key, recipe.stage)):
        sizes = {name: store.blobs.size(digest) for name, digest in attempt.outputs.items()}
        for digest in attempt.outputs.values():
            store.pins.pin(digest, "blob")
        if all(store.blobs.intact(digest) for digest in attempt.outputs.values()):
            return {
                name: FileEntry("", digest, sizes[name] or 0, attempt.rows[name])
                for name, digest in attempt.outputs.items()
            }
    return None


def _makers(stage: Stage) -> Mapping[str, str]:
    """Which stage's output each input was here: two stages may make the same bytes, and keys know only bytes."""
    return {name: f"{ref.stage}:{ref.output}" for name, ref in stage.inputs()}


def _waits_for(held: LeaseRecord) -> str:
    holder = held.holder
    return "waits for another run" if holder is None else f"waits for process {holder.pid} on {holder.host}"


def _placement(session: Session) -> Mapping[str, Any]:
    return {
        "executor": session.cluster.address or "local",
        "processors": session.cluster.processors,
        **session.placement.model_dump(mode="json"),
    }


def _rows(files: Mapping[str, Sequence[FileEntry]]) -> Mapping[str, int]:
    return {
        name: sum(file.rows for file in entries if file.rows is not None)
        for name, entries in files.items()
        if any(file.rows is not None for file in entries)
    }


def _note_use(
    session: Session,
    stage: Stage,
    key: Digest,
    number: int,
    hit: bool,
    reasons: Sequence[str],
    seconds: float,
    counts: _Counts,
) -> None:
    session.store.runs.record_stage(
        session.run,
        StageUse(
            stage=stage.name,
            key=key,
            attempt=number,
            hit=hit,
            reason="; ".join(reasons),
            seconds=round(seconds, 3),
            shards_total=counts.shards or None,
            shards_computed=counts.computed if counts.shards else None,
        ),
    )
