"""What a run would do, before anything runs: hit or miss, why, and what it cost last time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.recipe import Outputs, differences, look_up, recipe_of
from rnnsearch.flows.shapes import Stage
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.store import Store

_UNMADE = Digest("")


@dataclass(frozen=True)
class Planned:
    """One stage of a plan."""

    stage: str
    shape: str
    hit: bool
    reasons: tuple[str, ...]  # why it is a miss; empty for a hit
    seconds: float | None  # what it took last time, or in its nearest earlier recipe
    outputs: Outputs | None


def plan(stages: Sequence[Stage], store: Store, asked: str | None = None) -> Iterator[Planned]:
    """Look up every stage, or one that is asked for and those before it.

    A stage below a miss has no recipe yet: its reason names the stages it waits for, and, if it is the one asked for,
    what differs from its nearest earlier recipe already.
    """
    known: dict[str, Outputs] = {}
    for stage in stages if asked is None else up_to(stages, asked):
        missing = [name for name in stage.upstream() if name not in known]
        if missing:
            so_far = _differences_so_far(stage, store, known) if stage.name == asked else ()
            reasons = (f"depends on {', '.join(missing)}", *so_far)
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


def up_to(stages: Sequence[Stage], asked: str) -> Sequence[Stage]:
    """A stage and all that it waits for. Raises UsageError for a stage that is not among them."""
    if asked not in {stage.name for stage in stages}:
        raise UsageError(
            f"the profile has no stage {asked!r}; it has {', '.join(stage.name for stage in stages)}"
        )
    wanted = {asked}
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.upstream())
    return [stage for stage in stages if stage.name in wanted]


def _differences_so_far(stage: Stage, store: Store, known: Mapping[str, Outputs]) -> tuple[str, ...]:
    """What is known to differ while some inputs are not made yet."""
    unmade = {name: ref for name, ref in stage.inputs() if ref.stage not in known}
    promised: dict[str, Outputs] = {}
    for ref in unmade.values():
        promised[ref.stage] = {**promised.get(ref.stage, {}), ref.output: _UNMADE}
    told = differences(store, recipe_of(stage, {**known, **promised}), stage.roots)
    return tuple(each for each in told if not any(each.startswith(f"input {name} ") for name in unmade))
