"""What the report gathers from a store: a small run, written as the bridge would write it."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from written_run import TEST_SENTENCES, Bridge, write_run

from rnnsearch.flows.report.data import Bin, Claim, Estimate, ReportData, to_json
from rnnsearch.flows.report.departures import changed_settings, marked_departures
from rnnsearch.flows.report.gather import gather
from rnnsearch.flows.report.html import to_html
from rnnsearch.flows.report.markdown import to_markdown
from rnnsearch.flows.report.scorecard import check_claims
from rnnsearch.flows.report.write import write_report
from rnnsearch.storage.errors import MissingError
from rnnsearch.storage.store import Store


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    return write_run(tmp_path_factory.mktemp("report") / "store")


@pytest.fixture(scope="module")
def report(written: Bridge) -> ReportData:
    return gather(written.store, written.run.id)


def test_a_whole_run_is_gathered_without_a_complaint(report: ReportData) -> None:
    assert report.missing == ()
    assert report.title == "A river"
    assert [system.name for system in report.systems] == ["rnnencdec", "rnnsearch"]
    assert report.best is not None
    assert report.best.name == "rnnsearch"


def test_every_score_carries_a_signature_with_the_artifact_it_was_computed_from(
    report: ReportData, written: Bridge
) -> None:
    score = report.systems[1].score("all")
    assert score is not None
    digest = written.outputs["translate/rnnsearch/all", "hypotheses"]
    assert score.sentences == TEST_SENTENCES
    assert score.signature.endswith(f"|artifact:{digest[:12]}")
    assert f"n:{TEST_SENTENCES}" in score.signature
    assert score.bleu.low is not None
    assert score.bleu.low <= score.bleu.value <= (score.bleu.high or 0)


def test_pairs_that_leave_are_counted_down_step_by_step_with_their_reasons(report: ReportData) -> None:
    steps = {step.name: step for step in report.flows[0].steps}
    assert {name: step.pairs for name, step in steps.items()} == {
        "raw": 200,
        "not held out": 130,
        "clean": 120,
        "gated": 118,
        "≤ 30 words": 90,
    }
    assert [(lost.reason, lost.pairs) for lost in steps["clean"].dropped] == [("duplicate", 3), ("empty", 7)]
    assert [(lost.reason, lost.pairs) for lost in steps["not held out"].dropped] == [
        ("is dev", 10),
        ("is test", 60),
    ]


def test_slipped_lines_of_the_corpus_of_the_test_set_are_the_first_warning(report: ReportData) -> None:
    assert [(f.corpus, f.check, f.pairs, f.of) for f in report.findings] == [
        ("river", "entities", 3, 200),
        ("river", "slipped", 50, 200),
        ("river", "too_long", 1, 200),
    ]
    assert report.warnings[0].startswith(
        "the sides of corpus river, which gives dev or test, seem to have slipped"
    )
    assert "in 50 lines (20–69, counted from 0)" in report.warnings[0]
    assert report.warnings[3].startswith(
        "1.5% of the pairs of corpus river hold HTML entities: clean.unescape"
    )
    assert len(report.warnings) == 4


def test_what_of_the_test_set_stands_in_training_is_a_warning(report: ReportData) -> None:
    found = report.overlap
    assert found is not None
    assert (found.sentences, found.sources, found.references, found.either, found.one_word) == (
        60,
        1,
        1,
        1,
        0,
    )
    assert (found.near_sources, found.near_references) == (1, 0)
    assert (found.near[0].corpus, found.near[0].line, found.near[0].pairs) == ("river", 118, 1)
    assert report.warnings[1].startswith(
        "1.7% of the test set stands in the training data: 1 sources and 1 references"
    )
    assert "1 test sources and 0 references differ from a training sentence in one word" in report.warnings[2]
    for system in report.systems:
        score = system.score("not-in-training")
        assert score is not None
        assert (score.sentences, score.evidence) == (59, f"evaluate/{system.name}")
        assert "|subset:not-in-training|n:59" in score.signature


def test_the_training_row_has_the_columns_of_table_2(report: ReportData) -> None:
    training = report.systems[1].training
    assert training is not None
    assert (training.updates, training.epochs, training.hours, training.device) == (100, 88.9, 0.25, "cpu")
    assert training.train_nll == pytest.approx(44.0)  # the last tenth of the curve is its last row
    assert training.dev_nll == pytest.approx(65.0)  # at update 80


def test_alignments_have_target_words_down_and_source_words_across(report: ReportData) -> None:
    assert report.aligned
    for aligned in report.aligned:
        assert aligned.system == "rnnsearch"
        assert len(aligned.weights) == len(aligned.target)
        for row in aligned.weights:
            assert len(row) == len(aligned.source)
            assert sum(row) == pytest.approx(1, abs=5e-3)


def test_every_test_sentence_has_its_alignment_in_percent_with_the_strongest_weight_first(
    report: ReportData,
) -> None:
    assert [(one.corpus, one.line) for one in report.every_aligned] == [
        ("river", 1000 + k) for k in range(60)
    ]
    packed = {one.line: one for one in report.every_aligned}
    assert len(report.aligned) == 40
    for aligned in report.aligned:
        one = packed[aligned.line]
        assert (one.source.split(" "), one.target.split(" ")) == ([*aligned.source[:-1]], [*aligned.target])
        rows = [
            [tuple(map(int, cell.split(":"))) for cell in row.split(" ")] for row in one.weights.split(";")
        ]
        assert len(rows) == len(aligned.weights)
        for cells, weights in zip(rows, aligned.weights, strict=True):
            assert cells[0][0] == max(range(len(weights)), key=weights.__getitem__)
            assert all(abs(percent - 100 * weights[place]) <= 0.51 for place, percent in cells)
            assert sum(percent for _, percent in cells) == pytest.approx(100, abs=len(weights) / 2)


def test_the_sentences_shown_first_are_such_as_the_paper_shows(report: ReportData) -> None:
    first = report.aligned[0]
    assert first.unknown_free
    assert 10 <= len(first.source) - 1 <= 20


def test_every_number_leads_to_a_stage_of_the_run_and_from_there_to_its_inputs(report: ReportData) -> None:
    entries = {entry.id: entry for entry in report.evidence}
    for system in report.systems:
        for score in system.scores:
            assert score.evidence in entries
        assert system.training is not None
        assert system.training.evidence in entries
    assert [i.made_by for i in entries["evaluate/rnnsearch"].inputs] == ["translate/rnnsearch/all"]
    assert [i.made_by for i in entries["holdout"].inputs] == ["ingest/river"]


def test_cached_stages_count_as_time_saved(report: ReportData) -> None:
    costs = {cost.stage: cost for cost in report.costs}
    assert (costs["holdout"].cached, costs["holdout"].seconds) == (True, 2.5)
    assert (costs["gate"].cached, costs["gate"].seconds) == (False, 0.5)


def test_two_systems_are_tested_against_each_other(report: ReportData) -> None:
    (test,) = [test for test in report.comparisons if test.subset == "all"]
    assert (test.first, test.second) == ("rnnencdec", "rnnsearch")
    assert test.difference < 0
    assert 0 < test.p_value <= 1


def test_what_a_claim_says_was_found_leads_to_the_stages_that_found_it(report: ReportData) -> None:
    entries = {entry.id for entry in report.evidence}
    found = [claim for claim in report.claims if claim.found]
    assert len(found) >= 5
    for claim in found:
        assert claim.evidence, claim.claim
        assert set(claim.evidence) <= entries


def test_claims_that_were_not_asked_are_not_run(report: ReportData) -> None:
    verdicts = {claim.claim: claim.verdict for claim in report.claims}
    assert verdicts["RNNsearch-30 beats RNNencdec-30"] == "holds"
    assert verdicts["RNNsearch-50 beats RNNencdec-50"] == "not run"
    assert verdicts["RNNsearch-30 reaches its BLEU"] == "not run"  # its settings differ from the paper's
    assert verdicts["The alignment is largely monotone"] == "holds"


def _lengths(*scores: tuple[int, int | None, int, float]) -> tuple[Bin, ...]:
    return tuple(
        Bin(low=low, high=high, sentences=n, bleu=Estimate(value=value)) for low, high, n, value in scores
    )


def _claims(report: ReportData, search: tuple[Bin, ...], fixed: tuple[Bin, ...]) -> dict[str, Claim]:
    named = {"rnnsearch": search, "rnnencdec": fixed}
    systems = tuple(dataclasses.replace(s, by_length=named[s.name], paper_row=None) for s in report.systems)
    return {claim.claim: claim for claim in check_claims(dataclasses.replace(report, systems=systems))}


FALLS, KEEPS = (
    "The fixed-vector model falls sharply with length",
    "The search does not fall on long sentences",
)
LEAD, WINS = "The lead of the search grows with length", "The search beats the fixed vector"


@pytest.mark.parametrize(
    ("search", "fixed", "verdicts"),
    [
        ((30.0, 30.0, 29.0), (25.0, 20.0, 9.0), ("holds", "holds", "holds")),
        ((30.0, 30.0, 24.0), (25.0, 20.0, 18.5), ("near", "near", "near")),
        ((30.0, 30.0, 20.0), (25.0, 25.0, 24.0), ("differs", "differs", "differs")),
    ],
)
def test_what_the_paper_says_of_length_is_checked_on_long_sentences(
    report: ReportData, search: Sequence[float], fixed: Sequence[float], verdicts: tuple[str, str, str]
) -> None:
    edges = ((1, 10, 50), (11, 30, 90), (31, None, 25))
    found = _claims(
        report,
        *(
            _lengths(*((*edge, value) for edge, value in zip(edges, values, strict=True)))
            for values in (search, fixed)
        ),
    )
    assert tuple(found[claim].verdict for claim in (FALLS, KEEPS, LEAD)) == verdicts
    assert f"{search[-1]:.2f} at > 30 words" in found[KEEPS].found


def test_where_no_sentence_is_long_the_claims_say_what_was_found_and_the_lead_is_still_compared(
    report: ReportData,
) -> None:
    # The last range has too few sentences to count.
    search = _lengths((1, 10, 300, 30.0), (11, 20, 200, 33.0), (31, None, 5, 90.0))
    fixed = _lengths((1, 10, 300, 28.0), (11, 20, 200, 20.0), (31, None, 5, 1.0))
    found = _claims(report, search, fixed)
    for claim in (FALLS, KEEPS):
        assert found[claim].verdict == "not run"
        assert "at 11–20 words; too few sentences above 30 words to tell" in found[claim].found
    assert found[LEAD].verdict == "holds"
    assert found[LEAD].found == "rnnsearch over rnnencdec: +2.00 at 1–10 words, +13.00 at 11–20"
    assert found[WINS].verdict == "holds", "whatever rows of the paper the systems stand for"
    assert found[WINS].found.startswith("rnnsearch over rnnencdec: ")


def test_a_system_with_the_papers_settings_is_held_to_the_papers_number(report: ReportData) -> None:
    same = tuple(dataclasses.replace(system, settings=()) for system in report.systems)
    claims = check_claims(dataclasses.replace(report, systems=same))
    assert {c.claim: c.verdict for c in claims}[
        "RNNsearch-30 reaches its BLEU"
    ] == "differs"  # 21.50 it is not


def test_settings_that_differ_are_named_and_those_that_agree_are_not(written: Bridge) -> None:
    found = changed_settings(written.store.runs.get(written.run.id).request["settings"], "rnnsearch")
    assert {s.name: (s.paper, s.ours) for s in found} == {
        "network.units": ("1000", "256"),
        "train.optimizer": ("adadelta", "adam"),
        "train.updates": ("471,000", "100"),
    }


def test_departures_are_read_from_the_code() -> None:
    assert all(departure.text for departure in marked_departures())
    assert any(departure.where.startswith("model/") for departure in marked_departures())


def test_a_run_that_has_only_begun_is_drawn_as_not_run(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    run = store.runs.start({"profile": "tiny", "settings": {"systems": {"rnnsearch": {"max_words": 30}}}})
    report = gather(store, run.id)
    assert [system.name for system in report.systems] == ["rnnsearch"]
    assert report.best is None
    for text_ in (to_html(report), to_markdown(report)):
        assert "not run" in text_
    assert "No system has been scored yet" in to_html(report)


def test_a_damaged_blob_is_named_and_the_rest_is_shown(written: Bridge, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(written.store.location, folder)
    digest = written.store.read_artifact(written.outputs["evaluate/rnnsearch", "scores"]).files[0].digest
    data = written.store.get_bytes(digest)
    for copy in [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == data]:
        copy.chmod(0o644)
        copy.write_bytes(b"?" + data[1:])
    report = gather(Store.open(folder), written.run.id)
    assert any("evaluate/rnnsearch" in line for line in report.missing)
    assert report.best is not None
    assert report.best.name == "rnnencdec"
    assert "could not be read" in to_html(report)


def test_an_unknown_run_is_an_error(written: Bridge) -> None:
    with pytest.raises(MissingError, match="no run"):
        gather(written.store, "19990101-000000-0000")


def test_two_reports_of_one_run_are_equal_bytes(written: Bridge, tmp_path: Path) -> None:
    first, second = (
        write_report(written.store, written.run.id, tmp_path / name, figures=False) for name in ("a", "b")
    )
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a/report.json").read_text() == to_json(gather(written.store, written.run.id))
