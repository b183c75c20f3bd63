"""The report: what it shows, and what it does with foreign text. Its page in a browser is `test_report_page`'s."""

import base64
import dataclasses
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from report_example import HOSTILE, a_report

from rnnsearch.flows.report.charts import draw
from rnnsearch.flows.report.data import (
    JSON_SCHEMA,
    CorpusFlow,
    Dropped,
    FlowStep,
    ReportData,
    System,
    to_json,
)
from rnnsearch.flows.report.formats import probability
from rnnsearch.flows.report.html import to_html
from rnnsearch.flows.report.markdown import to_markdown
from rnnsearch.flows.report.tables import flow_table, reason_rows
from rnnsearch.flows.report.text import plain_text
from rnnsearch.flows.report.write import write_files

EMPTY = ReportData(profile="demo", run="run-1")
DRAWN_FIELDS = [
    field.name for field in dataclasses.fields(ReportData) if isinstance(getattr(EMPTY, field.name), tuple)
]
SECTIONS = (
    "scores",
    "training",
    "length",
    "alignment",
    "beam",
    "long",
    "claims",
    "significance",
    "words",
    "data",
    "cost",
)


@pytest.fixture(scope="module")
def report() -> ReportData:
    return a_report()


@pytest.fixture(scope="module")
def html_page(report: ReportData) -> str:
    return to_html(report)


def shown(page: str) -> str:
    """The text of a page as a reader has it: no script, no style, no tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", bare))


def test_corpus_text_is_text_and_never_markup(html_page: str) -> None:
    assert "<script>alert" not in html_page
    assert html_page.count("<script>") == 1
    assert '<script>alert("x")</script>' in shown(html_page)


def test_marks_of_direction_are_seen_and_turn_nothing_around(report: ReportData, html_page: str) -> None:
    for text in (html_page, to_markdown(report), to_json(report)):
        assert "\u202e" not in text
    assert '<span class="mark" title="U+202E">RLO</span>' in html_page
    assert "[RLO]" in plain_text(HOSTILE)
    assert json.loads(to_json(report))["aligned"][2]["reference"] == HOSTILE


def test_markdown_tables_keep_their_columns_whatever_a_corpus_holds(report: ReportData) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", to_markdown(report), flags=re.MULTILINE)
    assert len(blocks) > 8
    for block in blocks:
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block


def test_the_page_forbids_itself_network_and_foreign_script(html_page: str) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html_page)
    assert html.unescape(policy).startswith("default-src 'none'")
    (script,) = re.findall(r"<script>(.*?)</script>", html_page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(policy)
    assert not re.search(r'(?:src|href)="(?!#|data:)', html_page)


def test_our_numbers_stand_beside_the_papers(report: ReportData) -> None:
    row = re.search(r"\| RNNsearch-30 \(rnnsearch\) \|.*", to_markdown(report))
    assert row is not None
    assert row.group().split(" | ")[1:] == [
        "11.20 [10.5–11.9]",
        "21.50",
        "13.60 [12.9–14.3]",
        "412",
        "31.44 |",
    ]
    assert re.search(r"\| RNNsearch-50 \| not run \| 26.75 \|", to_markdown(report))
    assert re.search(r"\| Moses \| not run \| 33.30 \|", to_markdown(report))


def test_each_number_leads_to_its_evidence_on_the_page(html_page: str) -> None:
    identifiers = re.findall(r'\bid="([^"]+)"', html_page)
    assert len(identifiers) == len(set(identifiers))
    targets = set(re.findall(r'href="#([^"]+)"', html_page))
    assert "e-evaluate-rnnsearch" in targets
    assert targets <= set(identifiers)


def test_every_number_of_ours_in_a_table_leads_to_its_evidence(html_page: str) -> None:
    bare = re.sub(r"<details>.*?</details>|<tfoot>.*?</tfoot>", "", html_page, flags=re.DOTALL)
    cells = re.findall(r'<td class="n">(?:(?!</td>).)*</td>', bare, flags=re.DOTALL)
    numbers = [cell for cell in cells if re.search(r"\d", shown(re.sub(r"<small>.*?</small>", "", cell)))]
    assert len(numbers) > 40
    assert [cell for cell in numbers if 'class="ev"' not in cell] == []


def test_rows_of_a_heatmap_are_target_words_and_the_ring_is_the_strongest(
    report: ReportData, html_page: str
) -> None:
    table = re.search(r'<table class="heat".*?</table>', html_page, flags=re.DOTALL)
    assert table is not None
    head, *rows = table.group().split("<tr>")[1:]
    named = re.compile(r"<th>(.*?)(?=<th>|<td|</tr>)")  # HTML lets a cell end where the next begins
    assert [shown(word) for word in named.findall(head)] == list(report.aligned[0].source)
    assert [shown(named.findall(row)[0]) for row in rows] == list(report.aligned[0].target)
    for row, weights in zip(rows, report.aligned[0].weights, strict=True):
        cells = re.findall(r"<td[^>]*>", row)
        strongest = max(range(len(weights)), key=weights.__getitem__)
        assert [k for k, cell in enumerate(cells) if " h" in cell] == [strongest]


def test_every_figure_of_a_whole_report_is_on_the_page_and_in_the_markdown(
    report: ReportData, html_page: str
) -> None:
    markdown = to_markdown(report)
    names = {
        "loss", "dev-bleu", "gradient-norm", "clipped-share", "training-entropy", "bleu-by-length", "bleu-cumulative",
        "bleu-by-unknown", "attention-entropy", "attention-by-length", "beam-bleu", "beam-seconds", "unknown",
        "source-lengths", "target-lengths", "waterfall",
    }  # fmt: skip
    assert set(draw(report)) == names
    for name in names:
        assert html_page.count(f'aria-labelledby="f-{name}"') == 1, name
        assert markdown.count(f"](figures/{name}.png)") == 1, name


def test_links_and_beams_are_shown_with_what_was_not_asked_as_not_run(
    report: ReportData, html_page: str
) -> None:
    assert "| rnnsearch | 31.2 % | 100 | not run | 2,410 | 1.100 |" in to_markdown(report)
    text = "".join(shown(html_page).split())
    assert "rnnsearch31.2%100notrun2,4101.100" in text
    assert "systembeam1beam8rnnsearch9.2010.20rnnsearch,unfinished21" in text
    assert "systembeam1beam8rnnsearch4.021.0" in text  # milliseconds a sentence


@pytest.mark.parametrize("field", DRAWN_FIELDS)
def test_a_report_without_some_part_is_drawn_all_the_same(report: ReportData, field: str) -> None:
    lacking = dataclasses.replace(report, **{field: ()})
    for text in (to_html(lacking), to_markdown(lacking), to_json(lacking)):
        assert text


def test_a_report_of_nothing_says_not_run_in_every_section() -> None:
    page, markdown = to_html(EMPTY), to_markdown(EMPTY)
    assert markdown.count("not run") >= 20
    for name in SECTIONS:
        section = re.search(rf'<section id="{name}".*?</section>', page, flags=re.DOTALL)
        assert section is not None
        assert re.search(r"[Nn]ot run|No learning curves|Nothing was recorded", section.group()), name


def test_a_system_that_was_only_trained_or_only_scored_is_drawn(report: ReportData) -> None:
    trained = dataclasses.replace(
        report.systems[0], scores=(), by_length=(), at_most_length=(), attention=None
    )
    scored = dataclasses.replace(report.systems[1], training=None, curve=())
    bare = System(name="bare")
    external = System(name="moses", external=True, paper_row="Moses", scores=report.systems[0].scores)
    lacking = dataclasses.replace(report, systems=(trained, scored, bare, external))
    assert "bare" in to_html(lacking)
    assert "moses" in to_markdown(lacking)


def test_a_p_value_at_the_floor_of_its_test_is_a_bound(report: ReportData, html_page: str) -> None:
    assert [probability(*each) for each in ((1 / 1_001, 1_000), (0.000999, 1_000), (2 / 1_001, 1_000))] == [
        "≤ 0.001",
        "≤ 0.001",
        "= 0.002",
    ]
    assert [probability(*each) for each in ((1 / 11, 10), (0.0002, None), (0.0, 9))] == [
        "≤ 0.091",
        "< 0.001",
        "≤ 0.100",
    ]
    for text in (shown(html_page), to_markdown(report)):
        assert "p ≤ 0.001" in text
        assert "p 0.000" not in text


def test_a_curve_names_the_highest_bleu_and_the_lowest_loss(report: ReportData) -> None:
    charts = draw(report)
    assert charts["loss"].header[3] == "lowest"
    assert charts["dev-bleu"].header[3] == "highest"
    curve = [(p.dev_bleu, p.update) for p in report.systems[0].curve if p.dev_bleu is not None]
    best, update = max(curve, key=lambda each: each[0])
    assert charts["dev-bleu"].rows[0][3:] == (f"{best:.3f}", f"{update:,}")


def test_of_systems_with_equal_bleu_the_best_is_the_one_that_attends(report: ReportData) -> None:
    search = next(system for system in report.systems if system.kind == "rnnsearch")
    fixed = dataclasses.replace(search, name="fixed", kind="rnnencdec")
    for systems in ((fixed, search), (search, fixed)):
        best = dataclasses.replace(report, systems=systems).best
        assert best is not None
        assert best.name == search.name


@pytest.mark.parametrize("figures", [True, False])
def test_the_markdown_links_only_figures_that_are_there(
    report: ReportData, tmp_path: Path, figures: bool
) -> None:
    write_files(dataclasses.replace(report, aligned=()), tmp_path, figures=figures)
    linked = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (tmp_path / "report.md").read_text(encoding="utf-8"))
    assert bool(linked) == figures
    assert [path for path in linked if not (tmp_path / path).is_file()] == []


def test_the_json_names_its_schema_and_every_field_of_it_is_documented(report: ReportData) -> None:
    shown_fields = json.loads(to_json(report))
    assert shown_fields["schema"] == JSON_SCHEMA
    page = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert documented == ["schema", *(each.name for each in dataclasses.fields(ReportData))]
    assert f"schema is {JSON_SCHEMA}" in page


def test_files_of_equal_reports_are_equal_bytes(report: ReportData, tmp_path: Path) -> None:
    one = System(name="rnnsearch", by_length=report.systems[0].by_length)
    few = dataclasses.replace(EMPTY, aligned=report.aligned[:1], systems=(one,))
    for name in ("a", "b"):
        write_files(few, tmp_path / name)
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {path.suffix for path in names} == {".html", ".md", ".json", ".svg", ".png", ".pdf"}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_step_that_only_some_corpora_have_stands_where_it_comes_in_the_pipeline() -> None:
    def flow(corpus: str, *steps: str) -> CorpusFlow:
        made = [FlowStep(name=step, pairs=3, dropped=(Dropped(reason=step, pairs=1),)) for step in steps]
        return CorpusFlow(corpus=corpus, steps=tuple(made))

    flows = (flow("a", "raw", "clean", "gated"), flow("b", "raw", "read", "clean", "gated", "selected"))
    assert flow_table(flows).steps == ("raw", "read", "clean", "gated", "selected")
    assert [row.step for row in reason_rows(flows)] == ["raw", "read", "clean", "gated", "selected"]
