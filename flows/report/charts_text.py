"""From raw to training pairs, and what the sentences are like."""

from rnnsearch.flows.report.chart import Chart, stages
from rnnsearch.flows.report.data import ReportData
from rnnsearch.flows.report.tables import flow_table
from rnnsearch.pipeline.figures import Bar, Line, bars, lines


def waterfall(report: ReportData) -> Chart | None:
    """From raw pairs to training pairs."""
    table = flow_table(report.flows)
    if not any(table.total):
        return None
    corpora = [corpus for corpus, _ in table.rows]
    bars_, rows = [], []
    for column, step in enumerate(table.steps):
        cells = [left[column] for _, left in table.rows]
        pairs = [None if cell is None else cell.pairs for cell in cells]
        total, first = table.total[column], table.total[0]
        share = f" ({100 * total / first:.0f} %)" if total is not None and first else ""
        bars_.append(
            Bar(
                step, [count or 0 for count in pairs], f"{total:,}{share}" if total is not None else "not run"
            )
        )
        rows.append((step, *map(_count, pairs), _count(total)))
    return Chart(
        name="waterfall",
        title="From raw pairs to training pairs",
        caption="Pairs that were left after each step, by corpus, and the share of the raw pairs. Each length limit "
        "counts by itself.",
        figure=lambda: bars(bars_, corpora, x_label="pairs"),
        header=("step", *corpora, "all"),
        rows=tuple(rows),
        evidence=tuple(
            dict.fromkeys(step.evidence for flow in report.flows for step in flow.steps if step.evidence)
        ),
    )


def source_lengths(report: ReportData) -> Chart | None:
    """How long the source sentences are."""
    return _lengths(report, "source", "Source lengths")


def target_lengths(report: ReportData) -> Chart | None:
    """How long the target sentences are, and what the systems write."""
    return _lengths(report, "target", "Target lengths")


def _lengths(report: ReportData, side: str, title: str) -> Chart | None:
    shown = [lengths for lengths in report.lengths if lengths.side == side and any(lengths.counts)]
    if not shown:
        return None
    width, longest = 5, max(len(lengths.counts) for lengths in shown)
    edges = list(range(0, longest, width))
    places = {system.name: k for k, system in enumerate(report.systems)}  # a system keeps its colour
    curves, rows = [], []
    for lengths in shown:
        total = sum(lengths.counts)
        shares = [100 * sum(lengths.counts[edge : edge + width]) / total for edge in edges]
        series = places.setdefault(lengths.label, len(places))
        curves.append(Line(lengths.label, [edge + width / 2 for edge in edges], shares, series=series))
        rows.append(
            (lengths.label, f"{total:,}", f"{lengths.mean:.1f}", *(f"{share:.1f}" for share in shares))
        )
    names = [f"{edge}–{edge + width - 1}" for edge in edges]
    names[-1] = f"≥ {edges[-1]}"
    return Chart(
        name=f"{side}-lengths",
        title=title,
        caption="Share of sentences by length in tokens, in steps of five; all longer ones are in the last.",
        figure=lambda: lines(curves, x_label="tokens", y_label="% of sentences"),
        header=("text", "sentences", "mean", *names),
        rows=tuple(rows),
        evidence=tuple(dict.fromkeys(lengths.evidence for lengths in shown if lengths.evidence)),
    )


def unknown_rates(report: ReportData) -> Chart | None:
    """Unknown words in what the systems write."""
    shown = [system for system in report.systems if system.behaviour.unknown_output is not None]
    if not shown:
        return None
    rates = [100 * (system.behaviour.unknown_output or 0.0) for system in shown]
    reference = next(
        (s.behaviour.unknown_reference for s in shown if s.behaviour.unknown_reference is not None), None
    )
    rows = [Bar(system.name, [rate], f"{rate:.2f} %") for system, rate in zip(shown, rates, strict=True)]
    if reference is not None:
        rows.append(Bar("reference", [100 * reference], f"{100 * reference:.2f} %"))
    return Chart(
        name="unknown",
        title="Unknown words",
        caption="Share of [UNK] among the tokens of each system's output on all test sentences, beside the share "
        "of reference tokens outside the shortlist.",
        figure=lambda: bars(rows, ["[UNK]"], x_label="% of tokens"),
        header=("text", "% unknown"),
        rows=tuple((row.label, row.note) for row in rows),
        evidence=stages("evaluate", shown),
    )


def _count(value: int | None) -> str:
    return "not run" if value is None else f"{value:,}"
