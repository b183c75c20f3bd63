"""Figures: equal values make equal bytes, and a page's figures can change colour."""

import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from rnnsearch.pipeline.figures import Bar, Format, Line, bars, heatmap, lines, page_svg, picture

FORMATS: tuple[Format, ...] = ("svg", "png", "pdf")
PRINT_DIGESTS = """
import hashlib
from rnnsearch.pipeline.figures import Line, heatmap, lines, picture
figures = [lines([Line("é", [0, 1], [2, 3])], x_label="x", y_label="y"), heatmap(["le", "</s>"], ["the"], [[0.9, 0.1]])]
print([hashlib.sha256(picture(figure, form)).hexdigest() for figure in figures for form in ("svg", "png", "pdf")])
"""


def two_curves(**changes: object) -> Figure:
    curves = [
        Line(
            "rnnsearch",
            range(3),
            [9.0, None, 8.0],
            [8.0, None, 7.0],
            [10.0, None, 9.0],
            0,
            False,
            ["a", "", "b<c"],
        ),
        Line("rnnencdec", range(3), [8.9, 5.0, 7.9], series=1),
    ]
    return lines(curves, x_label="source words", y_label="BLEU", ticks=["1–10", "11–20", "> 20"], **changes)


@pytest.mark.parametrize("form", FORMATS)
def test_equal_values_make_equal_bytes(form: Format) -> None:
    assert picture(two_curves(), form) == picture(two_curves(), form)


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_names_no_day_and_no_version(form: Format) -> None:
    data = picture(two_curves(), form)
    assert b"Matplotlib" not in data
    assert not re.search(rb"CreationDate|dc:date|Software", data)


def test_a_picture_is_drawn_with_letters_of_its_own() -> None:
    assert b"<text" not in picture(two_curves(), "svg")


def test_a_page_figure_is_well_formed_and_its_text_is_text() -> None:
    root = ET.fromstring(page_svg(two_curves(), "f"))
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"rnnsearch", "rnnencdec", "BLEU", "source words", "11–20"} <= texts
    titles = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["a", "b<c"]


def test_every_colour_of_a_page_figure_is_a_variable() -> None:
    svg = page_svg(two_curves(), "f") + page_svg(
        bars([Bar("raw", [3, 4], "7")], ["a", "b"], x_label="pairs"), "g"
    )
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == set()
    assert {"var(--series-1)", "var(--series-2)", "var(--muted)", "var(--rule)"} <= set(
        re.findall(r"var\([^)]*\)", svg)
    )


def test_figures_of_one_page_share_no_identifier_and_no_style() -> None:
    first, second = (
        set(re.findall(r'\bid="([^"]+)"', page_svg(two_curves(), prefix))) for prefix in ("a", "b")
    )
    assert first
    assert not first & second
    svg = page_svg(two_curves(), "a")
    assert "<style" not in svg
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= first


def test_names_of_curves_do_not_touch() -> None:
    figure = lines(
        [Line(f"system {k}", [0, 1], [5, 5 + k / 100], series=k) for k in range(6)], x_label="x", y_label="y"
    )
    heights = sorted(note.xy[1] for note in figure.axes[0].texts if note.get_text().startswith("system"))
    gap = 15 / (figure.get_figheight() * 72 * figure.axes[0].get_position().height)
    assert all(after - before >= gap * 0.99 for before, after in itertools.pairwise(heights))


def test_more_curves_than_colours_are_told_apart_by_dash_and_marker() -> None:
    notes = ["one", "two"]
    figure = lines(
        [Line(f"system {k}", [0, 1], [k, k], series=k, notes=notes) for k in range(12)],
        x_label="x",
        y_label="y",
    )
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    looks = {(str(line.get_color()), str(line._dash_pattern)) for line in curves}  # type: ignore[attr-defined]
    dots = {(str(d.get_color()), d.get_marker()) for d in figure.axes[0].lines if len(d.get_xdata()) == 1}
    assert len(looks) == len(dots) == 12


def test_a_heatmap_has_target_words_down_and_source_words_across() -> None:
    figure = heatmap(["the", "cat", "</s>"], ["le", "chat"], [[0.8, 0.1, 0.1], [0.1, 0.7, 0.2]])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["the", "cat", "</s>"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["le", "chat"]
    assert axes.images[0].get_array().tolist() == [[0.8, 0.1, 0.1], [0.1, 0.7, 0.2]]
    rings = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
    assert rings == [(0, 0), (1, 1)]


def test_a_transposed_heatmap_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 target rows and 3 source columns"):
        heatmap(["a", "b", "c"], ["x", "y"], [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])


def test_dollar_signs_of_a_corpus_are_no_formula() -> None:
    assert picture(heatmap(["$x_", "$\\frac"], ["a"], [[0.5, 0.5]]), "svg")


@pytest.mark.parametrize("values", [[], [None, None]])
def test_a_figure_without_values_is_drawn(values: list[float | None]) -> None:
    curves = [Line("empty", range(len(values)), values)]
    assert picture(lines(curves, x_label="x", y_label="y"), "svg")
    assert page_svg(bars([], ["a"], x_label="x"), "f")
