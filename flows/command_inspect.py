"""`rnnsearch runs`, `lineage` and `report`: what is in the store, for people and for programs."""

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.places import check_folder
from rnnsearch.flows.summary import Summary, summarize
from rnnsearch.flows.terminal import duration, emit, output_console
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.lineage import (
    Branch,
    Sighting,
    downstream,
    ends_of,
    find_subject,
    read_graph,
    trace_row,
    upstream,
    uses_of,
)
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store

_NOT_SHOWN = (
    "corpus",
    "line",
    "alignment",
    "partner",
    "threshold",
)  # of a row: the last two are told below it


def show_runs(run: str | None, location: str, tag: str | None, untag: str | None, as_json: bool) -> None:
    """List the runs of a store, or show one, or change its tags."""
    store = Store.open(location, create=False)
    if run is None:
        if tag or untag:
            raise UsageError("a tag belongs to a run: name the run, as `rnnsearch runs` lists it")
        _print_runs([(each, summarize(store, each)) for each in store.runs.list()], as_json)
        return
    found = store.runs.find(run)
    if tag:
        store.runs.tag(found.id, tag)
    if untag:
        store.runs.untag(found.id, untag)
    _print_run(store.runs.get(found.id), as_json)


def last_finished(store: Store) -> Run:
    """The newest run that finished, of the whole profile. Raises UsageError if there is none."""
    finished = [run for run in store.runs.list() if run.state == "finished" and "until" not in run.request]
    if not finished:
        raise UsageError(f"no run in {store.location} has finished; `rnnsearch run` makes one")
    return finished[-1]


def draw_report(run: str | None, location: str, to: Path | None, *, as_json: bool = False) -> None:
    """Draw the report of a run and print where it is."""
    if to is not None:
        check_folder(to)
    store = Store.open(location, create=False)
    found = last_finished(store) if run is None else store.runs.find(run)
    from rnnsearch.flows.report.write import write_report  # noqa: PLC0415  # matplotlib is slow to import

    page = write_report(store, found.id, to or report_folder(store, found.id))
    if as_json:
        emit({"run": found.id, "report": page})
    else:
        sys.stdout.write(f"{page}\n")


def report_folder(store: Store, run: str) -> Path:
    """Where the report of a run is written."""
    return store.backend.cache / "reports" / run


def show_lineage(what: str, location: str, run: str | None, *, down: bool, as_json: bool) -> None:
    """Show what a run's results, an artifact or a recipe were made from, or what was made from them.

    A stage is that of the run `run`, by default of the newest finished run that used it; so are its relatives.
    """
    store = Store.open(location, create=False)
    graph = read_graph(store)
    subject = find_subject(store, graph, what, run)
    used = () if subject.run is None else {(use.key, use.attempt) for use in subject.run.uses}
    attempts = subject.attempts
    if subject.whole:
        attempts = attempts[:1] if down else ends_of(attempts)
    grown = []
    for attempt in attempts:
        if down:
            named = [name for name, digest in attempt.outputs.items() if subject.artifact in (None, digest)]
            grown.append((attempt, downstream(graph, attempt, named, used or None)))
        else:
            grown.append((attempt, upstream(graph, attempt, used)))
    if as_json:
        emit(
            [
                {
                    "run": subject.run.id if subject.run else None,
                    **_attempt_json(attempt),
                    "branches": [_branch_json(b) for b in tree],
                }
                for attempt, tree in grown
            ]
        )
        return
    console = output_console()
    of_run = f", run {subject.run.id}" if subject.run else ", of no finished run"
    for attempt, tree in grown:
        root = Tree(_label(attempt, after=of_run))
        _grow(root, tree)
        console.print(root)


def show_code(what: str, location: str, run: str | None, as_json: bool) -> None:
    """Print the source code that made a run's results, an artifact or a stage: each definition after its name."""
    store = Store.open(location, create=False)
    subject = find_subject(store, read_graph(store), what, run)
    attempts = ends_of(subject.attempts) if subject.whole else subject.attempts
    found = [(attempt, store.code_sources(attempt.recipe.code)) for attempt in attempts]
    if as_json:
        emit(
            [
                {
                    "run": subject.run.id if subject.run else None,
                    "stage": attempt.stage,
                    "recipe": attempt.key,
                    "attempt": attempt.number,
                    "code": attempt.recipe.code,
                    "sources": None if sources is None else dict(sources),
                }
                for attempt, sources in found
            ]
        )
        return
    for attempt, sources in found:
        sys.stdout.write(f"# {attempt.stage}  recipe {attempt.key[:12]}, code {attempt.recipe.code[:12]}\n")
        if sources is None:
            sys.stdout.write("# its source is not stored: it was made by an earlier version of rnnsearch\n")
        for name, text in sorted((sources or {}).items()):
            sys.stdout.write(f"\n# {name}\n{text.rstrip()}\n")


def show_uses(what: str, location: str, as_json: bool) -> None:
    """List the runs that used an artifact, a recipe or a stage, and how: computed, cached, or read as an input."""
    store = Store.open(location, create=False)
    found = uses_of(store, read_graph(store), what)
    if as_json:
        emit([use._asdict() for use in found])
        return
    table = Table("run", "state", "stage", "how", "recipe", box=None, pad_edge=False)
    for use in found:
        table.add_row(use.run, use.state, use.stage, use.how, use.recipe[:12])
    console = output_console()
    console.print(table if found else Text(f"no run of {store.location} used {what}"))


def show_row(place: str, location: str, run: str | None, as_json: bool) -> None:
    """Follow one row, `corpus:line`, through the stages of a run, by default the last that finished.

    Where it was dropped, its partner is shown with its text, or its score beside the threshold.
    """
    store = Store.open(location, create=False)
    corpus, colon, line = place.rpartition(":")
    if not colon or not line.isdigit():
        raise UsageError(f"{place!r} is not a row; write corpus:line, with lines counted from 0")
    found = last_finished(store) if run is None else store.runs.find(run)
    recorded = [store.ledger.attempt(use.key, use.attempt, use.stage) for use in found.uses]
    used = [attempt for attempt in recorded if attempt is not None]
    seen = list(trace_row(store, used, corpus, int(line)))
    if not seen:
        raise UsageError(f"no stage of run {found.id} has line {line} of corpus {corpus!r}")
    names = {sighting.row["partner"] for sighting in seen if sighting.row.get("partner") is not None}
    partners = {name: _partner(store, used, name) for name in names}
    difference = next((s.row["difference"] for s in seen if "difference" in s.row), None)
    if as_json:
        emit([{**sighting._asdict(), **_why(sighting, partners, difference)} for sighting in seen])
        return
    table = Table("stage", "output", "row", box=None, pad_edge=False, header_style="bold")
    for sighting in seen:
        row = {name: value for name, value in sighting.row.items() if name not in _NOT_SHOWN}
        lines = [str(row), *_told(_why(sighting, partners, difference))]
        table.add_row(sighting.stage, sighting.output, Text("\n".join(lines), overflow="fold"))
    output_console().print(table)


def _partner(store: Store, attempts: Sequence[Attempt], name: str) -> dict[str, object]:
    """A row and its text, as the first of these attempts made it that has it; without a text if none has."""
    corpus, _, line = name.rpartition(":")
    found: dict[str, object] = {"corpus": corpus, "line": int(line)}
    for sighting in trace_row(store, attempts, corpus, int(line)):
        if {"source", "target"} <= sighting.row.keys():
            return {**found, **{side: sighting.row[side] for side in ("source", "target")}}
    return found


def _why(
    sighting: Sighting, partners: Mapping[str, dict[str, object]], difference: int | None
) -> dict[str, object]:
    """Of a dropped row its partner with its text, or its difference beside the threshold (micro-bits)."""
    why: dict[str, object] = {}
    if (name := sighting.row.get("partner")) is not None:
        why["partner"] = partners[name]
    if (threshold := sighting.row.get("threshold")) is not None:
        why |= {"difference": difference, "threshold": threshold}
    return why


def _told(why: Mapping[str, Any]) -> Iterator[str]:
    if partner := why.get("partner"):
        text = f": {partner['source']} | {partner['target']}" if "source" in partner else ""
        yield f"partner {partner['corpus']}:{partner['line']}{text}"
    if (threshold := why.get("threshold")) is not None:
        score = "" if why["difference"] is None else f"difference {why['difference'] / 1e6:.6f}, "
        yield f"{score}threshold {threshold / 1e6:.6f} bits a token"


def _grow(tree: Tree, branches: Sequence[Branch]) -> None:
    for branch in branches:
        if branch.attempt is None:
            tree.add(Text(f"{branch.name}  {branch.artifact[:12]}  (its attempt is gone)"))
            continue
        before = f"{branch.name} = {branch.output} {branch.artifact[:12]} of "
        _grow(
            tree.add(_label(branch.attempt, before, " (above)" if branch.repeated else "")), branch.branches
        )


def _label(attempt: Attempt, before: str = "", after: str = "") -> Text:
    seconds = attempt.observations.get("seconds")
    took = f", {duration(seconds)}" if seconds is not None else ""
    adopted = f", adopted: {attempt.adopted.why}" if attempt.adopted else ""
    when = datetime.datetime.fromtimestamp(attempt.recorded, datetime.UTC).strftime("%Y-%m-%d %H:%M")
    text = Text(before)
    text.append(attempt.stage, "bold")
    return text.append(f"  recipe {attempt.key[:12]}, {when}{took}{adopted}{after}")


def _branch_json(branch: Branch) -> dict[str, object]:
    return {
        "name": branch.name,
        "artifact": branch.artifact,
        "output": branch.output,
        "repeated": branch.repeated,
        **({} if branch.attempt is None else _attempt_json(branch.attempt)),
        "branches": [_branch_json(each) for each in branch.branches],
    }


def _attempt_json(attempt: Attempt) -> dict[str, object]:
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
    }


def _print_runs(runs: Sequence[tuple[Run, Summary]], as_json: bool) -> None:
    if as_json:
        emit([{**_run_json(run), **best._asdict()} for run, best in runs])
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "profile", "state", "stages", "cached", "took", "BLEU", "updates", "tags"):
        table.add_column(
            name, justify="right" if name in ("stages", "cached", "took", "BLEU", "updates") else "left"
        )
    for run, best in runs:
        table.add_row(
            run.id,
            str(run.request.get("profile", "")),
            run.state,
            str(len(run.uses)),
            str(sum(use.hit for use in run.uses)),
            duration(run.ended - run.started) if run.ended else "",
            "" if best.bleu is None else f"{best.bleu:.2f}",
            "" if best.updates is None else f"{best.updates:,}",
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
