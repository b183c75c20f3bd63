"""`rnnsearch data` on a run that was written by hand."""

import json
from typing import Any

import pytest
from written_run import Bridge, write_run

from rnnsearch.flows.command_data import show_data
from rnnsearch.flows.errors import UsageError


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    return write_run(tmp_path_factory.mktemp("data") / "store")


def shown(capsys: pytest.CaptureFixture[str], written: Bridge, stage: str | None, rows: int = 3) -> Any:
    show_data(stage, None, rows, str(written.store.location), as_json=True)
    return json.loads(capsys.readouterr().out)


def test_without_a_stage_pairs_are_counted_down_with_reasons_and_the_survey(
    capsys: pytest.CaptureFixture[str], written: Bridge
) -> None:
    found = shown(capsys, written, None)
    left = {step["step"]: step["pairs"] for step in found["steps"]}
    assert (left["raw"], left["clean"], left["gated"]) == (200, 120, 118)
    assert {"step": "clean", "reason": "empty", "corpus": "river", "pairs": 7} in found["dropped"]
    assert {"corpus": "river", "check": "slipped", "pairs": 50, "of": 200} in found["survey"]
    show_data(None, None, 3, str(written.store.location), as_json=False)
    told = capsys.readouterr().out
    assert "pairs left after each step" in told
    assert "entities" in told


def test_a_stage_shows_pairs_from_all_over_and_what_it_dropped_with_its_text(
    capsys: pytest.CaptureFixture[str], written: Bridge
) -> None:
    found = shown(capsys, written, "clean/train")
    assert [row["line"] for row in found["kept"]] == [0, 40, 80]
    assert [(group["reason"], group["pairs"]) for group in found["dropped"]] == [
        ("empty", 7),
        ("duplicate", 3),
    ]
    examples = found["dropped"][0]["examples"]
    assert [row["line"] for row in examples] == [0, 1, 2]
    assert all(row["source"] and row["target"] for row in examples)
    show_data("clean/train", None, 3, str(written.store.location), as_json=False)
    assert "clean/train dropped 7 as empty" in capsys.readouterr().out


def test_a_dropped_pair_is_shown_with_its_partner(
    capsys: pytest.CaptureFixture[str], written: Bridge
) -> None:
    (group,) = shown(capsys, written, "gate")["dropped"]
    assert [row["partner"] for row in group["examples"]] == ["river:1000", "river:1000"]
    show_data("gate", None, 3, str(written.store.location), as_json=False)
    told = capsys.readouterr().out
    assert told.count("partner") == 1  # of the table with partners only
    assert "river:1000" in told


@pytest.mark.parametrize("stage", ["train/rnnsearch", "absent"])
def test_a_stage_without_text_is_refused_with_those_that_have_some(written: Bridge, stage: str) -> None:
    with pytest.raises(UsageError, match=r"stages with text: .*clean/train"):
        show_data(stage, None, 3, str(written.store.location), as_json=False)
