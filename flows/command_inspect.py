"""`rnnsearch runs`, `lineage` and `report`: what is in the store, for people and for programs."""

import datetime
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from rnnsearch.flows.cli import emit
from rnnsearch.flows.command_plan import duration, output_console
from rnnsearch.flows.errors import UsageError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store


def show_runs(run: str | None, location: str, tag: str | None, untag: str | None, as_json: bool) -> None:
    """List the runs of a store, or show one, or change its tags."""
    store = Store.open(location, create=False)
    if run is None:
        if tag or untag:
            raise UsageError("a tag belongs to a run: name the run, as `rnnsearch runs` lists it")
        _print_runs(store.runs.list(), as_json)
        return
    found = store.runs.find(run)
    if tag:
        store.runs.tag(found.id, tag)
    if untag:
        store.runs.untag(found.id, untag)
    _print_run(store.runs.get(found.id), as_json)


def last_finished(store: Store) -> Run:
    """The newest run that finished. Raises UsageError if there is none."""
    finished = [run for run in store.runs.list() if run.state == "finished"]
    if not finished:
        raise UsageError(f"no run in {store.location} has finished; `rnnsearch run` makes one")
    return finished[-1]


def draw_report(run: str | None, location: str, to: Path | None) -> None:
    """Draw the report of a run and print where it is."""
    from rnnsearch.flows.report.write import write_report  # noqa: PLC0415  # matplotlib is slow to import

    store = Store.open(location, create=False)
    found = last_finished(store) if run is None else store.runs.find(run)
    folder = to or report_folder(store, found.id)
    sys.stdout.write(f"{write_report(store, found.id, folder)}\n")


def report_folder(store: Store, run: str) -> Path:
    """Where the report of a run is written."""
    return store.backend.cache / "reports" / run


def show_lineage(what: str, location: str, as_json: bool) -> None:
    """Show what a run's results, an artifact or a recipe were made from."""
    store = Store.open(location, create=False)
    attempts = list(_attempts_of(store, what))
    if not attempts:
        raise UsageError(
            f"nothing in {location} is called {what!r}; give a run, a stage such as evaluate/rnnsearch, "
            "or the first digits of an artifact's or a recipe's digest"
        )
    made = _makers(store)
    if as_json:
        emit([_lineage_json(attempt, made, set()) for attempt in attempts])
        return
    console = output_console()
    for attempt in attempts:
        tree = Tree(_label(attempt))
        _grow(tree, attempt, made, {attempt.key})
        console.print(tree)


def _attempts_of(store: Store, what: str) -> Iterator[Attempt]:
    """The attempts that a word names: a stage's newest, a run's ends, a digest's makers."""
    if what in store.ledger.stages():
        yield store.ledger.history(what)[-1]
        return
    runs = [run for run in store.runs.list() if run.id == what or what in run.tags]
    for run in runs[-1:]:
        used = [store.ledger.attempt(use.key, use.attempt, use.stage) for use in run.uses]
        taken = {digest for attempt in used if attempt for digest in attempt.recipe.inputs.values()}
        for attempt in used:
            if attempt is not None and not taken & set(attempt.outputs.values()):
                yield attempt
        return
    if len(what) >= 6:
        for stage in store.ledger.stages():
            for attempt in store.ledger.history(stage):
                if attempt.key.startswith(what) or any(d.startswith(what) for d in attempt.outputs.values()):
                    yield attempt


Makers = Mapping[tuple[str, str], tuple[Attempt, str]]


def _makers(store: Store) -> Makers:
    """The newest attempt that made an artifact, by (artifact, stage:output), and by (artifact, nothing)."""
    made: dict[tuple[str, str], tuple[Attempt, str]] = {}
    for stage in store.ledger.stages():
        for attempt in store.ledger.history(stage):
            for output, digest in attempt.outputs.items():
                made[digest, ""] = made[digest, f"{stage}:{output}"] = attempt, output
    return made


def _maker(attempt: Attempt, name: str, made: Makers) -> tuple[Attempt, str] | None:
    """What made an input: as it was when the attempt was recorded, or else whatever made these bytes."""
    digest, from_ = attempt.recipe.inputs[name], attempt.observations.get("made_by", {}).get(name, "")
    return made.get((digest, from_)) or made.get((digest, ""))


def _grow(tree: Tree, attempt: Attempt, made: Makers, shown: set[str]) -> None:
    for name, digest in attempt.recipe.inputs.items():
        found = _maker(attempt, name, made)
        if found is None:
            tree.add(Text(f"{name}  {digest[:12]}  (its attempt is gone)"))
            continue
        maker, output = found
        again = maker.key in shown
        branch = tree.add(_label(maker, f"{name} = {output} {digest[:12]} of ", " (above)" if again else ""))
        if not again:
            shown.add(maker.key)
            _grow(branch, maker, made, shown)


def _label(attempt: Attempt, before: str = "", after: str = "") -> Text:
    seconds = attempt.observations.get("seconds")
    took = f", {duration(seconds)}" if seconds is not None else ""
    adopted = f", adopted: {attempt.adopted.why}" if attempt.adopted else ""
    when = datetime.datetime.fromtimestamp(attempt.recorded, datetime.UTC).strftime("%Y-%m-%d %H:%M")
    text = Text(before)
    text.append(attempt.stage, "bold")
    return text.append(f"  recipe {attempt.key[:12]}, {when}{took}{adopted}{after}")


def _lineage_json(attempt: Attempt, made: Makers, above: set[str]) -> dict[str, object]:
    inputs: dict[str, object] = {}
    for name, digest in attempt.recipe.inputs.items():
        maker = _maker(attempt, name, made)
        known = maker is not None and maker[0].key not in above
        inputs[name] = {
            "artifact": digest,
            "made": _lineage_json(maker[0], made, above | {attempt.key}) if maker and known else None,
        }
    return {
        "stage": attempt.stage,
        "recipe": attempt.key,
        "attempt": attempt.number,
        "outputs": dict(attempt.outputs),
        "config": dict(attempt.recipe.config),
        "code": attempt.recipe.code,
        "libraries": dict(attempt.recipe.libraries),
        "placement": dict(attempt.placement),
        "observations": dict(attempt.observations),
        "environment": dict(attempt.environment),
        "adopted": attempt.adopted._asdict() if attempt.adopted else None,
        "inputs": inputs,
    }


def _print_runs(runs: tuple[Run, ...], as_json: bool) -> None:
    if as_json:
        emit([_run_json(run) for run in runs])
        return
    table = Table("run", "profile", "state", "stages", "cached", "took", "tags", box=None, pad_edge=False)
    for run in runs:
        hits = sum(use.hit for use in run.uses)
        took = duration(run.ended - run.started) if run.ended else ""
        table.add_row(
            run.id,
            str(run.request.get("profile", "")),
            run.state,
            str(len(run.uses)),
            str(hits),
            took,
            " ".join(sorted(run.tags)),
        )
    output_console().print(table)


def _print_run(run: Run, as_json: bool) -> None:
    if as_json:
        emit(_run_json(run))
        return
    console = output_console()
    overrides = " ".join(f"--set {each}" for each in run.request.get("overrides", []))
    console.print(
        Text(f"{run.id}  {run.request.get('profile', '')} {overrides}  {run.state} {run.note}".rstrip())
    )
    if run.tags:
        console.print(Text(f"tags: {' '.join(sorted(run.tags))}"))
    table = Table("stage", "", "took", "shards", "recipe", "why", box=None, pad_edge=False)
    for use in run.uses:
        shards = f"{use.shards_computed} of {use.shards_total}" if use.shards_total else ""
        state = "cached" if use.hit else "computed"
        table.add_row(
            use.stage, state, duration(use.seconds), shards, use.key[:12], Text(use.reason, overflow="fold")
        )
    console.print(table)


def _run_json(run: Run) -> dict[str, object]:
    return {
        "run": run.id,
        "state": run.state,
        "note": run.note,
        "started": run.started,
        "ended": run.ended,
        "tags": sorted(run.tags),
        "request": dict(run.request),
        "process": asdict(run.process),
        "stages": [use._asdict() for use in run.uses],
    }
