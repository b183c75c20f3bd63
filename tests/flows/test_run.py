"""The whole house, as a user meets it: the command line in processes of its own, on the smoke profile."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterStartTime
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings

from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command, PrefectServer, Smoke

pytestmark = [pytest.mark.flow, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NOISE = re.compile(r"INFO|WARNING|Traceback|DeprecationWarning|raylet|prefect\.", re.IGNORECASE)
PROGRAM = Path(sys.executable).with_name("rnnsearch")
SYSTEMS = ("rnnencdec", "rnnsearch")


def _json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _log(done: subprocess.CompletedProcess[str]) -> Path:
    named = re.search(r"^log: (.+)$", done.stderr, re.MULTILINE)
    assert named is not None, done.stderr
    return Path(named[1])


@pytest.fixture
def store(smoke: "Smoke", tmp_path: Path) -> Path:
    """A copy of the store: it may be changed."""
    return shutil.copytree(smoke.store, tmp_path / "store", ignore=shutil.ignore_patterns("reports", "logs"))


def test_a_run_ends_in_a_report_and_says_what_it_did_without_noise(smoke: "Smoke") -> None:
    assert smoke.done.returncode == 0, smoke.done.stderr
    assert smoke.done.stdout.count("\n") == 1
    page = Path(smoke.done.stdout.removeprefix("report: ").strip())
    assert page.is_file()
    assert "<h1" in page.read_text(encoding="utf-8")
    assert NOISE.search(smoke.done.stderr.replace("starting Prefect", "")) is None, smoke.done.stderr
    assert "Flow run" in _log(smoke.done).read_text(errors="replace")
    assert "+ evaluate/rnnsearch" in smoke.done.stderr
    assert re.search(r"^run \S+: 39 stages computed, 0 cached, in ", smoke.done.stderr, re.MULTILINE)


def test_a_second_run_finds_every_stage_cached_and_shows_it_on_a_terminal_without_noise(
    smoke: "Smoke", clean_environment: Mapping[str, str]
) -> None:
    store = Store.open(smoke.store)
    before = {stage: store.ledger.history(stage) for stage in store.ledger.stages()}
    ours, theirs = pty.openpty()
    arguments = [str(PROGRAM), "run", "--profile", "smoke", "--store", str(smoke.store)]
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=clean_environment
    ) as process:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 600)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # EIO: the other end is closed
                break
        process.kill()
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 0, text
    run = store.runs.list()[-1]
    assert run.state == "finished"
    assert len(run.uses) == 39
    assert [use.stage for use in run.uses if not use.hit] == []
    assert {stage: store.ledger.history(stage) for stage in store.ledger.stages()} == before
    assert "0 stages computed, 39 cached" in text
    assert len(re.findall(r"= \S+ +Cached", text)) == 39
    assert NOISE.search(text.replace("starting Prefect", "")) is None, text


def test_a_stage_that_fails_is_named_with_what_waits_for_it_and_the_exit_code_is_1(
    rnnsearch: "Command", prefect_server: "PrefectServer", tmp_path: Path
) -> None:
    store = tmp_path / "store"
    asked = ("run", "--profile", "smoke", "--store", store, "--set", "holdout.dev=20_000")
    done = rnnsearch(*asked, **prefect_server.environment)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "\n! holdout-keys " in done.stderr
    said = done.stderr[done.stderr.index("run ") :]
    assert "holdout-keys failed: TextError: holdout wants 20,040 keys or texts (20,000 dev, 40 test)" in said
    assert "not run, since they depend on it: holdout, clean/train, " in said
    assert said.endswith("run the same command again to resume\n")
    assert "Traceback" not in done.stderr
    assert "Traceback" in _log(done).read_text(errors="replace")
    (run,) = _json(rnnsearch("runs", "--store", store, "--json"))
    assert run["state"] == "failed"
    assert run["note"].startswith("holdout-keys: TextError: holdout wants")
    planned = _json(rnnsearch("plan", "-p", "smoke", "--store", store, "--json"))
    assert {each["stage"] for each in planned if each["hit"]} == {
        *(each["stage"] for each in planned if each["stage"].startswith(("download/", "ingest/", "survey")))
    }
    report = rnnsearch("report", "--store", store)
    assert report.returncode == 2
    assert "has finished; `rnnsearch run` makes one" in report.stderr
    flow_run, states = _on_the_server(prefect_server)
    assert flow_run.state_type == StateType.FAILED
    assert "holdout-keys: TextError: holdout wants" in str(flow_run.state.message)
    assert (states["ingest/lines"], states["holdout-keys"]) == ("Completed", "Failed")


def _on_the_server(server: "PrefectServer") -> tuple[Any, Mapping[str, str]]:
    """The flow run that began last (a schedule's are still to begin), and the names of the states of its tasks."""
    with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
        begun = FlowRunFilter(start_time=FlowRunFilterStartTime(is_null_=False))
        (run,) = client.read_flow_runs(flow_run_filter=begun, sort=FlowRunSort.START_TIME_DESC, limit=1)
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])))
        return run, {task.name: str(task.state_name) for task in tasks}


def test_plan_after_a_run_is_all_hits_for_people_and_for_programs(
    rnnsearch: "Command", smoke: "Smoke"
) -> None:
    planned = _json(rnnsearch("plan", "-p", "smoke", "--store", smoke.store, "--json"))
    assert [each["stage"] for each in planned if not each["hit"]] == []
    shown = rnnsearch("plan", "-p", "smoke", "--store", smoke.store).stdout
    assert shown.endswith("39 cached, 0 to compute\n")
    changed = rnnsearch("plan", "train/rnnsearch", "-p", "smoke", "--store", smoke.store, "--set",
                        "systems.rnnsearch.train.seed=5")  # fmt: skip
    assert "train.seed 0 → 5" in changed.stdout


def test_runs_lists_runs_shows_one_stage_by_stage_and_keeps_tags(rnnsearch: "Command", store: Path) -> None:
    (first, *_) = _json(rnnsearch("runs", "--store", store, "--json"))
    assert (first["state"], first["request"]["profile"]) == ("finished", "smoke")
    assert len(first["stages"]) == 39
    listed = rnnsearch("runs", "--store", store).stdout
    assert re.search(rf"^{first['run']} +smoke +finished +39 +0 ", listed, re.MULTILINE)
    one = rnnsearch("runs", first["run"], "--store", store).stdout
    assert re.search(r"^tokenize/train +computed .* 5 of 5 ", one, re.MULTILINE)
    assert _json(rnnsearch("runs", first["run"], "--store", store, "--tag", "paper", "--json"))["tags"] == [
        "paper"
    ]
    assert _json(rnnsearch("runs", "paper", "--store", store, "--json"))["run"] == first["run"]
    assert _json(rnnsearch("runs", "paper", "--store", store, "--untag", "paper", "--json"))["tags"] == []


def test_a_run_up_to_a_stage_stops_there_and_is_not_the_last_run_of_the_profile(
    rnnsearch: "Command", store: Path
) -> None:
    done = rnnsearch("run", "--profile", "smoke", "--store", store, "--until", "gate")
    assert done.returncode == 0, done.stderr
    assert "0 stages computed, " in done.stderr
    last = Store.open(store).runs.list()[-1]
    assert last.request["until"] == "gate"
    assert last.request["stages"][-1] == "gate"
    assert not any(use.stage.startswith(("train/", "tokenize/")) for use in last.uses)
    assert rnnsearch("translate", "--store", store, given="a cat\n").returncode == 0
    wrong = rnnsearch("run", "--profile", "smoke", "--store", store, "--until", "gates")
    assert (wrong.returncode, "no stage 'gates'" in wrong.stderr) == (2, True)


def test_lineage_goes_from_a_score_to_the_downloads_and_from_a_digest_to_its_maker(
    rnnsearch: "Command", smoke: "Smoke"
) -> None:
    (tree,) = _json(rnnsearch("lineage", "evaluate/rnnsearch", "--store", smoke.store, "--json"))
    text = json.dumps(tree)
    for stage in ("download/lines-en", "download/other-fr", "train/rnnsearch", "select", "normalize/test"):
        assert f'"{stage}"' in text, stage
    assert '"train/rnnencdec"' not in text
    by_digest = rnnsearch("lineage", tree["outputs"]["scores"][:12], "--store", smoke.store)
    assert by_digest.stdout.startswith("evaluate/rnnsearch")
    people = rnnsearch("lineage", "evaluate/rnnsearch", "--store", smoke.store).stdout
    assert "hypotheses" in people
    assert "download/lines-en" in people
    (run, *_) = _json(rnnsearch("runs", "--store", smoke.store, "--json"))
    ends = _json(rnnsearch("lineage", run["run"], "--store", smoke.store, "--json"))
    assert {f"evaluate/{system}" for system in SYSTEMS} <= {end["stage"] for end in ends}


def test_the_way_of_one_row_through_the_stages_is_told(rnnsearch: "Command", smoke: "Smoke") -> None:
    told = rnnsearch("lineage", "--row", "other:0", "--store", smoke.store)
    assert told.returncode == 0, told.stderr
    assert "ingest/other" in told.stdout or "holdout" in told.stdout
    assert "not_selected" in told.stdout or "kept" in told.stdout


def test_vocabularies_of_unequal_sizes_go_from_the_shortlists_through_training_to_the_scores(
    smoke: "Smoke",
) -> None:
    # protocol trap 44.
    store = Store.open(smoke.store)

    def made(stage: str, output: str) -> Path:
        return store.local_folder(store.ledger.history(stage)[-1].outputs[output])

    sizes = []
    for side in ("source", "target"):
        (file,) = store.read_artifact(store.ledger.history("shortlist")[-1].outputs[side]).files
        sizes.append(store.get_table(file.digest).num_rows + 2)  # </s> and [UNK]
    assert sizes[0] < sizes[1] == 302, "English has fewer words here than a shortlist may hold"
    for system in SYSTEMS:
        described = json.loads((made(f"train/{system}", "model") / "config.json").read_text())
        assert [described["source_size"], described["target_size"]] == sizes
        scores = store.read_artifact(store.ledger.history(f"evaluate/{system}")[-1].outputs["scores"])
        behaviour = json.loads(store.get_bytes(scores.files[0].digest))["behaviour"]
        assert behaviour["unknown_source"] < 0.3, "words of the other language would all be unknown"
        assert 0 < behaviour["unknown_reference"] < 0.3


def test_translate_gives_one_line_for_each_line_and_says_which_system_it_used(
    rnnsearch: "Command", smoke: "Smoke"
) -> None:
    given = "What a big egg!\n\nThe gardens are very small.\n"
    done = rnnsearch("translate", "--store", smoke.store, given=given)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    assert re.match(r"system (rnnsearch|rnnencdec) of run \S+, \d+\.\d\d BLEU on its test set\n", done.stderr)
    one = rnnsearch("translate", "--store", smoke.store, "--system", "rnnencdec", given="What?")
    assert one.stderr.startswith("system rnnencdec of run ")
    assert one.stdout.count("\n") == 1


def test_translate_takes_the_better_system_of_the_last_run(rnnsearch: "Command", smoke: "Smoke") -> None:
    store = Store.open(smoke.store)
    scores = {}
    for system in SYSTEMS:
        digest = store.ledger.history(f"evaluate/{system}")[-1].outputs["scores"]
        (file,) = store.read_artifact(digest).files
        scores[system] = json.loads(store.get_bytes(file.digest))["subsets"]["all"]["bleu"]["score"]
    done = rnnsearch("translate", "--store", smoke.store, given="")
    assert (done.returncode, done.stdout) == (0, "")
    best = max(
        SYSTEMS, key=lambda system: (scores[system], system == "rnnsearch")
    )  # a tie: the one that attends
    assert done.stderr.startswith(f"system {best} of run ")
    assert f"{scores[best]:.2f} BLEU" in done.stderr


def test_an_exported_system_translates_as_the_store_does(
    rnnsearch: "Command", smoke: "Smoke", tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    assert rnnsearch("export", folder, "--system", "rnnsearch", "--store", smoke.store).returncode == 0
    lines = "What a big egg!\nThe gardens are very small.\n"
    here = rnnsearch("translate", "--store", smoke.store, "--system", "rnnsearch", given=lines)
    there = rnnsearch("translate", "--model", folder, given=lines, cwd=tmp_path)
    assert there.stdout == here.stdout
    assert rnnsearch("export", folder, "--store", smoke.store).returncode == 2  # it is there already


def test_a_run_brought_into_another_store_is_as_good_as_if_it_had_run_there(
    rnnsearch: "Command", smoke: "Smoke", tmp_path: Path
) -> None:
    here = tmp_path / "here"
    done = rnnsearch("import", smoke.store, "--store", here)
    assert done.returncode == 0, done.stderr
    (run,) = _json(rnnsearch("runs", "--store", here, "--json"))
    assert done.stdout.strip() == run["run"]
    plan = _json(rnnsearch("plan", "--profile", "smoke", "--store", here, "--json"))
    assert all(each["hit"] for each in plan)
    assert len(plan) == len(run["stages"])
    assert rnnsearch("verify", "--store", here).returncode == 0
    again = rnnsearch("import", smoke.store, "--store", here)
    assert "0 new blobs" in again.stderr


def test_the_report_can_be_drawn_again_with_the_same_numbers(
    rnnsearch: "Command", smoke: "Smoke", tmp_path: Path
) -> None:
    (run, *_) = _json(rnnsearch("runs", "--store", smoke.store, "--json"))
    done = rnnsearch("report", run["run"], "--store", smoke.store, "--to", tmp_path / "drawn")
    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.strip())
    assert page.parent == tmp_path / "drawn"
    assert {path.suffix for path in page.parent.iterdir()} >= {".html", ".md", ".json"}
    first = Path(smoke.done.stdout.removeprefix("report: ").strip()).parent
    (name,) = [path.name for path in page.parent.glob("*.json")]
    assert (page.parent / name).read_bytes() == (first / name).read_bytes()


def test_a_store_in_good_health_verifies_and_has_nothing_to_collect(
    rnnsearch: "Command", smoke: "Smoke"
) -> None:
    assert rnnsearch("verify", "--store", smoke.store).returncode == 0
    planned = _json(rnnsearch("gc", "--store", smoke.store, "--json"))
    assert all(each["stage"] == "(no record)" for each in planned["stages"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--profile", "smokey"), "did you mean 'smoke'"),
        (("run", "--profile", "nowhere/mine.toml"), "there is no profile nowhere/mine.toml"),
        (("run", "--profile", "smoke", "--set", "search.beem=3"), "did you mean 'beam'"),
        (
            ("run", "--profile", "smoke", "--set", "systems.rnnsearch.train.updates=0"),
            "greater than 0, found 0",
        ),
        (("plan", "--profile", "smoke", "--set", "beam"), "section.key=value"),
        (("plan", "evaluate/nobody", "--profile", "smoke"), "has no stage 'evaluate/nobody'"),
        (("runs", "--store", "absent"), "absent"),
        (
            ("runs", "20200101-000000-aaaa"),
            "there is no run 20200101-000000-aaaa; `rnnsearch runs` lists them",
        ),
        (("runs", "--tag", "paper"), "a tag belongs to a run"),
        (("lineage", "nothing-of-this-name"), "nothing-of-this-name"),
        (("lineage", "--row", "lines"), "lines"),
        (("report", "20200101-000000-aaaa"), "there is no run 20200101-000000-aaaa"),
        (("translate", "--system", "moses"), "has no system 'moses'; it has rnnencdec, rnnsearch"),
        (("translate", "absent.txt"), "absent.txt cannot be read: No such file or directory"),
        (("translate", "--model", "absent"), "absent"),
        (("translate", "--search", "beem=3"), "did you mean 'beam'"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_2(
    rnnsearch: "Command", smoke: "Smoke", tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    place = () if "--store" in arguments else ("--store", smoke.store)
    done = rnnsearch(*arguments, *place, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("rnnsearch: ") == 1
    assert "Traceback" not in done.stderr


def test_text_that_is_not_utf_8_is_refused_with_its_line(rnnsearch: "Command", smoke: "Smoke") -> None:
    done = rnnsearch("translate", "--store", smoke.store, given=b"What?\n\xff\xfe\n")
    assert done.returncode == 2
    assert "line 2 of the input is not UTF-8 at byte 0" in done.stderr
    assert "Traceback" not in done.stderr
