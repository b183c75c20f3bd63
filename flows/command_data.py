"""`rnnsearch data`: the text of a run, stage by stage, what was dropped, and what a survey found in it."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.report.corpora import corpus_flows
from rnnsearch.flows.report.tables import flow_table, reason_rows
from rnnsearch.flows.report.view import RunView
from rnnsearch.flows.report.warnings import gather_findings
from rnnsearch.flows.terminal import emit, output_console
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.store import Store

_TEXT = ("corpus", "line", "source", "target")

Row = Mapping[str, Any]


def show_data(stage: str | None, run: str | None, rows: int, location: str, *, as_json: bool) -> None:
    """Print the counts of a run's text, or `rows` pairs of what a stage kept and of what it dropped, by reason."""
    store = Store.open(location, create=False)
    runs = store.runs.ids()
    if run is None and not runs:
        raise UsageError(
            f"there is no run in {store.location}; `rnnsearch run --until gate` prepares the text"
        )
    view = RunView(store, store.runs.find(run).id if run is not None else runs[-1])
    if stage is None:
        _show_counts(view, as_json)
        return
    if stage not in view.attempts:
        raise UsageError(
            f"run {view.run.id} has not done {stage!r}; stages with text: {', '.join(_with_text(view))}"
        )
    kept, dropped = _kept(view, stage, rows), _dropped(view, stage, rows)
    if not kept and not dropped:
        raise UsageError(f"{stage} makes no pairs; stages with text: {', '.join(_with_text(view))}")
    if as_json:
        emit({"stage": stage, "kept": kept, "dropped": dropped})
        return
    console = output_console()
    _print_pairs(console, f"{stage} kept", kept)
    for group in dropped:
        _print_pairs(console, f"{stage} dropped {group['pairs']:,} as {group['reason']}", group["examples"])


def _show_counts(view: RunView, as_json: bool) -> None:
    flows = corpus_flows(view)
    table, findings = flow_table(flows), gather_findings(view)
    if as_json:
        emit(
            {
                "run": view.run.id,
                "steps": [
                    {"corpus": corpus, "step": step.name, "pairs": step.pairs}
                    for corpus, steps in table.rows
                    for step in steps
                    if step is not None
                ],
                "dropped": [
                    {"step": row.step, "reason": row.reason, "corpus": flow.corpus, "pairs": pairs}
                    for row in reason_rows(flows)
                    for flow, pairs in zip(flows, row.pairs, strict=True)
                    if pairs
                ],
                "survey": [
                    {
                        "corpus": finding.corpus,
                        "check": finding.check,
                        "pairs": finding.pairs,
                        "of": finding.of,
                    }
                    for finding in findings
                ],
            }
        )
        return
    console = output_console()
    console.print(Text(f"run {view.run.id}: pairs left after each step"))
    left = _table("corpus", *table.steps)
    for corpus, steps in table.rows:
        left.add_row(Text(corpus), *("" if step is None else _count(step.pairs) for step in steps))
    console.print(left)
    lost = _table("step", "dropped as", *(flow.corpus for flow in flows))
    for row in reason_rows(flows):
        lost.add_row(row.step, Text(row.reason), *map(_count, row.pairs))
    console.print(lost)
    surveyed = _table("corpus", "survey: a check that applies", "pairs", "of")
    for finding in findings:
        surveyed.add_row(Text(finding.corpus), finding.check, _count(finding.pairs), _count(finding.of))
    console.print(surveyed)


def _with_text(view: RunView) -> list[str]:
    """The stages of a run that output pairs or drop some."""
    return [stage for stage in view.attempts if _text_output(view, stage) or _outputs(view, stage, "dropped")]


def _text_output(view: RunView, stage: str) -> str:
    """The name of the stage's output that holds its kept pairs, or ""."""
    for output in ("kept", "pairs", "train", "sample", "text"):
        files = _outputs(view, stage, output)
        if files and set(_TEXT) <= set(view.store.get_table(files[0].digest).schema.names):
            return output
    return ""


def _outputs(view: RunView, stage: str, output: str) -> list[FileEntry]:
    return [file for file in view.files(stage, output) if file.path.endswith(".parquet")]


def _kept(view: RunView, stage: str, rows: int) -> list[Row]:
    """Return evenly spaced examples of the pairs that a stage kept."""
    output = _text_output(view, stage)
    files = _outputs(view, stage, output) if output else []
    total = sum(file.rows or 0 for file in files)
    wanted = [total * place // rows for place in range(min(rows, total))]
    found: list[Row] = []
    first = 0
    for file in files:
        here = [row - first for row in wanted if first <= row < first + (file.rows or 0)]
        if here:
            found += view.store.get_table(file.digest).select(_TEXT).take(here).to_pylist()
        first += file.rows or 0
    return found


def _dropped(view: RunView, stage: str, rows: int) -> list[dict[str, Any]]:
    """The reasons of a stage with their counts and the text of the first pairs, as the stage was given it."""
    groups: dict[str, dict[str, Any]] = {}
    for table, given in zip_longest(view.tables(stage, "dropped"), _inputs(view, stage)):
        if table is None:
            break
        reasons = table["reason"].cast(pa.string())
        for reason in reasons.unique().to_pylist():
            group = groups.setdefault(reason, {"reason": reason, "pairs": 0, "examples": []})
            lines = table.filter(pc.equal(reasons, reason))
            group["pairs"] += lines.num_rows
            missing = rows - len(group["examples"])
            group["examples"] += _texts(view, given, lines.slice(0, missing))
    return sorted(groups.values(), key=lambda group: -group["pairs"])


def _inputs(view: RunView, stage: str) -> Iterator[FileEntry]:
    """The input shards of a stage, in order."""
    inputs = view.attempts[stage].recipe.inputs
    places = {name: name.partition("[")[2].rstrip("]") for name in inputs if name.split("[")[0] == "pairs"}
    for name in sorted(places, key=lambda name: int(places[name] or 0)):
        yield from view.store.read_artifact(inputs[name]).files


def _texts(view: RunView, given: FileEntry | None, lines: pa.Table) -> list[Row]:
    if given is None or not lines.num_rows:
        return []
    pairs = view.store.get_table(given.digest).select(_TEXT).to_pylist()
    known = {(row["corpus"], row["line"]): row for row in pairs}
    found: list[Row] = []
    for row in lines.to_pylist():
        if (place := (row["corpus"], row["line"])) in known:
            why = {name: row[name] for name in ("partner", "threshold") if row.get(name) is not None}
            found.append({**known[place], **why})
    return found


def _print_pairs(console: Console, title: str, rows: list[Row]) -> None:
    with_partners = any("partner" in row for row in rows)
    table = _table("", "source", "target", *(["partner"] if with_partners else []), title=title)
    for row in rows:
        cells = [f"{row['corpus']}:{row['line']}", row["source"], row["target"]]
        table.add_row(*map(Text, [*cells, row.get("partner", "")] if with_partners else cells))
    console.print(table)


def _table(*header: str, title: str | None = None) -> Table:
    columns = [Column(Text(name)) for name in header]
    return Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")


def _count(number: int | None) -> str:
    return "not run" if number is None else f"{number:,}"
