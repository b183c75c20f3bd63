"""Learning curves."""

from collections.abc import Callable, Sequence
from typing import Literal

from matplotlib.figure import Figure

from rnnsearch.flows.report.chart import Chart, stages
from rnnsearch.flows.report.data import CurvePoint, ReportData
from rnnsearch.pipeline.figures import Line, lines

MOST_CURVE_POINTS = 400  # a longer curve is thinned: more points than pixels show nothing


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


def dev_bleus(report: ReportData) -> Chart | None:
    """Quality while it is being learned."""
    curves = _single(report, lambda point: point.dev_bleu)
    if not curves:
        return None
    high = any(value for curve in curves for value in curve.y)
    return _curves(
        report,
        name="dev-bleu",
        title="BLEU on dev",
        caption="Tokenised BLEU of the first dev sentences, searched greedily while the training went on.",
        figure=lambda: lines(curves, x_label="updates", y_label="BLEU", top=None if high else 1),
        columns=(("BLEU", lambda point: point.dev_bleu),),
        extreme="highest",
    )


def training_entropies(report: ReportData) -> Chart | None:
    """How the attention sharpens."""
    curves = _single(report, lambda point: point.entropy)
    if not curves:
        return None
    return _curves(
        report,
        name="training-entropy",
        title="Spread of the attention in training",
        caption="Mean entropy in nats of the attention at the target words of the training batches.",
        figure=lambda: lines(curves, x_label="updates", y_label="nats"),
        columns=(("entropy", lambda point: point.entropy),),
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
    extreme: Literal["lowest", "highest"] = "lowest",
) -> Chart:
    rows = []
    for system in report.systems:
        for label, value in columns:
            known = [(point.update, found) for point in system.curve if (found := value(point)) is not None]
            if known:
                choose = max if extreme == "highest" else min
                update, value_there = choose(known, key=lambda pair: pair[1])
                cells = (f"{known[0][1]:.3f}", f"{known[-1][1]:.3f}", f"{value_there:.3f}", f"{update:,}")
                rows.append((f"{system.name}, {label}" if len(columns) > 1 else system.name, *cells))
    return Chart(
        name,
        title,
        caption,
        figure,
        ("system", "first", "last", extreme, "at update"),
        tuple(rows),
        stages("train", [system for system in report.systems if system.curve]),
    )
