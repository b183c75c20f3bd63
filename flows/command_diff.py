"""`rnnsearch diff`: two runs side by side, for people and for programs."""

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rnnsearch.flows.diff import RunDifference, StageDifference, compare_runs
from rnnsearch.flows.report.view import RunView
from rnnsearch.flows.terminal import emit, output_console
from rnnsearch.storage.store import Store

_LINES = 200  # of changed code that are printed
_LINES_OF_ONE = 60  # of one definition


def show_diff(first: str, second: str, location: str, sentences: int, as_json: bool) -> None:
    """Print what differs between two runs of a store."""
    store = Store.open(location, create=False)
    old, new = (RunView(store, store.runs.find(run).id) for run in (first, second))
    found = compare_runs(old, new, sentences)
    if as_json:
        emit(_plain(found))
        return
    console = output_console()
    _print_settings(console, found)
    _print_stages(console, found)
    _print_code(console, found)
    _print_numbers(console, found)
    _print_sentences(console, found)
    for note in found.notes:
        console.print(Text(note))


def _plain(found: RunDifference) -> dict[str, object]:
    """As JSON has it: rows with names."""
    return {
        name: [row._asdict() if hasattr(row, "_asdict") else row for row in value]
        if isinstance(value, tuple)
        else value
        for name, value in ((each, getattr(found, each)) for each in asdict(found))
    }


def _print_settings(console: Console, found: RunDifference) -> None:
    console.print(Text(f"{found.first} → {found.second}", "bold"))
    if not found.settings:
        console.print(Text("the settings are equal"))
    for each in found.settings:
        console.print(Text(f"{each.name} {each.first} → {each.second}"))


def _print_stages(console: Console, found: RunDifference) -> None:
    other = [each for each in found.stages if each.how != "equal"]
    console.print(Text(f"\n{len(found.stages) - len(other)} stages are equal, {len(other)} differ"))
    table = Table("stage", "", "why", box=None, pad_edge=False, header_style="bold")
    for each in other:
        table.add_row(each.stage, each.how, Text("\n".join(_why(each)), overflow="fold"))
    if other:
        console.print(table)


def _why(each: StageDifference) -> Iterator[str]:
    yield from each.reasons
    if each.inputs:
        yield f"follows from {', '.join(each.inputs)}"


def _print_code(console: Console, found: RunDifference) -> None:
    """The changed lines, as many as fit; the others are counted."""
    left = _LINES
    for shown, each in enumerate(found.code):
        if left <= 0:
            rest = sum(len(other.lines) for other in found.code[shown:])
            console.print(
                Text(f"\nand {len(found.code) - shown} more definitions, {rest} lines: --json has all")
            )
            return
        stages = each.stages[0] if len(each.stages) == 1 else f"{len(each.stages)} stages"
        console.print(Text(f"\n{each.name}  ({stages})", "bold"))
        lines = each.lines[: min(left, _LINES_OF_ONE)]
        for line in lines:
            console.print(Text(line, {"+": "green", "-": "red"}.get(line[:1], ""), overflow="fold"))
        if len(each.lines) > len(lines):
            console.print(Text(f"... {len(each.lines) - len(lines)} more lines"))
        left -= len(lines)


def _print_numbers(console: Console, found: RunDifference) -> None:
    if found.trainings:
        table = Table("training", "", "first", "second", box=None, pad_edge=False, header_style="bold")
        for end in found.trainings:
            table.add_row(
                end.system, end.what, *("" if v is None else f"{v:,.4g}" for v in (end.first, end.second))
            )
        console.print()
        console.print(table)
    if found.scores:
        columns = ("BLEU", "subset", "sentences", "first", "second", "difference", "p")
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for score in found.scores:
            change = f"{score.second - score.first:+.2f} ({score.low:+.2f} to {score.high:+.2f})"
            numbers = (f"{score.first:.2f}", f"{score.second:.2f}", change, f"{score.p_value:.3f}")
            table.add_row(score.system, score.subset, f"{score.sentences:,}", *numbers)
        console.print()
        console.print(table)


def _print_sentences(console: Console, found: RunDifference) -> None:
    for each in found.sentences:
        console.print(
            Text(f"\n{each.system}, {each.place}: {each.first_score} → {each.second_score}", "bold")
        )
        lines = {
            "source": each.source,
            "reference": each.reference,
            "first": each.first,
            "second": each.second,
        }
        for name, line in lines.items():
            console.print(Text(f"{name:>9}  {line}"))
