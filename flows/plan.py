"""What a run would do, before anything runs: hit or miss, why, and what it cost last time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rnnsearch.flows.dag import Stage
from rnnsearch.flows.recipe import Outputs, look_up, recipe_of
from rnnsearch.storage.store import Store


@dataclass(frozen=True)
class Planned:
    """One stage of a plan."""

    stage: str
    shape: str
    hit: bool
    reasons: tuple[str, ...]  # why it is a miss; empty for a hit
    seconds: float | None  # what it took last time, or in its nearest earlier recipe
    outputs: Outputs | None


def plan(stages: Sequence[Stage], store: Store) -> Iterator[Planned]:
    """Look up every stage. A stage below a miss has no recipe yet: its reason names the stages it waits for."""
    known: dict[str, Outputs] = {}
    for stage in stages:
        missing = [name for name in stage.upstream() if name not in known]
        if missing:
            reasons = (f"depends on {', '.join(missing)}",)
            yield Planned(stage.name, stage.shape, False, reasons, last_seconds(store, stage.name), None)
            continue
        recipe = recipe_of(stage, known)
        found = look_up(store, recipe, stage.roots)
        if found.attempt is None:
            seconds = last_seconds(store, stage.name)
            yield Planned(stage.name, stage.shape, False, found.reasons, seconds, None)
            continue
        known[stage.name] = found.attempt.outputs
        seconds = found.attempt.observations.get("seconds")
        yield Planned(stage.name, stage.shape, True, (), seconds, found.attempt.outputs)


def last_seconds(store: Store, stage: str) -> float | None:
    """How long the newest attempt of a stage took, under whatever recipe."""
    history = store.ledger.history(stage)
    return history[-1].observations.get("seconds") if history else None
