"""The whole house, as a user meets it: the command line in processes of its own, on the smoke profile."""

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.flow, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

NOISE = re.compile(r"INFO|WARNING|Traceback|DeprecationWarning|raylet|prefect\.", re.IGNORECASE)


class Smoke(NamedTuple):
    """A run that finished, and its store."""

    done: subprocess.CompletedProcess[str]
    store: Path


@pytest.fixture(scope="session")
def smoke(rnnsearch: "Command", tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    store = tmp_path_factory.mktemp("smoke") / "store"
    return Smoke(rnnsearch("run", "--profile", "smoke", "--store", store, timeout=850), store)


def test_a_run_ends_in_a_report_and_says_what_it_did_without_noise(smoke: Smoke) -> None:
    assert smoke.done.returncode == 0, smoke.done.stderr
    page = Path(smoke.done.stdout.removeprefix("report: ").strip())
    assert page.is_file()
    assert "<h1" in page.read_text(encoding="utf-8")
    assert NOISE.search(smoke.done.stderr.replace("starting Prefect", "")) is None, smoke.done.stderr
    log = re.search(r"^log: (.+)$", smoke.done.stderr, re.MULTILINE)
    assert log is not None
    assert "Flow run" in Path(log[1]).read_text(errors="replace")
    assert "+ evaluate/rnnsearch" in smoke.done.stderr


def test_a_second_run_finds_every_stage_cached_and_changes_no_artifact(
    rnnsearch: "Command", smoke: Smoke
) -> None:
    store = Store.open(smoke.store)
    before = {stage: store.ledger.history(stage)[-1].outputs for stage in store.ledger.stages()}
    again = rnnsearch("run", "--profile", "smoke", "--store", smoke.store)
    assert again.returncode == 0, again.stderr
    run = store.runs.list()[-1]
    assert run.state == "finished"
    assert [use.stage for use in run.uses if not use.hit] == []
    assert {stage: store.ledger.history(stage)[-1].outputs for stage in store.ledger.stages()} == before
    assert re.search(r"0 stages computed, \d+ cached", again.stderr)


def test_plan_runs_and_lineage_tell_of_the_run(rnnsearch: "Command", smoke: Smoke) -> None:
    planned = json.loads(rnnsearch("plan", "-p", "smoke", "--store", smoke.store, "--json").stdout)
    assert [each["stage"] for each in planned if not each["hit"]] == []
    runs = json.loads(rnnsearch("runs", "--store", smoke.store, "--json").stdout)
    assert runs[0]["state"] == "finished"
    assert {use["stage"] for use in runs[0]["stages"]} == {each["stage"] for each in planned}
    (tree,) = json.loads(rnnsearch("lineage", "evaluate/rnnsearch", "--store", smoke.store, "--json").stdout)
    text = json.dumps(tree)
    assert all(f'"{stage}"' in text for stage in ("download/lines-en", "train/rnnsearch", "select"))
    by_digest = rnnsearch("lineage", tree["outputs"]["scores"][:12], "--store", smoke.store)
    assert "evaluate/rnnsearch" in by_digest.stdout
    row = rnnsearch("lineage", "--row", "other:0", "--store", smoke.store)
    assert "not_selected" in row.stdout or "kept" in row.stdout


def test_translate_gives_one_line_for_each_line_and_says_which_system_it_used(
    rnnsearch: "Command", smoke: Smoke
) -> None:
    done = rnnsearch(
        "translate", "--store", smoke.store, given="What a big egg!\n\nThe gardens are very small.\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
    assert re.match(r"system (rnnsearch|rnnencdec) of run ", done.stderr)
    one = rnnsearch("translate", "--store", smoke.store, "--system", "rnnencdec", given="What?\n")
    assert "system rnnencdec" in one.stderr


def test_an_exported_system_translates_as_the_store_does(
    rnnsearch: "Command", smoke: Smoke, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    assert rnnsearch("export", folder, "--system", "rnnsearch", "--store", smoke.store).returncode == 0
    lines = "What a big egg!\nThe gardens are very small.\n"
    here = rnnsearch("translate", "--store", smoke.store, "--system", "rnnsearch", given=lines)
    there = rnnsearch("translate", "--model", folder, given=lines, cwd=tmp_path)
    assert there.stdout == here.stdout
    assert rnnsearch("export", folder, "--store", smoke.store).returncode == 2  # it is there already


def test_a_store_in_good_health_verifies_and_has_nothing_to_collect(
    rnnsearch: "Command", smoke: Smoke
) -> None:
    assert rnnsearch("verify", "--store", smoke.store).returncode == 0
    planned = json.loads(rnnsearch("gc", "--store", smoke.store, "--json").stdout)
    assert all(each["stage"] == "(no record)" for each in planned["stages"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--profile", "smokey"), "did you mean 'smoke'"),
        (("run", "--profile", "smoke", "--set", "search.beem=3"), "did you mean 'beam'"),
        (("plan", "--profile", "smoke", "--set", "beam"), "section.key=value"),
        (("plan", "evaluate/nobody", "--profile", "smoke"), "has no stage 'evaluate/nobody'"),
        (("runs", "--store", "absent"), "absent"),
        (("lineage", "nothing-of-this-name"), "nothing-of-this-name"),
        (("deploy", "--profile", "smoke"), "PREFECT_API_URL"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_2(
    rnnsearch: "Command", smoke: Smoke, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    place = () if "--store" in arguments else ("--store", smoke.store)
    done = rnnsearch(*arguments, *place, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_text_that_is_not_utf_8_is_refused_with_its_line(rnnsearch: "Command", smoke: Smoke) -> None:
    done = rnnsearch("translate", "--store", smoke.store, given=b"What?\n\xff\xfe\n")
    assert done.returncode == 2
    assert "line 2 of the input is not UTF-8" in done.stderr
