"""The figures of a report: which values each shows, what its caption says, and the numbers as a table."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from rnnsearch.flows.report.data import Bin, CurvePoint, ReportData, System
from rnnsearch.flows.report.tables import flow_table
from rnnsearch.flows.report.text import plain_text
from rnnsearch.pipeline.figures import Bar, Line, bars, heatmap, lines

EXPORTED_ALIGNMENTS = 6
_POSITIONS = (1, 5, 10, 20, 30, 40, 50, 60)
MOST_CURVE_POINTS = 400  # a longer curve is thinned: more points than pixels show nothing


class Chart(NamedTuple):
    """A figure with its words. `rows` are its numbers for those who cannot see it; the first cell is a name."""

    name: str
    title: str
    caption: str
    figure: Callable[[], Figure]  # drawn when asked for: Markdown needs only the words
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    evidence: tuple[str, ...] = ()  # the stages that the numbers come from


def draw(report: ReportData) -> dict[str, Chart]:
    """Every figure for which there is something to show, by name."""
    makers = (
        bleu_by_length,
        bleu_cumulative,
        bleu_by_unknown,
        bleu_by_rarest,
        attention_entropy,
        losses,
        gradient_norms,
        clipped_shares,
        waterfall,
        source_lengths,
        target_lengths,
        unknown_rates,
    )
    made = (make(report) for make in makers)
    return {chart.name: chart for chart in made if chart is not None}


def alignments(report: ReportData) -> dict[str, Figure]:
    """The first alignments as heatmaps for a paper, by file name."""
    return {
        f"attention-{k:02d}": heatmap(
            [plain_text(word) for word in aligned.source],
            [plain_text(word) for word in aligned.target],
            aligned.weights,
        )
        for k, aligned in enumerate(report.aligned[:EXPORTED_ALIGNMENTS], 1)
    }


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


def attention_entropy(report: ReportData) -> Chart | None:
    """How sharply a system looks, along the sentence."""
    curves, rows = [], []
    for series, system in enumerate(report.systems):
        found = system.attention.entropy_by_position if system.attention else ()
        if found:
            curves.append(Line(system.name, range(1, len(found) + 1), found, series=series))
            marks = [found[k - 1] for k in _POSITIONS if k <= len(found)]
            rows.append((system.name, *(f"{value:.2f}" for value in marks)))
    if not curves:
        return None
    reached = max(len(row) for row in rows)
    return Chart(
        name="attention-entropy",
        title="Spread of the attention",
        caption="Mean entropy in nats of the attention at each target position: 0 looks at one word only.",
        figure=lambda: lines(curves, x_label="target position", y_label="nats"),
        header=("system", *(f"at {k}" for k in _POSITIONS))[:reached],
        rows=tuple((*row, *("–",) * (reached - len(row))) for row in rows),
        evidence=_stages("evaluate", [system for system in report.systems if system.attention]),
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
        evidence=_stages("evaluate", [system for _, system in shown]),
    )


def _bleu_text(cell: Bin) -> str:
    value = f"{cell.bleu.value:.2f}"
    return value if cell.bleu.low is None else f"{value} [{cell.bleu.low:.1f}, {cell.bleu.high or 0:.1f}]"


def losses(report: ReportData) -> Chart | None:
    """Training and dev loss by updates."""
    curves = []
    for series, system in enumerate(report.systems):
        train = _thinned([point for point in system.curve if point.train_loss is not None])
        dev = [point for point in system.curve if point.dev_loss is not None]
        if train:
            train_line = Line(
                system.name, [p.update for p in train], [p.train_loss for p in train], series=series
            )
            curves.append(train_line._replace(faint=bool(dev)))
        if dev:
            notes = [f"{system.name}, {p.update:,} updates: dev {p.dev_loss:.3f}" for p in dev]
            curves.append(
                Line(
                    system.name,
                    [p.update for p in dev],
                    [p.dev_loss for p in dev],
                    series=series,
                    notes=notes,
                )
            )
    if not curves:
        return None
    return _curves(
        report,
        name="loss",
        title="Loss",
        caption="Loss in nats per target token: thin lines are training batches, thick ones with marks the dev set.",
        figure=lambda: lines(curves, x_label="updates", y_label="nats per token", from_zero=False),
        columns=(("train", lambda point: point.train_loss), ("dev", lambda point: point.dev_loss)),
    )


def gradient_norms(report: ReportData) -> Chart | None:
    """The norm of the gradient before clipping."""
    curves = _single(report, lambda point: point.gradient_norm)
    if not curves:
        return None
    return _curves(
        report,
        name="gradient-norm",
        title="Gradient norm",
        caption="Global norm of the gradient before clipping, on a logarithmic scale.",
        figure=lambda: lines(curves, x_label="updates", y_label="norm", log=True),
        columns=(("norm", lambda point: point.gradient_norm),),
    )


def clipped_shares(report: ReportData) -> Chart | None:
    """How often clipping acted."""
    curves = _single(report, lambda point: None if point.clipped_share is None else 100 * point.clipped_share)
    if not curves:
        return None
    return _curves(
        report,
        name="clipped-share",
        title="Clipped updates",
        caption="Share of updates whose gradient was longer than the limit and was shortened to it. The paper's "
        "released code sums the loss, so that nearly every update is clipped.",
        figure=lambda: lines(curves, x_label="updates", y_label="% of updates", top=104),
        columns=(("share", lambda point: point.clipped_share),),
    )


def _single(report: ReportData, value: Callable[[CurvePoint], float | None]) -> list[Line]:
    curves = []
    for series, system in enumerate(report.systems):
        points = _thinned([point for point in system.curve if value(point) is not None])
        if points:
            curves.append(
                Line(system.name, [p.update for p in points], [value(p) for p in points], series=series)
            )
    return curves


def _thinned(points: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
    if len(points) <= MOST_CURVE_POINTS:
        return points
    step = (len(points) - 1) / (MOST_CURVE_POINTS - 1)
    return [points[round(k * step)] for k in range(MOST_CURVE_POINTS)]


def _curves(
    report: ReportData,
    *,
    name: str,
    title: str,
    caption: str,
    figure: Callable[[], Figure],
    columns: tuple[tuple[str, Callable[[CurvePoint], float | None]], ...],
) -> Chart:
    rows = []
    for system in report.systems:
        for label, value in columns:
            known = [(point.update, found) for point in system.curve if (found := value(point)) is not None]
            if known:
                lowest = min(known, key=lambda pair: pair[1])
                cells = (f"{known[0][1]:.3f}", f"{known[-1][1]:.3f}", f"{lowest[1]:.3f}", f"{lowest[0]:,}")
                rows.append((f"{system.name}, {label}" if len(columns) > 1 else system.name, *cells))
    return Chart(
        name, title, caption, figure, ("system", "first", "last", "lowest", "at update"), tuple(rows)
    )


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
        evidence=_stages("evaluate", shown),
    )


def _stages(kind: str, systems: Sequence[System]) -> tuple[str, ...]:
    return tuple(f"{kind}/{system.name}" for system in systems)


def _count(value: int | None) -> str:
    return "not run" if value is None else f"{value:,}"
