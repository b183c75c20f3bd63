"""`rnnsearch verify`, `gc` and `adopt`: the care of a store."""

import shutil
import sys
from collections.abc import Mapping, Sequence

from rich.table import Table

from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.job import events_folder
from rnnsearch.flows.plan import plan
from rnnsearch.flows.recipe import NOT_COMPUTED, Outputs, recipe_of
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.terminal import counted, emit, output_console
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.gc import GcPlan, collect, plan_gc
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe, compare_recipes
from rnnsearch.storage.store import Store
from rnnsearch.storage.transfer import carry_run
from rnnsearch.storage.verify import Problem, Verification, discard_damaged, verify

Request = tuple[str, tuple[str, ...]]  # profile, overrides


def verify_store(location: str, as_json: bool) -> int:
    """Hash every blob of the store and say what is wrong; 1 if something is."""
    store = Store.open(location, create=False)
    found = _verified(store)
    if as_json:
        emit(found._asdict())
    else:
        _print_verification(found)
    return 0 if found.sound else 1


def discard(location: str) -> tuple[Sequence[Request], Mapping[tuple[str, Digest], Outputs]]:
    """Delete what is damaged. Return the runs to repeat, and what the stages concerned had made.

    A run is repeated by its profile and overrides, newest first, until every stage concerned is in one of them.
    """
    store = Store.open(location, create=False)
    found = _verified(store)
    _print_verification(found)
    discard_damaged(store, found)
    hurt = {
        (place.stage, place.key) for problem in (*found.missing, *found.damaged) for place in problem.places
    }
    had = {
        (stage, key): attempt.outputs
        for stage, key in hurt
        if (attempt := store.ledger.latest(key, stage)) is not None
    }
    requests: dict[Request, None] = {}
    waiting = set(had)
    for run in reversed(store.runs.list()):
        used = {(use.stage, use.key) for use in run.uses}
        if waiting & used:
            waiting -= used
            requests[run.request["profile"], tuple(run.request["overrides"])] = None
    return list(requests), had


def say_repaired(location: str, had: Mapping[tuple[str, Digest], Outputs]) -> int:
    """Compare what the repeated runs made with what had been there; 1 if something did not come back."""
    store = Store.open(location, create=False)
    lost = 0
    for (stage, key), outputs in sorted(had.items()):
        attempt = store.ledger.latest(key, stage)
        whole = attempt is not None and all(store.intact(digest) for digest in attempt.outputs.values())
        if attempt is None or not whole:
            sys.stderr.write(f"{stage} {key[:12]} did not come back: no run asks for this recipe any more\n")
            lost += 1
        elif dict(attempt.outputs) != dict(outputs):
            changed = [name for name, digest in attempt.outputs.items() if outputs.get(name) != digest]
            sys.stderr.write(f"{stage} {key[:12]} came back with other bytes: {', '.join(changed)}\n")
            lost += 1
        else:
            sys.stderr.write(f"{stage} {key[:12]} came back as it was\n")
    return 1 if lost else 0


def import_run(source: str, run: str | None, location: str, *, as_json: bool = False) -> None:
    """Bring a run of another store into this one and print its id."""
    there = Store.open(source, create=False)
    found = last_finished(there) if run is None else there.runs.find(run)
    here = Store.open(location)
    try:
        carried = carry_run(there, here, found)
    finally:
        here.close()
    sys.stderr.write(
        f"run {carried.run} of {there.location}: {counted(carried.stages, 'stage')}, "
        f"{counted(carried.blobs, 'new blob')} of {carried.bytes / 1e6:,.1f} MB\n"
    )
    if as_json:
        emit(carried._asdict())
    else:
        sys.stdout.write(f"{carried.run}\n")


def collect_garbage(location: str, keep_last: int, apply: bool, as_json: bool) -> None:
    """Say what no kept run reaches, and delete it if `apply`."""
    store = Store.open(location, create=False)
    planned = collect(store, keep_last) if apply else plan_gc(store, keep_last)
    for attempt in planned.attempts if apply else ():
        if store.ledger.latest(attempt.key, attempt.stage) is None:
            shutil.rmtree(events_folder(store, attempt.stage, attempt.key), ignore_errors=True)
    if as_json:
        emit({"applied": apply, "runs": planned.runs, "stages": [each._asdict() for each in planned.stages]})
        return
    _print_gc(planned, apply)


def adopt_stage(
    stage: str,
    profile: str,
    overrides: Sequence[str],
    location: str,
    *,
    why: str | None,
    undo: bool,
    as_json: bool = False,
) -> None:
    """Let the newest result of a stage stand for its changed code or versions, or take that back."""
    store = Store.open(location, create=False)
    recipe = _recipe_now(store, stage, profile, overrides)
    if undo:
        undone = store.ledger.undo(recipe.key, stage, why or "")
        if as_json:
            emit({"stage": stage, "recipe": recipe.key, "adopted": None})
            return
        sys.stdout.write(
            f"{stage}: the adoption ({undone.adopted.why if undone.adopted else ''}) is taken back\n"
        )
        return
    if not why:
        raise UsageError(
            "say with --why what makes the old result good for the new recipe; lineage will show it"
        )
    old = _adoptable(store, recipe)
    store.ledger.adopt(recipe, old, why)
    if as_json:
        emit({"stage": stage, "recipe": recipe.key, "adopted": {"recipe": old.key, "attempt": old.number}})
        return
    sys.stdout.write(f"{stage}: attempt {old.number} of recipe {old.key[:12]} stands for {recipe.key[:12]}\n")


def _recipe_now(store: Store, stage: str, profile: str, overrides: Sequence[str]) -> Recipe:
    stages = {each.name: each for each in build(load_settings(profile, overrides))}
    if stage not in stages:
        raise UsageError(f"the profile {profile} has no stage {stage!r}; it has {', '.join(stages)}")
    known = {
        each.stage: each.outputs
        for each in plan(list(stages.values()), store)
        if each.hit and each.outputs is not None
    }
    wanted: Stage = stages[stage]
    if missing := [name for name in wanted.upstream() if name not in known]:
        raise UsageError(
            f"{stage} depends on {', '.join(missing)}, which must be there first: run or adopt them"
        )
    return recipe_of(wanted, known)


def _adoptable(store: Store, recipe: Recipe) -> Attempt:
    """The newest intact attempt that differs in code or versions alone."""
    reasons = NOT_COMPUTED
    for attempt in reversed(store.ledger.history(recipe.stage)):
        others = [c for c in compare_recipes(attempt.recipe, recipe) if c.kind in ("config", "input")]
        if others:
            reasons = "other attempts differ in " + ", ".join(f"{c.kind} {c.name}" for c in others)
        elif attempt.withdrawn is None and all(store.intact(digest) for digest in attempt.outputs.values()):
            return attempt
    raise UsageError(f"nothing can stand for {recipe.stage}: {reasons}; only code and versions may differ")


def _verified(store: Store) -> Verification:
    def show(done: int, total: int) -> None:
        if sys.stderr.isatty() and (done % 50 == 0 or done == total):
            sys.stderr.write(f"\r{done:,} of {total:,} blobs" + ("\n" if done == total else ""))

    return verify(store, progress=show)


def _print_verification(found: Verification) -> None:
    sys.stdout.write(f"{found.blobs:,} blobs, {found.bytes / 1e6:,.1f} MB\n")
    for word, problems in (("missing", found.missing), ("damaged", found.damaged)):
        for problem in problems:
            sys.stdout.write(f"{word}: {problem.digest[:12]} {_where(problem)}\n")
    for name in found.records:
        sys.stdout.write(f"damaged record: {name}\n")
    if found.orphaned:
        sys.stdout.write(f"{len(found.orphaned):,} blobs of no record: of unfinished work, or for gc\n")
    if found.sound:
        sys.stdout.write("all that is recorded is there, as it was stored\n")


def _where(problem: Problem) -> str:
    return "; ".join(f"{place.stage} {place.output} {place.path}".rstrip() for place in problem.places)


def _print_gc(planned: GcPlan, applied: bool) -> None:
    table = Table("stage", "attempts", "blobs", "MB", box=None, pad_edge=False, header_style="bold")
    for each in planned.stages:
        table.add_row(each.stage, f"{each.attempts:,}", f"{each.blobs:,}", f"{each.bytes / 1e6:,.1f}")
    console = output_console()
    if planned.stages:
        console.print(table)
    runs = len(planned.runs)
    kept = f"{counted(runs, 'run')} {'is' if runs == 1 else 'are'} kept"
    if applied:
        console.print(f"deleted {planned.bytes / 1e6:,.1f} MB; {kept}")
    elif planned.stages:
        console.print(f"{planned.bytes / 1e6:,.1f} MB would go, {kept}; `rnnsearch gc --apply` deletes")
    else:
        console.print(f"nothing would go, {kept}")
