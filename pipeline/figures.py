"""Figures: plain values in, a picture out, with equal bytes for equal values.

One drawing serves paper and page. `picture` writes SVG (letters as outlines), PNG or PDF with the colours
below; `page_svg` writes SVG with text as text, where each colour is a CSS variable, so that a page can turn dark.
Sizes are in inches, lengths in source words, BLEU from 0 to 100.
"""

import html
import io
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

Format = Literal["svg", "png", "pdf"]

# Each colour stands for one role and is used for nothing else, since `page_svg` finds roles by colour.
INK, MUTED, GRID, SURFACE = "#1b1f26", "#5a6472", "#dde1e7", "#fefefe"
# Okabe and Ito's hues, darkened to 4.5:1 on white; told apart by dash and marker as well.
SERIES = ("#0a5fa6", "#b84a08", "#067554", "#8a3d8c", "#7a5b06", "#46556b")
_DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.4)), (0, (6, 1.5, 1.4, 1.5)), (0, (8, 2)), (0, (3, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_ROLES = {INK: "ink", MUTED: "muted", GRID: "rule", SURFACE: "surface"} | {
    colour: f"series-{k}" for k, colour in enumerate(SERIES, 1)
}
_STYLE = {
    "font.family": ["DejaVu Sans"],  # shipped with Matplotlib: the same letters on every machine
    "font.size": 11,
    "svg.hashsalt": "rnnsearch",
    "pdf.fonttype": 42,
    "path.simplify": False,
    "text.parse_math": False,  # corpus text has dollar signs
}
_WIDTH, _HEIGHT = 5.4, 3.3
_DARK = LinearSegmentedColormap.from_list("weights", [SURFACE, "#0a3d6b"])


class Line(NamedTuple):
    """A curve: `y` against `x`; values of None are left out. `low` and `high` bound a band."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    series: int = 0  # colour, dash and marker
    faint: bool = False  # a thin line without markers, behind the others
    notes: Sequence[str] = ()  # one a point: then points are marked, and a pointer on a page is told the note


class Bar(NamedTuple):
    """One row of a bar chart, in parts that follow one another."""

    label: str
    parts: Sequence[float]
    note: str = ""


def lines(
    curves: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    ticks: Sequence[str] | None = None,
    log: bool = False,
    from_zero: bool = True,
    top: float | None = None,
) -> Figure:
    """Curves with their names at the right end. `ticks` names the positions 0, 1, … of the x axis."""
    named = [curve for curve in curves if not curve.faint]
    figure, axes = _blank(_WIDTH, _HEIGHT, right=_text_width([curve.label for curve in named]))
    for curve in curves:
        _curve(axes, curve)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5), numticks=12))
        axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: _short(value)))
        axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    elif from_zero:
        axes.set_ylim(bottom=0, top=top)
    if ticks is not None:
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.3, len(ticks) - 0.7)
    else:
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: _short(value)))
    axes.set_xlabel(x_label, loc="right", color=MUTED)
    _y_label(axes, y_label)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    _end_labels(figure, axes, named)
    return figure


def bars(rows: Sequence[Bar], legend: Sequence[str], *, x_label: str) -> Figure:
    """Horizontal bars, the first on top, each in coloured parts; `legend` names the parts."""
    height = 0.7 + 0.36 * len(rows) + 0.3 * (len(legend) > 1)
    figure, axes = _blank(
        _WIDTH, height, left=_text_width([row.label for row in rows]), top=0.08 + 0.3 * (len(legend) > 1)
    )
    left = np.zeros(len(rows))
    for k, name in enumerate(legend):
        widths = np.array([row.parts[k] for row in rows], dtype=float)
        axes.barh(
            range(len(rows)),
            widths,
            left=left,
            height=0.62,
            color=SERIES[k % len(SERIES)] if len(legend) > 1 else SERIES[-1],
            label=name,
            edgecolor=SURFACE,
        )
        left += widths
    limit = float(left.max(initial=0)) or 1.0
    for position, row in enumerate(rows):
        axes.text(left[position] + 0.012 * limit, position, row.note, va="center", color=INK, fontsize=10)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", colors=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, limit * 1.28)
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: _short(value)))
    axes.set_xlabel(x_label, loc="right", color=MUTED)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    if len(legend) > 1:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
            frameon=False,
            borderpad=0.2,
            handlelength=1,
            labelcolor=INK,
            fontsize=10,
        )
    return figure


def heatmap(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]) -> Figure:
    """A soft alignment as in Figure 3, but for paper: white is 0, dark is 1. Target down, source across.

    A ring marks the strongest source word of each target word: the hard alignment.
    Raises ValueError where `weights` is not one row a target word with one weight a source word.
    """
    widths = {len(row) for row in weights}
    if len(weights) != len(target) or widths - {len(source)}:
        raise ValueError(
            f"the weights are {len(weights)} rows of {sorted(widths)} columns; expected {len(target)} target rows and "
            f"{len(source)} source columns; transpose them, or give the words that belong to them"
        )
    grid = np.array(weights, dtype=float).reshape(len(target), len(source))
    cell = 0.24
    width = max(2.2, cell * len(source) + 1.4)
    figure, axes = _blank(width, max(1.8, cell * len(target) + 1.4))
    axes.imshow(grid, cmap=_DARK, vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    for row, strongest in enumerate(grid.argmax(axis=1) if grid.size else ()):
        light = grid[row, strongest] > 0.5
        axes.plot(strongest, row, marker="o", markersize=4, fillstyle="none", color=SURFACE if light else INK)
    axes.set_xticks(range(len(source)), source, rotation=90, ha="left", va="center", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, colors=INK, labelsize=9)
    axes.set_xticks(np.arange(-0.5, len(source)), minor=True)
    axes.set_yticks(np.arange(-0.5, len(target)), minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    return figure


def picture(figure: Figure, form: Format) -> bytes:
    """The figure as a file. Equal figures give equal bytes: no date, no version, no random identifiers."""
    metadata = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }[form]
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # the stub knows only literal keys
        figure.savefig(
            buffer,
            format=form,
            dpi=200,
            metadata=metadata,
            facecolor=SURFACE,
            bbox_inches="tight",
            pad_inches=0.06,
        )
    return buffer.getvalue()


def page_svg(figure: Figure, prefix: str) -> str:
    """The figure as an `<svg>` element for a page: text as text, colours as `var(--role)`, size left to CSS.

    `prefix` makes its identifiers unique among the figures of one page. Markers with notes carry a `<title>`.
    """
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE | {"svg.fonttype": "none"}):  # type: ignore[arg-type]
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"(<svg[^>]*?)>", r'\1 aria-hidden="true" focusable="false">', text, count=1)
    text = re.sub(
        r'<g id="note:([^"]*)">',
        lambda hit: f"<g><title>{html.escape(_unpacked(hit.group(1)))}</title>",
        text,
    )
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", text)
    for colour, role in _ROLES.items():
        text = text.replace(colour, f"var(--{role})")
    return re.sub(r"\n\s*", "\n", text).strip()


def _blank(
    width: float, height: float, *, left: float = 0.42, right: float = 0.1, top: float = 0.32
) -> tuple[Figure, Axes]:
    """An empty figure with these margins, all in inches: fixed, so that all figures have one scale."""
    bottom = 0.5
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout=None)
        FigureCanvasAgg(figure)
        axes = figure.add_axes(
            (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
        )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=MUTED, length=0, pad=5)
    axes.set_axisbelow(True)
    return figure, axes


def _curve(axes: Axes, curve: Line) -> None:
    colour = SERIES[curve.series % len(SERIES)]
    x = np.asarray(curve.x, dtype=float)
    y = np.array([np.nan if value is None else value for value in curve.y], dtype=float)
    if len(curve.low) and len(curve.high):
        low = np.array([np.nan if value is None else value for value in curve.low], dtype=float)
        high = np.array([np.nan if value is None else value for value in curve.high], dtype=float)
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    if curve.faint:
        axes.plot(x, y, color=colour, linewidth=1, alpha=0.55)
        return
    seen = np.isfinite(y)  # a dev loss is measured now and then: the line goes from one to the next
    style = (curve.series + curve.series // len(SERIES)) % len(
        SERIES
    )  # where colours come again, dashes differ
    axes.plot(x[seen], y[seen], color=colour, linewidth=2, linestyle=_DASHES[style])
    if not curve.notes:
        return
    marker = _MARKERS[style]
    for index in np.flatnonzero(seen).tolist():
        (dot,) = axes.plot(
            x[index], y[index], marker=marker, markersize=5.5, color=colour, markeredgecolor=SURFACE
        )
        if index < len(curve.notes):
            dot.set_gid(f"note:{_packed(curve.notes[index])}")


def _text_width(labels: Sequence[str]) -> float:
    return 0.22 + 0.087 * max((len(label) for label in labels), default=0)  # inches; a letter of 11 points


def _end_labels(figure: Figure, axes: Axes, curves: Sequence[Line]) -> None:
    """Names at the right end of the curves, moved apart where they would touch."""
    axes.autoscale_view()  # else the limits are those of an empty figure
    ends = []
    for curve in curves:
        seen = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y is not None]
        if seen:
            point = axes.transData.transform(seen[-1])
            ends.append((float(axes.transAxes.inverted().transform(point)[1]), curve))
    ends.sort(key=lambda end: end[0])
    gap = 15 / (
        figure.get_figheight() * 72 * axes.get_position().height
    )  # a line of text, in shares of the axes
    places: list[float] = []
    for height, _ in ends:
        places.append(max(height, places[-1] + gap) if places else height)
    if places and places[-1] > 1.02:
        places = [max(place - (places[-1] - 1.02), 0.0) for place in places]
        for k in range(1, len(places)):
            places[k] = max(places[k], places[k - 1] + gap)
    for place, (_, curve) in zip(places, ends, strict=True):
        axes.annotate(
            curve.label,
            (1.0, place),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=SERIES[curve.series % len(SERIES)],
            annotation_clip=False,
        )


def _y_label(axes: Axes, text: str) -> None:
    axes.annotate(
        text,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-24, 12),
        textcoords="offset points",
        color=MUTED,
        ha="left",
    )


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _packed(note: str) -> str:
    return note.encode().hex()  # an identifier may hold no quote, space or bracket


def _unpacked(note: str) -> str:
    return bytes.fromhex(note).decode()
