"""How sharply the systems look, and what the width of the beam gains and costs."""

from collections.abc import Sequence

from rnnsearch.flows.report.chart import Chart, stages
from rnnsearch.flows.report.data import BeamPoint, ReportData, System
from rnnsearch.flows.report.formats import count
from rnnsearch.pipeline.figures import Line, lines

_POSITIONS = (1, 5, 10, 20, 30, 40, 50, 60)


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
        evidence=stages("evaluate", [system for system in report.systems if system.attention]),
    )


def attention_by_length(report: ReportData) -> Chart | None:
    """Whether a system looks less sharply in long sentences."""
    shown = [
        (k, system, system.attention.entropy_by_length)
        for k, system in enumerate(report.systems)
        if system.attention and system.attention.entropy_by_length
    ]
    if not shown:
        return None
    labels = {(cell.low, cell.high): cell.label for _, _, cells in shown for cell in cells}
    ranges = sorted(labels)  # lows differ
    curves, rows = [], []
    for series, system, cells in shown:
        known = {(cell.low, cell.high): cell for cell in cells}
        found = [known.get(edge) for edge in ranges]
        notes = [
            f"{system.name}, {cell.label} words: {cell.entropy:.2f} nats, {cell.sentences:,} sentences"
            if cell
            else ""
            for cell in found
        ]
        values = [cell.entropy if cell else None for cell in found]
        curves.append(Line(system.name, range(len(ranges)), values, series=series, notes=notes))
        rows.append((system.name, *(f"{cell.entropy:.2f}" if cell else "–" for cell in found)))
    names = [labels[edge] for edge in ranges]
    return Chart(
        name="attention-by-length",
        title="Spread of the attention by sentence length",
        caption="Mean entropy in nats of the attention in the test sentences of each range of source words.",
        figure=lambda: lines(curves, x_label="source words", y_label="nats", ticks=names),
        header=("system", *names),
        rows=tuple(rows),
        evidence=stages("evaluate", [system for _, system, _ in shown]),
    )


def beam_bleu(report: ReportData) -> Chart | None:
    """What a wider beam gains."""
    shown = _swept(report)
    if not shown:
        return None
    beams = _beams(shown)
    curves, rows = [], []
    for series, system in shown:
        found = [_at_beam(system, beam) for beam in beams]
        curves.append(
            Line(
                label=system.name,
                x=range(len(beams)),
                y=[point.bleu.value if point else None for point in found],
                low=[point.bleu.low if point else None for point in found],
                high=[point.bleu.high if point else None for point in found],
                series=series,
                notes=[
                    f"{system.name}, beam {point.beam}: {point.bleu.value:.2f} BLEU" if point else ""
                    for point in found
                ],
            )
        )
        rows.append((system.name, *(f"{point.bleu.value:.2f}" if point else "–" for point in found)))
        rows.append(
            (f"{system.name}, unfinished", *(count(point.unfinished) if point else "–" for point in found))
        )
    sentences = max(point.sentences for _, system in shown for point in system.beams)
    return Chart(
        name="beam-bleu",
        title="BLEU by beam width",
        caption=f"Tokenised BLEU of the first {sentences:,} dev sentences with each beam width, all other settings of "
        "the search as in the evaluation. Bands are bootstrap intervals of 95 %.",
        figure=lambda: lines(curves, x_label="beam", y_label="BLEU", ticks=[str(beam) for beam in beams]),
        header=("system", *(f"beam {beam}" for beam in beams)),
        rows=tuple(rows),
        evidence=stages("sweep", [system for _, system in shown]),
    )


def beam_seconds(report: ReportData) -> Chart | None:
    """What a wider beam costs."""
    shown = [
        (k, system)
        for k, system in _swept(report)
        if any(point.seconds is not None for point in system.beams)
    ]
    if not shown:
        return None
    beams = _beams(shown)
    curves, rows = [], []
    for series, system in shown:
        found = [point.seconds if (point := _at_beam(system, beam)) else None for beam in beams]
        milliseconds = [None if value is None else 1000 * value for value in found]
        notes = [
            "" if value is None else f"{system.name}, beam {beam}: {value:.1f} ms a sentence"
            for beam, value in zip(beams, milliseconds, strict=True)
        ]
        curves.append(Line(system.name, range(len(beams)), milliseconds, series=series, notes=notes))
        rows.append((system.name, *("–" if value is None else f"{value:.1f}" for value in milliseconds)))
    return Chart(
        name="beam-seconds",
        title="Time by beam width",
        caption="Milliseconds a sentence, many translated side by side by one worker, as seen when the sweep ran.",
        figure=lambda: lines(
            curves, x_label="beam", y_label="ms a sentence", ticks=[str(beam) for beam in beams]
        ),
        header=("system", *(f"beam {beam}" for beam in beams)),
        rows=tuple(rows),
        evidence=stages("sweep", [system for _, system in shown]),
    )


def _swept(report: ReportData) -> list[tuple[int, System]]:
    return [(k, system) for k, system in enumerate(report.systems) if system.beams]


def _beams(shown: Sequence[tuple[int, System]]) -> list[int]:
    return sorted({point.beam for _, system in shown for point in system.beams})


def _at_beam(system: System, beam: int) -> BeamPoint | None:
    return next((point for point in system.beams if point.beam == beam), None)
