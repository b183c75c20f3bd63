"""What a run would do, told before anything runs, on stores whose attempts were written by hand."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rnnsearch.flows.command_plan import show_plan
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.plan import Cost, Planned, cost, plan, up_to
from rnnsearch.flows.recipe import Outputs, code_of, recipe_of
from rnnsearch.flows.settings import SettingsError, load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.terminal import duration
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.processes import ProcessIdentity, current_process
from rnnsearch.storage.store import Store


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the smoke profile seems to have run."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    _record_all(Store.open(folder))
    return folder


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Store:
    """A copy of that store."""
    return Store.open(shutil.copytree(filled, tmp_path / "store"))


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "empty")


def _record_all(
    store: Store, *overrides: str, seconds: float = 1.5, but: Mapping[str, str] | None = None
) -> None:
    """Record an attempt of every stage that has none; each output is named after its stage, or as `but` says."""
    known: dict[str, Outputs] = {}
    for stage in _stages(*overrides):
        recipe = recipe_of(stage, known)
        found = store.ledger.latest(recipe.key, stage.name)
        if found is None:
            text = (but or {}).get(stage.name, stage.name)
            store.put_code(code_of(stage.roots))
            outputs = {name: _artifact(store, f"{text}:{name}") for name in stage.outputs}
            found = store.ledger.record(recipe, outputs, observations={"seconds": seconds})
        known[stage.name] = found.outputs


def _artifact(store: Store, text: str) -> str:
    blob = store.put_bytes(text.encode())
    return store.write_artifact([FileEntry("file", blob.digest, blob.size, None)]).digest


def _stages(*overrides: str) -> tuple[Stage, ...]:
    return build(load_settings("smoke", overrides))


def _planned(store: Store, *overrides: str) -> dict[str, Planned]:
    return {each.stage: each for each in plan(_stages(*overrides), store)}


def _below(*names: str) -> set[str]:
    """These stages and all that wait for them, of the smoke profile."""
    found = set(names)
    for stage in _stages():
        if found & set(stage.upstream()):
            found.add(stage.name)
    return found


def test_in_an_empty_store_the_first_stages_never_ran_and_the_others_wait_for_theirs(empty: Store) -> None:
    planned = _planned(empty)
    assert not any(each.hit for each in planned.values())
    assert planned["download/lines-en"].reasons == ("not computed yet",)
    assert planned["ingest/lines"].reasons == (
        "depends on download/lines-en, download/lines-fr, download/lines-key",
    )
    assert {each.seconds for each in planned.values()} == {None}


def test_when_everything_is_there_everything_is_a_hit_with_what_it_took(store: Store) -> None:
    for each in _planned(store).values():
        assert (each.hit, each.reasons, each.seconds) == (True, (), 1.5), each.stage


def test_a_changed_setting_is_named_old_and_new_and_only_what_follows_waits(store: Store) -> None:
    planned = _planned(store, "select.budget.pairs=400")
    assert planned["threshold"].reasons == ("select.budget.pairs 500 → 400",)
    assert planned["select"].reasons == ("depends on threshold",)
    assert {name for name, each in planned.items() if not each.hit} == _below("threshold")
    assert all(each.seconds == 1.5 for each in planned.values())


def test_a_stage_that_made_the_same_bytes_leaves_what_follows_a_hit(store: Store) -> None:
    _record_all(store, "select.budget.pairs=400")  # its outputs are named as before
    assert all(each.hit for each in _planned(store, "select.budget.pairs=400").values())


def test_a_stage_that_made_other_bytes_is_seen_by_what_follows_as_another_input(store: Store) -> None:
    settings = "select.budget.pairs=400"
    known: dict[str, Outputs] = {each.stage: each.outputs or {} for each in _planned(store).values()}
    threshold = next(stage for stage in _stages(settings) if stage.name == "threshold")
    old, new = known["threshold"]["rows"], _artifact(store, "other rows")
    store.ledger.record(recipe_of(threshold, known), {"rows": new, "summary": known["threshold"]["summary"]})
    planned = _planned(store, settings)
    assert planned["threshold"].hit
    assert planned["select"].reasons == (f"input rows {old[:12]} → {new[:12]}",)


def _lose(store: Store, stage: str, output: str) -> None:
    """Delete the blob of an output."""
    outputs = _planned(store)[stage].outputs
    assert outputs is not None
    (entry,) = store.read_artifact(outputs[output]).files
    store.blobs.delete(entry.digest)


def test_a_lost_output_is_named_and_its_dependents_are_cached_if_it_comes_back_as_it_was(
    store: Store,
) -> None:
    _lose(store, "shortlist", "target")
    planned = _planned(store)
    assert planned["shortlist"].reasons == ("output target is missing or damaged",)
    assert {name for name, each in planned.items() if each.status == "miss"} == {"shortlist"}
    same = {name for name, each in planned.items() if each.status == "hit_if_same"}
    assert same == _below("shortlist") - {"shortlist"}
    assert {planned[name].reasons for name in same} == {("cached if the bytes of shortlist are the same",)}
    assert cost(list(planned.values())) == Cost(1.5, 1.5 * len(_below("shortlist")))


def test_what_gc_removed_is_computed_again_and_its_dependents_are_cached_if_it_is_the_same(
    store: Store,
) -> None:
    recipe = recipe_of(next(stage for stage in _stages() if stage.name == "shortlist"), _known(store))
    attempt = store.ledger.latest(recipe.key, "shortlist")
    assert attempt is not None
    _lose(store, "shortlist", "target")
    store.ledger.withdraw_collected(attempt)
    planned = _planned(store)
    assert (planned["shortlist"].status, planned["shortlist"].reasons) == ("miss", ("gc removed its output",))
    assert {each.status for name, each in planned.items() if name != "shortlist"} == {"hit", "hit_if_same"}


def test_below_a_lost_output_a_changed_setting_is_still_a_miss_with_its_reason(store: Store) -> None:
    _lose(store, "shortlist", "target")
    planned = _planned(store, "systems.rnnsearch.train.seed=5")
    assert (planned["train/rnnsearch"].status, planned["train/rnnsearch"].reasons) == (
        "miss",
        ("train.seed 0 → 5",),
    )
    assert planned["encode/20"].status == "hit_if_same"


def _known(store: Store) -> dict[str, Outputs]:
    return {each.stage: each.outputs or {} for each in _planned(store).values()}


@pytest.mark.parametrize("there", [False, True])
def test_a_plan_without_a_store_is_told_and_makes_none(
    there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "above" / "store"
    if there:
        place.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    show_plan(None, "smoke", [], str(place), False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"0 cached, {len(_stages())} to compute", "no run yet: `rnnsearch run`"]
    show_plan(None, "smoke", [], str(place), True)
    rows = json.loads(capsys.readouterr().out)
    assert {(row["status"], row["hit"]) for row in rows} == {("miss", False)}
    assert rows[0]["reasons"] == ["not computed yet"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plan_sweeps_nothing(store: Store, tmp_path: Path) -> None:
    dead = ProcessIdentity(**{**current_process().to_json(), "start": "1"}).token()
    files = []
    for folder in (tmp_path / "store" / "tmp", store.backend.cache / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{dead}.0")
        files[-1].touch()
    show_plan(None, "smoke", [], str(tmp_path / "store"), True)
    assert all(file.exists() for file in files)
    Store.open(tmp_path / "store")
    assert not any(file.exists() for file in files)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(StoreError, match="is no store: it holds letters"):
        show_plan(None, "smoke", [], str(tmp_path), False)


def test_one_lost_output_is_told_with_the_times_of_both_ends(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lose(store, "shortlist", "target")
    show_plan(None, "smoke", [], str(tmp_path / "store"), False)
    below, count = len(_below("shortlist")), len(_stages())
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{count - below} cached, {below - 1} cached if the bytes are the same, 1 to compute; "
        f"at least 1.5 s, at most {1.5 * below:.1f} s by the last times"
    )


def test_every_stage_comes_with_what_it_took_the_last_time_whatever_the_recipe(store: Store) -> None:
    _record_all(store, "shortlist.source_words=100", seconds=7.0, but={"shortlist": "another"})
    planned = _planned(store, "shortlist.source_words=200")
    assert planned["shortlist"].seconds == 7.0
    assert planned["encode/20"].seconds == 7.0
    assert planned["select"].seconds == 1.5


def test_a_language_that_the_tokeniser_has_no_rules_for_is_said(
    empty: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(None, "smoke", ["tokenize.target_language=sw"], str(empty.location), False)
    assert "note: Moses has no rules for Swahili (sw)" in capsys.readouterr().out
    show_plan(None, "smoke", [], str(empty.location), False)
    assert "note:" not in capsys.readouterr().out


def test_up_to_a_stage_are_the_stage_and_what_it_needs_in_order() -> None:
    stages = build(load_settings("smoke"))
    names = [stage.name for stage in up_to(stages, "gate")]
    assert names[-1] == "gate"
    assert {"clean/train", "duplicates", "normalize/test", "holdout", "ingest/lines"} < set(names)
    assert not {"tokenize/train", "gate-dev", "survey", "train/rnnsearch"} & set(names)
    with pytest.raises(UsageError, match=r"no stage 'gates'; it has download/lines-en, "):
        up_to(stages, "gates")


def test_planning_changes_nothing_in_the_store(store: Store, tmp_path: Path) -> None:
    before = _tree(tmp_path / "store")
    _planned(store, "select.budget.pairs=400")
    show_plan(None, "smoke", [], str(tmp_path / "store"), True)
    assert _tree(tmp_path / "store") == before


def _tree(folder: Path) -> dict[str, int]:
    """Every file with its modification time, but for what a host remembers of its own checks."""
    return {
        os.path.relpath(path, folder): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and "local" not in path.relative_to(folder).parts
    }


def test_the_plan_as_json_holds_every_stage_in_order_with_its_reasons(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(None, "smoke", ["select.budget.pairs=400"], str(tmp_path / "store"), True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in rows] == [stage.name for stage in _stages()]
    row = next(row for row in rows if row["stage"] == "threshold")
    assert row["shape"] == "fold"
    assert not row["hit"]
    assert row["reasons"] == ["select.budget.pairs 500 → 400"]


def test_the_plan_for_people_counts_hits_and_says_what_the_rest_will_cost(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(None, "smoke", ["evaluate.seed=7"], str(tmp_path / "store"), False)
    lines = capsys.readouterr().out.splitlines()
    count = len(_stages())
    assert lines[0].startswith("Smoke: ")
    assert f"{count} stages" in lines[0]
    assert lines[-1] == f"{count - 2} cached, 2 to compute; about 3.0 s by the last times"
    assert any(line.startswith("evaluate/rnnsearch") and "evaluate.seed 0 → 7" in line for line in lines)


def test_the_plan_of_one_stage_shows_that_stage_alone(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan("threshold", "smoke", ["select.budget.pairs=400"], str(tmp_path / "store"), True)
    assert [row["stage"] for row in json.loads(capsys.readouterr().out)] == ["threshold"]


def test_the_stage_asked_for_is_compared_key_by_key_with_its_nearest_recipe_even_if_it_must_wait(
    store: Store,
) -> None:
    settings = (
        "select.budget.pairs=400",
        "systems.rnnsearch.train.seed=5",
        "systems.rnnsearch.train.clip_norm=2",
    )
    asked = list(plan(_stages(*settings), store, "train/rnnsearch"))[-1]
    assert asked.reasons == (
        "depends on order/20, shortlist",
        "train.clip_norm 1.0 → 2.0",
        "train.seed 0 → 5",
    )
    assert _planned(store, *settings)["train/rnnsearch"].reasons == asked.reasons[:1]


def test_only_what_the_stage_asked_for_waits_for_is_looked_at(store: Store) -> None:
    looked = [each.stage for each in plan(_stages(), store, "ingest/lines")]
    assert looked == ["download/lines-en", "download/lines-fr", "download/lines-key", "ingest/lines"]


def test_a_stage_that_the_profile_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"smoke has no stage 'tokenise'; it has download/lines-en"):
        show_plan("tokenise", "smoke", [], str(tmp_path / "store"), False)


def test_the_sizes_that_publishers_declare_are_shown_before_anything_is_downloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(None, "wmt14", [], str(tmp_path / "store"), False)
    shown = capsys.readouterr().out
    giga = next(line for line in shown.splitlines() if line.startswith("giga "))
    assert "2,595.1 MB" in giga
    assert "22,519,560" in giga
    assert "780,000,000" in giga


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (89.9, "89.9 s"), (90, "1.5 min"), (5399, "90.0 min"), (7200, "2.0 h")],
)
def test_a_duration_is_told_in_the_unit_that_a_person_would_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text
