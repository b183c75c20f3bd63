"""BLEU by what a sentence is like: Figure 2 in its readings, and what unknown and rare words cost."""

from collections.abc import Callable

from rnnsearch.flows.report.chart import Chart, stages
from rnnsearch.flows.report.data import Bin, ReportData, System
from rnnsearch.pipeline.figures import Line, lines


def bleu_by_length(report: ReportData) -> Chart | None:
    """Figure 2, by bins of source length."""
    return _bleu(
        report,
        lambda system: system.by_length,
        name="bleu-by-length",
        title="BLEU by sentence length",
        caption="BLEU of the test sentences in each range of source words. {bands}"
        "The paper's claim is that the fixed-vector model falls with length and the search does not.",
        label=lambda cell: cell.label,
    )


def bleu_cumulative(report: ReportData) -> Chart | None:
    """Figure 2, read cumulatively: all sentences up to a length."""
    return _bleu(
        report,
        lambda system: system.at_most_length,
        name="bleu-cumulative",
        title="BLEU up to a length",
        caption="BLEU of all test sentences with at most so many source words: the other reading of the paper's "
        "Figure 2, whose bins are not defined. {bands}",
        label=lambda cell: f"≤ {cell.high}" if cell.high is not None else "all",
    )


def bleu_by_unknown(report: ReportData) -> Chart | None:
    """What unknown words cost."""
    return _bleu(
        report,
        lambda system: system.by_unknown,
        name="bleu-by-unknown",
        title="BLEU by unknown words",
        caption="BLEU of the test sentences with so many source words outside the shortlist. {bands}",
        label=lambda cell: cell.label,
        x_label="unknown source words",
    )


def bleu_by_rarest(report: ReportData) -> Chart | None:
    """What rare words cost."""
    return _bleu(
        report,
        lambda system: system.by_rarest,
        name="bleu-by-rarest",
        title="BLEU by the rarest word",
        caption="BLEU of the test sentences without unknown source words, by the rank of their rarest one in the "
        "shortlist. {bands}",
        label=lambda cell: cell.label,
        x_label="rank of the rarest source word",
    )


def _bleu(
    report: ReportData,
    bins: Callable[[System], tuple[Bin, ...]],
    *,
    name: str,
    title: str,
    caption: str,
    label: Callable[[Bin], str],
    x_label: str = "source words",
) -> Chart | None:
    shown = [(k, system) for k, system in enumerate(report.systems) if bins(system)]
    if not shown:
        return None
    ranges = list(dict.fromkeys((cell.low, cell.high) for _, system in shown for cell in bins(system)))
    ranges.sort(key=lambda edge: (edge[0], edge[1] is None, edge[1] or 0))
    curves, rows = [], []
    labels: dict[tuple[int, int | None], str] = {}
    sizes: dict[tuple[int, int | None], int] = {}
    for series, system in shown:
        cells = {(cell.low, cell.high): cell for cell in bins(system)}
        labels |= {edge: label(cell) for edge, cell in cells.items()}
        sizes |= {edge: cell.sentences for edge, cell in cells.items()}
        found = [cells.get(edge) for edge in ranges]
        full = [cell if cell is not None and cell.sentences else None for cell in found]
        curves.append(
            Line(
                label=system.name,
                x=range(len(ranges)),
                y=[cell.bleu.value if cell else None for cell in full],
                low=[cell.bleu.low if cell else None for cell in full],
                high=[cell.bleu.high if cell else None for cell in full],
                series=series,
                notes=[
                    f"{system.name}, {label(cell)} words: {_bleu_text(cell)}" if cell else "" for cell in full
                ],
            )
        )
        rows.append((system.name, *(_bleu_text(cell) if cell else "–" for cell in full)))
    bands = any(value is not None for curve in curves for value in curve.low)
    high = any(value for curve in curves for value in (*curve.y, *curve.high))
    names = [labels[edge] for edge in ranges]
    rows.append(("sentences", *(f"{sizes[edge]:,}" for edge in ranges)))
    return Chart(
        name=name,
        title=title,
        caption=caption.format(bands="Bands are bootstrap intervals of 95 %. " if bands else ""),
        figure=lambda: lines(curves, x_label=x_label, y_label="BLEU", ticks=names, top=None if high else 1),
        header=("system", *names),
        rows=tuple(rows),
        evidence=stages("evaluate", [system for _, system in shown]),
    )


def _bleu_text(cell: Bin) -> str:
    value = f"{cell.bleu.value:.2f}"
    return value if cell.bleu.low is None else f"{value} [{cell.bleu.low:.1f}, {cell.bleu.high or 0:.1f}]"
