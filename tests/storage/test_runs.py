"""Run records."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.errors import MissingError, StoreError
from rnnsearch.storage.runs import Run, RunState, StageUse
from rnnsearch.storage.store import Store

USE = StageUse("clean/train", hash_bytes(b"key"), 1, False, "it never ran", 1.5, 4, 2)


@pytest.fixture
def run(store: Store) -> Run:
    return store.runs.start({"profile": "demo", "set": ["a.b=1"]})


def test_a_run_tells_what_it_did(store: Store, run: Run) -> None:
    store.runs.record_stage(run.id, USE)
    store.runs.record_stage(run.id, USE._replace(stage="gate", hit=True))
    seen = Store.open(store.location).runs.get(run.id)
    assert seen.request == {"profile": "demo", "set": ["a.b=1"]}
    assert seen.uses == (USE, USE._replace(stage="gate", hit=True))
    assert seen.use("gate") == USE._replace(stage="gate", hit=True)
    assert seen.use("nothing") is None
    assert (seen.state, seen.ended) == ("running", None)


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_a_run_ends(store: Store, run: Run, state: RunState) -> None:
    store.runs.finish(run.id, state, "why")
    seen = store.runs.get(run.id)
    assert (seen.state, seen.note) == (state, "why")
    assert seen.ended is not None


def test_a_run_whose_process_is_gone_died(store: Store) -> None:
    code = "import sys; from rnnsearch.storage.store import Store; print(Store.open(sys.argv[1]).runs.start({}).id)"
    command = [sys.executable, "-c", code, store.location]
    run_id = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert store.runs.get(run_id).state == "died"


def test_tags_come_and_go(store: Store, run: Run) -> None:
    store.runs.tag(run.id, "paper")
    store.runs.tag(run.id, "best")
    store.runs.untag(run.id, "paper")
    assert store.runs.get(run.id).tags == {"best"}
    with pytest.raises(StoreError, match="has no tag 'paper'"):
        store.runs.untag(run.id, "paper")


def test_runs_are_listed_oldest_first_and_found(store: Store, run: Run) -> None:
    other = store.runs.start({})
    store.runs.tag(run.id, "paper")
    assert {each.id for each in store.runs.list()} == {run.id, other.id}
    assert store.runs.ids() == tuple(sorted([run.id, other.id]))
    assert store.runs.find("paper").id == run.id
    assert store.runs.find(run.id).id == run.id
    with pytest.raises(StoreError, match="give more of it"):
        store.runs.find("2")
    with pytest.raises(MissingError, match="there is no run zzz"):
        store.runs.find("zzz")
    with pytest.raises(MissingError):
        store.runs.get("zzz")
    with pytest.raises(MissingError):
        store.runs.record_stage("zzz", USE)


def test_runs_keep_their_order_when_the_clock_is_set_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for moment in (2e9, 1e9, 1e9, 1.5e9, 3e9):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        made.append(store.runs.start({"at": moment}).id)
    assert list(store.runs.ids()) == made
    assert [run.started for run in store.runs.list()] == [2e9, 1e9, 1e9, 1.5e9, 3e9]


def test_a_damaged_event_is_passed_over_and_named(store: Store, run: Run) -> None:
    store.runs.record_stage(run.id, USE)
    store.runs.finish(run.id, "finished")
    path = Path(store.location) / "runs" / run.id / "00001.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    assert store.runs.get(run.id).uses == ()
    assert store.runs.get(run.id).state == "finished"
    assert store.runs.damaged() == (f"runs/{run.id}/00001.json",)
