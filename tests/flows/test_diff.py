"""What `diff` says of two runs: causes apart from what follows from them, and numbers with their significance."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from written_run import TEST_SENTENCES, write_run

from rnnsearch.flows.command_diff import show_diff
from rnnsearch.flows.command_inspect import show_code
from rnnsearch.flows.diff import RunDifference, compare_runs
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.bleu import sentence_statistics
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import MissingError
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command, Lab, Ran


def compare(store: Store, first: str, second: str, sentences: int = 2) -> RunDifference:
    return compare_runs(RunView(store, first), RunView(store, second), sentences)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, str]:
    """A store with two runs: the second trained twice as long, and RNNsearch makes twice the mistakes."""
    folder = tmp_path_factory.mktemp("diff") / "store"
    first, second = write_run(folder), write_run(folder, updates=200, good=5)
    return second.store, first.run.id, second.run.id


@pytest.fixture(scope="module")
def found(written: tuple[Store, str, str]) -> RunDifference:
    return compare(*written)


def test_a_run_does_not_differ_from_itself(written: tuple[Store, str, str]) -> None:
    store, first, _ = written
    same = compare(store, first, first)
    assert {each.how for each in same.stages} == {"equal"}
    assert (same.settings, same.trainings, same.scores, same.sentences, same.notes) == ((), (), (), (), ())


def test_what_was_asked_for_stands_apart_from_what_followed(found: RunDifference) -> None:
    assert [tuple(each) for each in found.settings] == [
        ("systems.rnnencdec.train.updates", "100", "200"),
        ("systems.rnnsearch.train.updates", "100", "200"),
    ]
    differ = {each.stage: each for each in found.stages if each.how != "equal"}
    kinds = {stage.partition("/")[0] for stage in differ}
    assert kinds == {"train", "translate", "evaluate"}
    assert differ["train/rnnsearch"].reasons == ("train.updates 100 → 200",)
    assert differ["train/rnnsearch"].inputs == ()
    assert (differ["translate/rnnsearch/all"].reasons, differ["translate/rnnsearch/all"].inputs) == (
        (),
        ("model",),
    )
    assert differ["translate/rnnsearch/all"].how == "other bytes"
    assert differ["translate/rnnencdec/all"].how == "equal bytes"  # both trainings make the same mistakes


def test_curves_are_compared_by_their_ends(found: RunDifference) -> None:
    ends = {each.what: (each.first, each.second) for each in found.trainings if each.system == "rnnsearch"}
    assert ends["update"] == (100, 200)
    assert ends["loss_per_token"] == pytest.approx((2.4, 2.2))
    assert ends["dev_loss_per_token"] == pytest.approx((3.0, 2.7))  # at updates 80 and 200
    assert ends["dev_bleu"] == (None, None)


def test_a_worse_translation_is_significantly_worse_and_an_equal_one_is_not_listed(
    found: RunDifference,
) -> None:
    assert {each.system for each in found.scores} == {"rnnsearch"}
    score = next(each for each in found.scores if each.subset == "all")
    assert score.sentences == TEST_SENTENCES
    assert score.second < score.first
    assert score.low <= score.second - score.first <= score.high < 0
    assert score.p_value < 0.05


def test_the_sentences_that_changed_most_come_first_with_their_scores(
    written: tuple[Store, str, str], found: RunDifference
) -> None:
    assert len(found.sentences) == 2
    everything = compare(*written, sentences=1000).sentences
    changes = [abs(each.second_score - each.first_score) for each in everything]
    assert changes == sorted(changes, reverse=True)
    assert found.sentences == everything[:2]
    for each in everything:
        perfect = sentence_statistics(each.reference, each.reference)
        assert each.first != each.second
        assert 0 <= each.second_score < each.first_score <= 100
        assert (each.first_score == 100) == (sentence_statistics(each.first, each.reference) == perfect)


def test_another_test_set_is_said_and_not_scored(written: tuple[Store, str, str], tmp_path: Path) -> None:
    store, first, second = written
    old, new = (RunView(store, run) for run in (first, second))
    stage = "evaluate/rnnsearch"
    table = new.table(stage, "sentences")
    assert table is not None
    new.table = lambda *_: table.slice(1)  # type: ignore[method-assign]
    notes = compare_runs(old, new, 2).notes
    assert notes == ("rnnsearch is not compared: the two runs have other test sentences or references",)


def test_a_run_of_which_a_part_is_gone_is_still_compared(
    written: tuple[Store, str, str], tmp_path: Path
) -> None:
    store, first, second = written
    copy = Store.open(shutil.copytree(store.location, tmp_path / "store"))
    digest = RunView(copy, second).attempts["evaluate/rnnsearch"].outputs["sentences"]
    path = copy.backend.local_path(f"blobs/{digest[:2]}/{digest}")
    assert path is not None
    path.unlink()
    found = compare(copy, first, second)
    assert found.scores == ()
    assert found.trainings
    assert any("evaluate/rnnsearch" in note for note in found.notes)


def test_it_is_printed_for_people_and_as_json_for_programs(
    written: tuple[Store, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store, first, second = written
    show_diff(first, second, str(store.location), 1, as_json=False)
    said = capsys.readouterr().out
    assert f"{first} → {second}" in said
    assert "train.updates 100 → 200" in said
    assert "follows from model" in said
    show_diff(first, second, str(store.location), 1, as_json=True)
    body = json.loads(capsys.readouterr().out)
    assert body["settings"][0] == {
        "name": "systems.rnnencdec.train.updates", "first": "100", "second": "200",
    }  # fmt: skip
    assert {each["how"] for each in body["stages"]} == {"equal", "equal bytes", "other bytes"}
    assert body["scores"][0]["system"] == "rnnsearch"
    with pytest.raises(MissingError, match="there is no run nowhere"):
        show_diff(first, "nowhere", str(store.location), 1, as_json=False)


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, str]:
    """A store with two runs of the same settings, of which the second one's code was edited and partly moved."""
    folder = tmp_path_factory.mktemp("edited") / "store"
    runs = []
    for code, body in ((Digest("c1" * 32), "1"), (Digest("c2" * 32), "2")):
        runs.append(write_run(folder, code=code))
        names = ("clean", "lower") if body == "1" else ("clean", "moved")
        parts = {f"package.{names[0]}:run": f"{body}0 {body}1", f"package.{names[1]}:fold": "77 77"}
        fold = "def fold(word):\n    return word.lower()\n"
        lines = "".join(f"    total += {body} * {k}\n" for k in range(100))
        sources = {f"package.{names[0]}:run": f"def run(total):\n{lines}", f"package.{names[1]}:fold": fold}
        runs[-1].store.bring_code(code, parts, sources)
    return runs[-1].store, runs[0].run.id, runs[1].run.id


def test_the_lines_of_code_that_changed_are_shown_once_for_all_stages_and_the_rest_is_counted(
    edited: tuple[Store, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (change,) = compare(*edited).code
    assert change.name == "package.clean:run"
    assert {"gate", "train/rnnsearch", "evaluate/rnnencdec"} <= set(change.stages)
    assert "-    total += 1 * 99" in change.lines
    assert "+    total += 2 * 99" in change.lines
    store, first, second = edited
    show_diff(first, second, store.location, 0, as_json=False)
    said = capsys.readouterr().out
    assert f"package.clean:run  ({len(change.stages)} stages)\n@@ -1,101 +1,101 @@\n" in said
    assert f"... {len(change.lines) - 60} more lines" in said
    show_diff(first, second, store.location, 0, as_json=True)
    assert json.loads(capsys.readouterr().out)["code"][0]["lines"] == list(change.lines)


def test_that_code_was_not_stored_is_a_note(edited: tuple[Store, str, str]) -> None:
    store, first, _ = edited
    old = write_run(Path(store.location))
    found = compare(store, old.run.id, first)
    assert found.code == ()
    assert any("is not stored, so no lines are shown: ingest/river, " in note for note in found.notes)


def test_lineage_prints_the_code_that_made_a_number(
    edited: tuple[Store, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store, first, second = edited
    show_code("evaluate/rnnsearch", store.location, second, as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("# evaluate/rnnsearch  recipe ")
    assert "\n# package.clean:run\ndef run(total):\n    total += 2 * 0\n" in said
    assert "\n# package.moved:fold\ndef fold(word):\n" in said
    show_code("evaluate/rnnsearch", store.location, first, as_json=True)
    (body,) = json.loads(capsys.readouterr().out)
    assert body["run"] == first
    assert "total += 1 * 0\n" in body["sources"]["package.clean:run"]
    old = write_run(Path(store.location))
    show_code("evaluate/rnnsearch", store.location, old.run.id, as_json=False)
    assert "# its source is not stored" in capsys.readouterr().out


@pytest.mark.ray
@pytest.mark.slow
def test_of_real_stages_a_budget_is_the_cause_and_what_it_moved_follows(
    lab: "Lab", made: tuple[Path, "Ran"], store: Store
) -> None:
    runs = store.runs.ids()
    lab.run(store, "select.budget.pairs=400")
    found = compare(store, runs[-1], store.runs.ids()[-1])
    differ = {each.stage: each for each in found.stages if each.how != "equal"}
    assert list(differ) == ["threshold", "select", "overlap", "shortlist", "encode/20", "order/20"]
    assert differ["threshold"].reasons == ("select.budget.pairs 500 → 400",)
    assert differ["select"].inputs == ("threshold:rows",)
    assert [each.stage for each in differ.values() if each.reasons] == ["threshold"]
    assert all(each.inputs for name, each in differ.items() if name != "threshold")


@pytest.mark.slow
def test_the_command_needs_no_server_and_says_what_is_wrong(
    rnnsearch: "Command", written: tuple[Store, str, str]
) -> None:
    store, first, second = written
    done = rnnsearch("diff", first, second, "--store", store.location)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rnnsearch, river:" in done.stdout
    wrong = rnnsearch("diff", first, "nowhere", "--store", store.location)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "rnnsearch: there is no run nowhere; `rnnsearch runs` lists them\n"
