"""The page of the report in a real browser: what a reader sees, at every width, with the keyboard, on paper."""

import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_example import HOSTILE, a_report

from rnnsearch.flows.report.data import ReportData
from rnnsearch.flows.report.html import to_html

pytestmark = pytest.mark.slow

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def report() -> ReportData:
    return a_report()


@pytest.fixture(scope="module")
def html_page(report: ReportData) -> str:
    return to_html(report)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real browser, for the tests of what a reader sees."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine: install it to see the page as a reader does")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")), executable_path=program, args=list(FLAGS), headless=True
        )
        yield context
        context.close()


@pytest.fixture
def page(browser: Any, html_page: str, tmp_path: Path) -> Iterator[Any]:
    """The report, opened from a file; anything in the console or on the network fails the test."""
    file = tmp_path / "report.html"
    file.write_text(html_page, encoding="utf-8")
    tab, complaints = browser.new_page(), []
    tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    tab.on(
        "request",
        lambda sent: None if sent.url.startswith(("file:", "data:")) else complaints.append(sent.url),
    )
    tab.goto(file.as_uri())
    yield tab
    tab.close()
    assert complaints == []


@pytest.mark.parametrize("width", [400, 1280, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_every_screen_in_both_colours(page: Any, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        "[...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.scroll') && !e.closest('svg')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    brightness = page.evaluate(
        "getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/g).map(Number)"
    )
    assert (sum(brightness[:3]) < 200) == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_told_from_its_ground(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


def test_a_sentence_is_chosen_with_the_keyboard(page: Any) -> None:
    visible = (
        "[...document.querySelectorAll('.sentence')].map((e, k) => e.hidden ? -1 : k).filter(k => k >= 0)"
    )
    assert page.evaluate(visible) == [0]
    page.focus("#choose-sentence")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(visible) == [1]
    page.click("button[aria-label='Previous sentence']")
    page.click("button[aria-label='Previous sentence']")
    assert page.evaluate(visible) == [3]


def test_any_test_sentence_is_found_and_drawn_with_its_text_as_text(page: Any) -> None:
    chosen = ".sentence:not([hidden])"

    def find(asked: str, count: str) -> None:
        page.fill("input[type=search]", asked)
        page.wait_for_function("said => document.querySelector('output').textContent === said", arg=count)

    find("nobody DREW", "1 found")
    assert page.locator(chosen).count() == 1
    assert "RLOgnihtynaPDF" in page.inner_text("#choose-sentence option >> nth=0")
    source = ["Nobody", *HOSTILE.replace("\u202e", "RLO").replace("\u202c", "PDF").split(" "), "drew", "this"]
    assert page.inner_text(f"{chosen} .parallel dd >> nth=0") == " ".join([*source, "</script>"])
    assert page.inner_text(f"{chosen} .parallel dd >> nth=1") == "Personne ne <b>dessina</b>"
    assert page.locator(f"{chosen} .parallel .mark").count() == 4
    heads = page.locator(f"{chosen} .heat thead th").all_text_contents()
    assert heads == [*source, "</script>", "</s>"]
    sizes = "marks => marks.map(mark => Math.max(mark.offsetWidth, mark.offsetHeight))"
    assert max(page.locator(f"{chosen} .heat thead .mark").evaluate_all(sizes)) < 40, (
        "within their column's heading"
    )
    rows = page.locator(f"{chosen} .heat tbody tr")
    assert rows.locator("th").all_inner_texts() == ["Personne", "ne", "<b>dessina</b>"]
    ringed = "rows => rows.map(row => [...row.cells].slice(1).findIndex(cell => cell.matches('.h')))"
    assert rows.evaluate_all(ringed) == [0, 0, 10]
    assert page.text_content(f"{chosen} .hard li >> nth=0") == "Personne←Nobody0.61"
    find("8", "1 found")
    assert page.inner_text(f"{chosen} .parallel dd >> nth=0") == "Nothing came"
    assert rows.count() == 0, "an empty translation looks nowhere"
    find("island", "1 found")
    assert page.locator(f"{chosen} > summary").text_content().strip().startswith("1. The small ship")
    find("no such words", "0 found")
    find("", "")
    assert page.locator("#choose-sentence option").count() == 4


def test_a_number_opens_its_evidence(page: Any) -> None:
    page.click("#scores tr:has-text('RNNsearch-30') a.ev >> nth=0")
    assert page.is_visible("#e-evaluate-rnnsearch")
    page.click("#e-evaluate-rnnsearch a >> nth=0")
    assert page.is_visible("#e-train-rnnsearch")


def test_on_paper_there_are_figures_and_tables_and_nothing_to_press(page: Any) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav, .chooser, .skip, .tip").filter(visible=True).count()
    for what in ("#scores table >> nth=0", ".chart svg >> nth=0", ".heat >> nth=0"):
        assert page.is_visible(what), what
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => getComputedStyle(e).overflowX === 'visible')"
    )
    page.emulate_media(media="print", color_scheme="light")
    assert page.evaluate(CONTRAST) == []
    assert page.pdf(format="A4", print_background=True).startswith(b"%PDF")


def test_a_pointer_on_a_weight_is_told_which_words_it_joins(page: Any) -> None:
    page.hover(".sentence:not([hidden]) .heat tbody tr:nth-child(2) td:nth-child(3)")
    assert page.inner_text(".tip") == "petit ← small 41 %"


def test_every_figure_and_table_has_a_name_for_a_screen_reader(page: Any) -> None:
    nameless = (
        "[...document.querySelectorAll('figure, .scroll, section, nav, select, button')].filter(e => "
        "!e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby'))"
        " && !(e.labels && e.labels.length)).map(e => e.outerHTML.slice(0, 80))"
    )
    assert page.evaluate(nameless) == []
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_without_script_every_sentence_is_on_the_page(
    browser: Any, report: ReportData, html_page: str, tmp_path: Path
) -> None:
    file = tmp_path / "bare.html"
    file.write_text(re.sub(r"<script>.*?</script>", "", html_page, flags=re.DOTALL), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    assert tab.locator(".sentence > summary:visible").count() == len(report.aligned)
    tab.click(".sentence > summary >> nth=1")
    assert tab.is_visible(".sentence >> nth=1 >> .hard")
    tab.close()


# WCAG 2: 4.5 to 1 for text, 3 to 1 for large text. The ground of a cell is the nearest ancestor that has one.
CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest("script, style") || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(node.closest("svg") ? style.fill : style.color), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) bad.push([node.textContent.trim().slice(0, 40), ratio]);
  }
  return bad;
}"""
