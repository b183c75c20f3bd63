"""The report: what it shows, what it does with foreign text, and what a browser makes of it."""

import base64
import dataclasses
import hashlib
import html
import itertools
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rnnsearch.flows.report.charts import draw
from rnnsearch.flows.report.data import (
    Aligned,
    Attention,
    BeamPoint,
    Behaviour,
    Bin,
    Claim,
    Comparison,
    CorpusFlow,
    CurvePoint,
    Dataset,
    Departure,
    Dropped,
    Estimate,
    Evidence,
    FlowStep,
    Input,
    Lengths,
    Links,
    LongSentence,
    Metric,
    Output,
    Packed,
    Rendering,
    ReportData,
    Setting,
    Spread,
    StageCost,
    SubsetScore,
    System,
    Training,
    to_json,
)
from rnnsearch.flows.report.html import to_html
from rnnsearch.flows.report.markdown import to_markdown
from rnnsearch.flows.report.text import plain_text
from rnnsearch.flows.report.write import write_files

HOSTILE = '<script>alert("x")</script> \u202egnihtyna\u202c & "quotes" | `ticks`'
EDGES = [(1, 10), (11, 20), (21, 30), (31, 40), (41, 50), (51, 60), (61, None)]
SIGNATURE = "BLEU|tok:moses|smooth:none|beam:12|norm:yes|subset:{subset}|unk:{unk}|test:2f0c11aa94de"


def a_system(name: str, kind: str, level: float, falls: float, *, seed: int) -> System:
    """A system whose scores start at `level` and lose `falls` BLEU a bin."""

    def score(subset: str, value: float, sentences: int, unk: str) -> SubsetScore:
        return SubsetScore(
            subset=subset,
            sentences=sentences,
            bleu=Estimate(value=value, low=value - 0.7, high=value + 0.7),
            signature=SIGNATURE.format(subset=subset, unk=unk),
            brevity=0.97,
            ratio=0.981,
            metrics=(
                Metric(name="BLEU, detokenised", value=value - 1, signature="nrefs:1|case:mixed|tok:13a"),
                Metric(name="chrF", value=value + 21, signature="nrefs:1|case:mixed|nc:6"),
            ),
            evidence=f"evaluate/{name}",
        )

    bins = tuple(
        Bin(
            low=low,
            high=high,
            sentences=240 - 33 * k,
            bleu=Estimate(
                value=max(level - falls * k, 0.4),
                low=max(level - falls * k - 1 - k / 3, 0),
                high=level - falls * k + 1 + k / 3,
            ),
        )
        for k, (low, high) in enumerate(EDGES)
    )
    curve = tuple(
        CurvePoint(
            update=50 * k,
            train_loss=3 + 4.5 * math.exp(-k / 14) + 0.12 * math.sin(k * 2.3 + seed),
            dev_loss=3.2 + 4.4 * math.exp(-k / 15) + 0.1 * seed if k % 8 == 0 else None,
            gradient_norm=3 + 20 * math.exp(-k / 6) + math.cos(k * 1.7 + seed),
            clipped_share=min(1.0, 0.35 + math.exp(-k / 12)),
            entropy=3 - k / 56 if kind == "rnnsearch" else None,
            dev_bleu=20 * (1 - math.exp(-k / 20)) if k % 8 == 0 else None,
        )
        for k in range(1, 57)
    )
    return System(
        name=name,
        kind=kind,
        max_words=30,
        paper_row={"rnnsearch": "RNNsearch-30", "rnnencdec": "RNNencdec-30"}[kind],
        scores=(score("all", level, 1000, "allow"), score("no-unk", level + 2.4, 412, "forbid")),
        by_length=bins,
        by_unknown=tuple(
            Bin(low=k, high=k if k < 3 else None, sentences=300 - 90 * k, bleu=Estimate(value=level - k))
            for k in range(4)
        ),
        at_most_length=tuple(dataclasses.replace(cell, low=1) for cell in bins),
        behaviour=Behaviour(
            unknown_output=0.031 + seed / 100,
            unknown_source=0.018,
            unknown_reference=0.027,
            repetition=0.083,
            fallbacks=0,
            unfinished=2,
            evidence=f"evaluate/{name}",
        ),
        attention=Attention(
            entropy=1.2,
            entropy_by_position=tuple(1.0 + 0.02 * k for k in range(60)),
            entropy_by_length=(
                Spread(low=1, high=10, sentences=300, entropy=1.1),
                Spread(low=11, high=None, sentences=700, entropy=1.4),
            ),
            least_weight=0.9999,
            most_weight=1.0,
            dropped=0.07,
            repeated=0.012,
        )
        if kind == "rnnsearch"
        else None,
        links=Links(
            sentences=1000,
            links=2410,
            entropy=1.1,
            gold_sentences=100,
            error_rate=0.312,
            evidence=f"evaluate/{name}",
        )
        if kind == "rnnsearch"
        else None,
        beams=tuple(
            BeamPoint(
                beam=beam,
                sentences=200,
                bleu=Estimate(value=level - 2 + k, low=level - 3 + k, high=level - 1 + k),
                unfinished=2 - k,
                seconds=0.004 + 0.017 * k,
            )
            for k, beam in enumerate((1, 8))
        )
        if kind == "rnnsearch"
        else (),
        training=Training(
            updates=2800,
            epochs=7.2,
            hours=0.087,
            device="2 × cpu",
            train_nll=61.2,
            dev_nll=74.9,
            tokens_per_second=5210.0,
            evidence=f"train/{name}",
        ),
        curve=curve,
        settings=(
            Setting(name="network.units", paper="1000", ours="256"),
            Setting(name="train.optimizer", paper="adadelta", ours="adam"),
        ),
    )


def an_alignment(k: int, source: str, target: str) -> Aligned:
    """A soft diagonal."""
    source_words, target_words = (*source.split(" "), "</s>"), target.split(" ")
    rows = []
    for t in range(len(target_words)):
        centre = t * (len(source_words) - 1) / max(len(target_words) - 1, 1)
        raw = [math.exp(-abs(s - centre) * (0.8 + 0.3 * (k % 3))) for s in range(len(source_words))]
        rows.append(tuple(round(w / sum(raw), 4) for w in raw))
    return Aligned(
        system="rnnsearch",
        corpus="bible",
        line=100 + k,
        source=source_words,
        target=tuple(target_words),
        reference=target,
        weights=tuple(rows),
        unknown_free=k % 2 == 0,
    )


def packed(aligned: Aligned) -> Packed:
    """The same, as the page holds every test sentence."""
    rows = []
    for row in aligned.weights:
        percent = [round(100 * weight) for weight in row]
        order = sorted(range(len(row)), key=lambda place: -row[place])
        rows.append(" ".join(f"{place}:{percent[place]}" for place in order))
    return Packed(
        corpus=aligned.corpus,
        line=aligned.line,
        source=" ".join(aligned.source[:-1]),
        target=" ".join(aligned.target),
        reference=aligned.reference,
        weights=";".join(rows),
    )


def some_evidence() -> tuple[Evidence, ...]:
    chain = [
        "download/bible",
        "ingest/bible",
        "clean/train",
        "tokenize/train",
        "select",
        "shortlist",
        "train/rnnsearch",
        "train/rnnencdec",
        "evaluate/rnnsearch",
        "evaluate/rnnencdec",
    ]
    parents = {
        "evaluate/rnnsearch": "train/rnnsearch",
        "evaluate/rnnencdec": "train/rnnencdec",
        "train/rnnencdec": "shortlist",
    }
    entries = []
    for k, stage in enumerate(chain):
        parent = parents.get(stage, chain[k - 1] if k else "")
        entries.append(
            Evidence(
                id=stage,
                stage=stage,
                key=f"{k:02x}" * 32,
                code="c0de" * 16,
                attempt=1,
                cached=k < 5,
                outputs=(
                    Output(name="kept", digest=f"{k + 16:02x}" * 32, files=8, rows=31_102, size=2_412_345),
                ),
                inputs=(Input(name="pairs", digest=f"{k + 15:02x}" * 32, made_by=parent),) if parent else (),
                config=json.dumps({"normalize": True, "note": HOSTILE}, indent=1),
                versions="Python 3.11, pyarrow 26.0.1",
                placement=json.dumps({"workers": 2}),
                observations=json.dumps({"seconds": 4.2}),
            )
        )
    return tuple(entries)


@pytest.fixture(scope="module")
def report() -> ReportData:
    """A whole report of two systems, with foreign text in it."""
    short = [
        (
            "The small ship sailed to the island before the night",
            "Le petit bateau navigua vers l' île avant la nuit",
        ),
        (
            "My neighbour sells bread and cheese at the market every day",
            "Mon voisin vend du pain et du fromage au marché chaque jour",
        ),
        (HOSTILE, HOSTILE),
        (
            "We read the letter that you wrote to us from the mountain village in the winter of that quiet year",
            "Nous avons lu la lettre que vous nous avez écrite du village de montagne pendant l' hiver de cette année",
        ),
    ]
    long_source = " ".join(["and the river that runs past the mill carries the leaves of the old trees"] * 3)
    long_target = " ".join(
        ["et la rivière qui passe devant le moulin emporte les feuilles des vieux arbres"] * 3
    )
    steps = [
        ("raw", 0),
        ("not held out", 2000),
        ("clean", 640),
        ("no leakage", 31),
        ("selected", 4100),
        ("≤ 30 words", 7010),
    ]
    reasons = ["", "held out", "duplicate", "in the test set", "not selected", "too long"]

    def flow(corpus: str, raw: int, share: float) -> CorpusFlow:
        left, made = raw, []
        for (name, lost), reason in zip(steps, reasons, strict=True):
            gone = int(lost * share)
            left -= gone
            dropped = (Dropped(reason=reason, pairs=gone),) if gone else ()
            made.append(FlowStep(name=name, pairs=left, dropped=dropped, evidence="clean/train"))
        return CorpusFlow(corpus=corpus, steps=tuple(made))

    return ReportData(
        profile="demo",
        run="run-000007",
        state="finished",
        datasets=(
            Dataset(role="train", corpora=("bible-web", "bible-basic"), pairs=41_210, evidence="select"),
            Dataset(role="dev", corpora=("bible-web",), pairs=1000, evidence="clean/train"),
            Dataset(role="test", corpora=("bible-web",), pairs=1000, evidence="clean/train"),
        ),
        systems=(
            a_system("rnnsearch", "rnnsearch", 11.2, 0.5, seed=0),
            a_system("rnnencdec", "rnnencdec", 7.9, 1.3, seed=1),
        ),
        comparisons=(
            Comparison(
                subset="all",
                first="rnnsearch",
                second="rnnencdec",
                difference=3.3,
                p_value=0.0002,
                samples=1000,
            ),
        ),
        flows=(flow("bible-web", 31_102, 1.0), flow("bible-basic", 31_102, 0.9), flow("icd10", 12_467, 0.4)),
        lengths=tuple(
            Lengths(
                side=side,
                label=label,
                counts=tuple(int(900 * math.exp(-((k - centre) ** 2) / 160)) for k in range(81)),
                mean=float(centre),
            )
            for side, label, centre in (
                ("source", "train", 24),
                ("target", "train", 27),
                ("target", "rnnsearch", 25),
            )
        ),
        aligned=tuple(an_alignment(k, *pair) for k, pair in enumerate(short)),
        every_aligned=(
            *(packed(an_alignment(k, *pair)) for k, pair in enumerate(short)),
            Packed(
                corpus="bible",
                line=7,
                source=f"Nobody {HOSTILE} drew this </script>",
                target="Personne ne <b>dessina</b>",
                reference="Personne \u202egnihtyna\u202c",
                weights="0:61 1:39;0:40 1:30 2:30;10:100",
            ),
            Packed(corpus="bible", line=8, source="Nothing came", target="", reference="Rien", weights=""),
        ),
        long_sentences=(
            LongSentence(
                corpus="bible-web",
                line=77,
                words=45,
                source=long_source,
                reference=long_target,
                translations=(
                    Rendering(system="rnnsearch", text=long_target),
                    Rendering(system="rnnencdec", text=f"{long_target[:60]} [UNK] {HOSTILE}"),
                ),
            ),
        ),
        costs=tuple(
            StageCost(
                stage=entry.stage,
                seconds=3.0 + 40 * k,
                cached=entry.cached,
                device="2 × cpu",
                evidence=entry.id,
            )
            for k, entry in enumerate(some_evidence())
        ),
        claims=(
            Claim(
                claim="Attention beats the fixed vector",
                paper="26.75 over 17.82",
                found="11.20 over 7.90",
                verdict="holds",
                band="higher BLEU on all sentences, p < 0.05",
            ),
            Claim(
                claim="The fixed-vector model falls with length",
                paper="yes",
                found="7.9 at ≤ 10 words, 0.4 at > 60",
                verdict="near",
                band="less than half",
            ),
            Claim(
                claim="RNNsearch-30 beats RNNencdec-50",
                paper="21.50 over 17.82",
                found="",
                verdict="not run",
                band="",
            ),
            Claim(
                claim="Longer training helps", paper="+1.70", found="−0.20", verdict="differs", band="above 0"
            ),
        ),
        departures=(Departure(where="pipeline/config.py", text="the paper sets no limit on the ratio"),),
        evidence=some_evidence(),
        missing=("translate/rnnencdec/no-unk: not in this run",),
    )


@pytest.fixture(scope="module")
def html_page(report: ReportData) -> str:
    return to_html(report)


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


def test_files_of_equal_reports_are_equal_bytes(report: ReportData, tmp_path: Path) -> None:
    one = System(name="rnnsearch", by_length=report.systems[0].by_length)
    few = dataclasses.replace(EMPTY, aligned=report.aligned[:1], systems=(one,))
    for name in ("a", "b"):
        write_files(few, tmp_path / name)
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {path.suffix for path in names} == {".html", ".md", ".json", ".svg", ".png", ".pdf"}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_told_from_its_ground(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_number_opens_its_evidence(page: Any) -> None:
    page.click("#scores tr:has-text('RNNsearch-30') a.ev >> nth=0")
    assert page.is_visible("#e-evaluate-rnnsearch")
    page.click("#e-evaluate-rnnsearch a >> nth=0")
    assert page.is_visible("#e-train-rnnsearch")


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_pointer_on_a_weight_is_told_which_words_it_joins(page: Any) -> None:
    page.hover(".sentence:not([hidden]) .heat tbody tr:nth-child(2) td:nth-child(3)")
    assert page.inner_text(".tip") == "petit ← small 41 %"


@pytest.mark.slow
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


@pytest.mark.slow
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
