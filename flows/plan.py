"""What a run would do, before anything runs: hit or miss, why, and what it cost last time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.recipe import NOT_COMPUTED, Outputs, differences, look_up, recipe_of
from rnnsearch.flows.shapes import Stage
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

_UNMADE = Digest("")

Status = Literal["hit", "hit_if_same", "miss"]
"""`hit_if_same`: depends on a stage that is computed again, and is cached if that gives the bytes it gave before."""


@dataclass(frozen=True)
class Planned:
    """One stage of a plan."""

    stage: str
    shape: str
    status: Status
    reasons: tuple[str, ...]  # why it is no certain hit; empty for a hit
    seconds: float | None  # what it took last time, or in its nearest earlier recipe
    outputs: Outputs | None  # None for a miss

    @property
    def hit(self) -> bool:
        """Whether it is cached, whatever the other stages give."""
        return self.status == "hit"


@dataclass(frozen=True)
class Cost:
    """Seconds of a plan, by what its stages took last time."""

    least: float  # if every recomputed stage gives the bytes it gave before
    most: float


def plan(stages: Sequence[Stage], store: Store | None, asked: str | None = None) -> Iterator[Planned]:
    """Look up every stage, or one that is asked for and its dependencies. Without a store every stage is a miss.

    A stage whose outputs were lost is computed again, and is expected to give the same bytes: its dependents are
    looked up with these. A dependent of a new recipe has no recipe yet: its reason names the stages it depends on,
    and, if it is the one asked for, what differs from its nearest earlier recipe already.
    """
    known: dict[str, Outputs] = {}
    again: dict[str, tuple[str, ...]] = {}  # by stage: the recomputed stages that its outputs rely on
    for stage in stages if asked is None else up_to(stages, asked):
        missing = [name for name in stage.upstream() if name not in known]
        if missing:
            so_far = _differences_so_far(stage, store, known) if store and stage.name == asked else ()
            reasons = (f"depends on {', '.join(missing)}", *so_far)
            yield Planned(stage.name, stage.shape, "miss", reasons, last_seconds(store, stage.name), None)
            continue
        recipe = recipe_of(stage, known)
        if store is None:
            yield Planned(stage.name, stage.shape, "miss", (NOT_COMPUTED,), None, None)
            continue
        relies = tuple(dict.fromkeys(name for above in stage.upstream() for name in again.get(above, ())))
        found = look_up(store, recipe, stage.roots)
        if found.attempt is None:
            if (outputs := _lost_outputs(store, recipe)) is not None:
                known[stage.name], again[stage.name] = outputs, (stage.name,)
            seconds = last_seconds(store, stage.name)
            yield Planned(stage.name, stage.shape, "miss", found.reasons, seconds, None)
            continue
        known[stage.name] = found.attempt.outputs
        seconds = found.attempt.observations.get("seconds")
        if relies:
            again[stage.name] = relies
            reasons = (f"cached if the bytes of {', '.join(relies)} are the same",)
            yield Planned(stage.name, stage.shape, "hit_if_same", reasons, seconds, found.attempt.outputs)
        else:
            yield Planned(stage.name, stage.shape, "hit", (), seconds, found.attempt.outputs)


def cost(planned: Sequence[Planned]) -> Cost | None:
    """What a plan costs; None where no stage to compute has been timed."""
    seconds = {
        status: [each.seconds for each in planned if each.status == status and each.seconds is not None]
        for status in ("miss", "hit_if_same")
    }
    if not any(seconds.values()):
        return None
    return Cost(sum(seconds["miss"]), sum(seconds["miss"]) + sum(seconds["hit_if_same"]))


def last_seconds(store: Store | None, stage: str) -> float | None:
    """How long the newest attempt of a stage took, under whatever recipe."""
    history = store.ledger.history(stage) if store else ()
    return history[-1].observations.get("seconds") if history else None


def _lost_outputs(store: Store, recipe: Recipe) -> Outputs | None:
    """What the newest attempt of a recipe gave, whether or not it is there still."""
    attempts = [
        each for each in store.ledger.attempts(recipe.key, recipe.stage) if each.withdrawn != "undone"
    ]
    return attempts[-1].outputs if attempts else None


def up_to(stages: Sequence[Stage], asked: str) -> Sequence[Stage]:
    """A stage and all its dependencies. Raises UsageError for a stage that is not among them."""
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
