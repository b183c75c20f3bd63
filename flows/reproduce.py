"""The flow: every stage of a profile as a Prefect task, on Ray, with one cache."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture

from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.console import RunConsole
from rnnsearch.flows.dag import build
from rnnsearch.flows.plan import last_seconds, up_to
from rnnsearch.flows.proxies import spare_loopback
from rnnsearch.flows.recipe import freeze_code
from rnnsearch.flows.settings import Settings, load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.stage import Session, as_task
from rnnsearch.flows.train import stop_trainings
from rnnsearch.storage.runs import RunState
from rnnsearch.storage.store import Store

_STOP_SECONDS = (
    5.0  # for trainings to write a checkpoint when a signal came: others wait ten before they kill
)


class Reproduction(NamedTuple):
    """A run that ended: its name in the store, and what became of every stage."""

    run: str
    cached: int
    computed: int
    failed: Mapping[str, str]  # stage -> reason; a stage that waited for it is not listed
    skipped: tuple[str, ...]  # stages that waited for a failed one


class ReproductionError(RuntimeError):
    """A run in which stages failed: Prefect must not show it as completed."""

    def __init__(self, done: Reproduction) -> None:
        """Keep what became of the run."""
        super().__init__(f"run {done.run}: {_said(done.failed)}")
        self.done = done


@flow(name="reproduce", flow_run_name="reproduce-{profile}", validate_parameters=False)
def reproduce(
    profile: str = "demo",
    overrides: Sequence[str] = (),
    store: str = ".rnnsearch",
    console: Any = None,  # a RunConsole; None where nobody watches, as in a deployment
    until: str | None = None,
) -> Reproduction:
    """Run a profile, or what one of its stages needs and that stage; ReproductionError if a stage failed.

    Every parameter but the console is JSON, so that a deployment can carry them.
    """
    settings = load_settings(profile, overrides)
    done = run_stages(settings, Store.open(store), console or RunConsole(None), profile, overrides, until)
    if done.failed:
        raise ReproductionError(done)
    return done


def run_stages(
    settings: Settings,
    store: Store,
    console: RunConsole,
    profile: str,
    overrides: Sequence[str],
    until: str | None = None,
) -> Reproduction:
    """Submit every stage in order; one that fails stops what waits for it and nothing else."""
    spare_loopback()  # a deployment comes here without the command line
    stages = build(settings) if until is None else up_to(build(settings), until)
    freeze_code(stages)
    cluster = Cluster()
    run = store.runs.start(
        {
            "profile": profile,
            "overrides": list(overrides),
            "settings": settings.model_dump(mode="json"),
            "stages": [stage.name for stage in stages],
            **({} if until is None else {"until": until}),
        }
    )
    seconds = {stage.name: last_seconds(store, stage.name) for stage in stages}
    console.expect(
        [stage.name for stage in stages], {name: each for name, each in seconds.items() if each is not None}
    )
    session = Session(
        store=store,
        run=run.id,
        cluster=cluster,
        placement=settings.placement,
        console=console,
        slots=threading.Semaphore(settings.placement.stages_at_once),
    )
    state: RunState = "cancelled"
    note = ""
    try:
        futures = _submit(stages, session)
        states = {name: _wait(future) for name, future in futures.items()}
        failed = {name: _reason(found) for name, found in states.items() if found.is_failed()}
        state = "failed" if failed else "finished"
        note = _said(failed)
    finally:
        session.stopping.set()
        stop_trainings(_STOP_SECONDS)
        cluster.close()
        store.runs.finish(run.id, state, note)
        store.close()
    done = [found for found in states.values() if found.is_completed()]
    cached = sum(found.name == "Cached" for found in done)
    skipped = tuple(name for name, found in states.items() if found.is_pending() or found.name == "NotReady")
    return Reproduction(run.id, cached, len(done) - cached, failed, skipped)


def _said(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{stage}: {reason}" for stage, reason in failed.items())


def _submit(stages: Sequence[Stage], session: Session) -> Mapping[str, PrefectFuture[Any]]:
    futures: dict[str, PrefectFuture[Any]] = {}
    for stage in stages:
        upstream: Any = {name: futures[name] for name in stage.upstream()}
        futures[stage.name] = as_task(stage, session).submit(upstream)
    return futures


def _wait(future: PrefectFuture[Any]) -> State[Any]:
    future.wait()
    return future.state


def _reason(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    return f"{type(error).__name__}: {error}"
