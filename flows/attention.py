"""Where a translation looked: as blocks in a terminal, as a picture, as a page. Target down, source across."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from rich.cells import cell_len, set_cell_size

from rnnsearch.flows.places import check_file
from rnnsearch.flows.report.text import html_text, plain_text
from rnnsearch.flows.translate import TranslateError
from rnnsearch.flows.translator import Translation, Translator
from rnnsearch.pipeline.figures import Format, heatmap, picture
from rnnsearch.pipeline.schemas import EOS
from rnnsearch.storage.errors import explained

Form = Format | Literal["html"]

_SHADES = " ░▒▓█"  # weights up to 0.05, 0.25, 0.5, 0.75, 1
_BOUNDS = (0.05, 0.25, 0.5, 0.75)
_HEADING = 14  # cells of a source word that are shown
_FORMS: tuple[Form, ...] = ("html", *get_args(Format))


def terminal(translation: Translation, width: int) -> str:
    """The attention of the best candidate as lines of at most `width` cells.

    A long source goes on in a second panel below the first. There is nothing for an empty line, and where the
    model has no attention.
    """
    rows, columns, weights = _grid(translation)
    if not weights or not translation.source:
        return ""
    margin = min(max(map(cell_len, rows)), max(4, width // 3))
    cell = 2 if margin + 1 + 2 * len(columns) <= width else 1
    fit = max(1, (width - margin - 1) // cell)
    grid = np.asarray(weights)
    panels = []
    for start in range(0, len(columns), fit):
        part = slice(start, start + fit)
        lines = [" " * (margin + 1) + line for line in _headings(columns[part], cell)]
        for word, row in zip(rows, grid[:, part], strict=True):
            blocks = "".join(_SHADES[int(np.searchsorted(_BOUNDS, weight))] * cell for weight in row)
            lines.append(_right(word, margin) + " " + blocks)
        panels.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(panels) + "\n"


def write(path: Path, translations: Iterable[Translation]) -> None:
    """Write the attention of the best candidates to `path`: SVG, PNG or PDF of one sentence, HTML of any number.

    Raises TranslateError for another ending, for several sentences in one picture, and where there is no attention;
    StoreError where the disk fails.
    """
    form = _form(path)
    some = [one for one in translations if one.candidates[0].alignment]
    if not some:
        raise TranslateError(f"{path} was not written: there is no sentence to show the attention of")
    check_count(path, some)
    try:
        if form == "html":
            path.write_text(page(some), encoding="utf-8")
            return
        rows, columns, weights = _grid(some[0])
        path.write_bytes(picture(heatmap(columns, rows, weights), form))
    except OSError as error:
        raise explained(error, f"write {path}") from error


def check_path(path: Path) -> None:
    """Raise UsageError where `write` could not write to `path`."""
    _form(path)
    check_file(path)


def check_model(translator: Translator) -> None:
    """Raise TranslateError for a model without attention."""
    if not translator.attends:
        raise TranslateError("the model has no attention to show: RNNencdec looks at no source word")


def check_count(path: Path, translations: Sequence[Translation]) -> None:
    """Raise TranslateError for several sentences in one picture."""
    if _form(path) != "html" and len(translations) > 1:
        raise TranslateError(f"{path} can show one sentence, and there are more; write them to an .html file")


def _form(path: Path) -> Form:
    form = path.suffix.removeprefix(".").lower()
    for known in _FORMS:
        if form == known:
            return known
    raise TranslateError(f"{path} ends in {path.suffix!r}; expected {', '.join('.' + f for f in _FORMS)}")


def page(translations: Sequence[Translation]) -> str:
    """The attention of the best candidates as one HTML page without scripts; every text in it is escaped."""
    tables = "\n".join(_table(one) for one in translations)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>Attention</title>
<style>{_STYLE}</style>
<main>
{tables}
</main>
</html>
"""


def _grid(translation: Translation) -> tuple[list[str], list[str], Sequence[Sequence[float]]]:
    """Rows, columns and weights, with the ends of sentence."""
    best = translation.candidates[0]
    weights = best.alignment or ()
    rows = [*best.tokens, EOS][: len(weights)]
    return list(map(plain_text, rows)), [*map(plain_text, translation.source), EOS], weights


def _headings(words: Sequence[str], cell: int) -> list[str]:
    """The words from top to bottom, ending above their columns. A wide character takes its column's two cells."""
    shown = [word if len(word) <= _HEADING else word[: _HEADING - 1] + "…" for word in words]
    height = max(map(len, shown))
    lines = []
    for row in range(height):
        letters = [word.rjust(height)[row] for word in shown]
        lines.append(
            "".join(letter if cell_len(letter) == cell else _fitted(letter, cell) for letter in letters)
        )
    return lines


def _fitted(letter: str, cell: int) -> str:
    return letter + " " * (cell - cell_len(letter)) if 0 < cell_len(letter) <= cell else "·".ljust(cell)


def _right(word: str, margin: int) -> str:
    """The word, cut or padded to `margin` cells."""
    if cell_len(word) > margin:
        return set_cell_size(word, margin - 1) + "…"
    return " " * (margin - cell_len(word)) + word


def _table(translation: Translation) -> str:
    best = translation.candidates[0]
    rows = [*best.tokens, EOS][: len(best.alignment or ())]
    head = "".join(
        f'<th scope="col"><span>{html_text(word)}</span></th>' for word in [*translation.source, EOS]
    )
    body = "\n".join(
        f'<tr><th scope="row">{html_text(word)}</th>'
        + "".join(f'<td class="w{round(10 * weight)}">{weight:.2f}</td>' for weight in weights)
        + "</tr>"
        for word, weights in zip(rows, best.alignment or (), strict=True)
    )
    return (
        f"<figure><figcaption><p>{html_text(translation.line)}</p><p>{html_text(best.text)}</p></figcaption>\n"
        f"<table><thead><tr><td></td>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></figure>"
    )


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f26; --page: #fefefe; --heat: 10 61 107; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --page: #12151a; --heat: 143 208 255; } }
body { margin: 2rem; background: var(--page); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
figure { margin: 0 0 3rem; overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th { font-weight: normal; text-align: right; padding: 0 .5em; white-space: nowrap; }
thead th { vertical-align: bottom; padding: .5em 0; }
thead span { writing-mode: vertical-rl; transform: rotate(180deg); }
tbody td { min-width: 1.7em; height: 1.7em; padding: 0; font-size: 0; border: 1px solid rgb(128 128 128 / .25); }
.mark { font-size: .7em; border: 1px solid; border-radius: .2em; padding: 0 .2em; }
""" + "\n".join(f".w{level} {{ background: rgb(var(--heat) / {level / 10}); }}" for level in range(1, 11))
