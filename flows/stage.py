"""One way to make a stage a Prefect task: look it up, or lease it, compute what is missing, record it last."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from rnnsearch.flows.attempts import record_attempt
from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.console import RunConsole
from rnnsearch.flows.download import doubt_downloads, name_sources
from rnnsearch.flows.execution import (
    Made,
    Request,
    StageError,
    execute_fold,
    execute_map,
    execute_process,
)
from rnnsearch.flows.job import Job, Place, clear_work
from rnnsearch.flows.proof import proof_of
from rnnsearch.flows.recipe import Outputs, code_changed, look_up, recipe_of, shard_code
from rnnsearch.flows.settings import PlacementConfig
from rnnsearch.flows.shapes import Fold, Map, Process, Stage
from rnnsearch.flows.steps import Step
from rnnsearch.flows.witness import summary
from rnnsearch.pipeline.errors import TextError
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import explained
from rnnsearch.storage.leases import Lease, LeaseRecord
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store


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
                        message = name_sources(str(error), store, stage, recipe)
                        doubt_downloads(store, stage, recipe, message)
                        raise type(error)(message) from error
                    if isinstance(error, OSError):
                        raise explained(error, f"use {error.filename or 'the disk'}") from error
                    raise
    attempt = found.attempt
    if attempt is None:
        raise StageError(f"{stage.name} has neither an attempt nor a reason to have none")
    clear_work(store, recipe.key)  # of a process that was killed after its record
    saved = float(attempt.observations.get("seconds", 0.0))
    session.console.end(stage.name, "Cached", f"{saved:.1f} s saved" if saved >= 1 else "")
    _note_use(session, stage, attempt.key, attempt.number, True, (), time.monotonic() - began, Made())
    return dict(attempt.outputs), True


def _compute(stage: Stage, session: Session, recipe: Recipe, reasons: Sequence[str], lease: Lease) -> Outputs:
    began, made = time.monotonic(), Made()
    _require_same_code(stage, session, made)
    _execute(stage, session, recipe, lease, made)
    if not (
        isinstance(stage.declared.work, Process) and stage.declared.work.needs_cluster
    ):  # a training imports all it needs when it starts
        _require_same_code(stage, session, made)
    seconds = time.monotonic() - began
    attempt = record_attempt(
        session.store, stage, recipe, lease, made, seconds=seconds, placement=_placement(session, made)
    )
    shards = f"{len(made.recipes)} of {made.shards} shards, " if made.shards else ""
    session.console.end(stage.name, "Computed", f"{shards}{seconds:.1f} s")
    _note_use(session, stage, recipe.key, attempt.number, False, reasons, seconds, made)
    return made.outputs


def _execute(stage: Stage, session: Session, recipe: Recipe, lease: Lease, made: Made) -> None:
    proof = proof_of(stage.roots)
    request = Request(
        stage=stage,
        recipe=recipe,
        proof=proof,
        store=session.store,
        engine=session.cluster,
        progress=lambda note: session.console.progress(stage.name, note),
        on_shard=lambda done, of: session.console.progress(
            stage.name, Step(f"shard {done} of {of}", done, of)
        ),
    )
    match stage.declared.work:
        case Map() as work:
            execute_map(request, work, shard_code(stage), made)
        case Fold() as work:
            execute_fold(request, work, shard_code(stage), made)
        case Process() as work:
            job = Job(
                location=session.store.location,
                stage=stage.name,
                key=recipe.key,
                epoch=lease.epoch,
                inputs=recipe.inputs,
                config=recipe.config,
                place=_place(session.placement) if work.needs_cluster else Place(),
                proof=proof,
                code=recipe.code,
                unkeyed=stage.unkeyed,
            )
            execute_process(request, work, job, made)


def _place(placement: PlacementConfig) -> Place:
    device = placement.device
    if device == "auto":
        import torch  # noqa: PLC0415  # slow, and only a training asks

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Place(placement.train_workers, placement.threads(), device)


def _require_same_code(stage: Stage, session: Session, made: Made) -> None:
    """StageError if the stage's code was edited since the run began: then nobody knows which of the two ran."""
    if not code_changed(stage):
        return
    for recipe in made.recipes:
        session.store.shards.delete(recipe.key, recipe.stage)
    raise StageError(
        f"the code of {stage.name} changed since this run began; run again to use it as it is now"
    )


def _waits_for(held: LeaseRecord) -> str:
    holder = held.holder
    return "waits for another run" if holder is None else f"waits for process {holder.pid} on {holder.host}"


def _placement(session: Session, made: Made) -> Mapping[str, Any]:
    """Where a stage was asked to run, and on what it did."""
    seen = ("device", "kernels", "threads", "workers")  # by a training of itself
    return {
        "executor": session.cluster.address or "local",
        "processors": session.cluster.processors,
        **session.placement.model_dump(mode="json"),
        "as_run": {
            **summary(made.as_run),
            **{name: made.observations[name] for name in seen if name in made.observations},
        },
    }


def _note_use(
    session: Session,
    stage: Stage,
    key: Digest,
    number: int,
    hit: bool,
    reasons: Sequence[str],
    seconds: float,
    made: Made,
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
            shards_total=made.shards or None,
            shards_computed=len(made.recipes) if made.shards else None,
        ),
    )
