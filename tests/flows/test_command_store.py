"""The care of a store: what a repair says of what it repaired, and what may be adopted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rnnsearch.flows.command_store import adopt_stage, discard, say_repaired
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.plan import plan
from rnnsearch.flows.recipe import recipe_of
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store

STAGE: Stage = build(load_settings("smoke"))[0]
RECIPE = recipe_of(STAGE, {})

Recorder = Callable[..., Attempt]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def record(store: Store) -> Recorder:
    """Makes an attempt whose output holds a text, used by a run that is over."""

    def make(text: str = "bytes", recipe: Recipe = RECIPE) -> Attempt:
        blob = store.put_bytes(text.encode())
        artifact = store.write_artifact([FileEntry("file", blob.digest, blob.size, None)])
        attempt = store.ledger.record(recipe, {"file": artifact.digest})
        run = store.runs.start({"profile": "smoke", "overrides": ["search.beam=2"]})
        store.runs.record_stage(run.id, StageUse(recipe.stage, recipe.key, attempt.number, False, "", 0.0))
        store.runs.finish(run.id, "finished")
        return attempt

    return make


def _damage(store: Store, attempt: Attempt) -> None:
    (entry,) = store.read_artifact(attempt.outputs["file"]).files
    path = Path(store.location) / blob_name(entry.digest)
    path.chmod(0o644)
    path.write_bytes(b"BYTES")


@pytest.mark.parametrize(
    ("again", "code", "told"),
    [
        ("bytes", 0, "came back as it was"),
        ("other", 1, "came back with other bytes: file"),
        (None, 1, "did not come back: no run asks for this recipe any more"),
    ],
)
def test_a_repair_says_of_every_stage_whether_it_came_back_with_the_same_digest(
    store: Store,
    record: Recorder,
    capsys: pytest.CaptureFixture[str],
    again: str | None,
    code: int,
    told: str,
) -> None:
    _damage(store, record())
    requests, had = discard(store.location)
    assert requests == [("smoke", ("search.beam=2",))]  # the run that is to be repeated
    if again is not None:
        record(again)
    assert say_repaired(store.location, had) == code
    assert capsys.readouterr().err == f"{STAGE.name} {RECIPE.key[:12]} {told}\n"


def _is_hit(store: Store) -> bool:
    return next(iter(plan([STAGE], store))).hit


def test_the_newest_result_of_other_versions_stands_when_it_is_adopted_until_that_is_undone(
    store: Store, record: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    record("older", replace(RECIPE, python="3.8"))
    old = record("newer", replace(RECIPE, python="3.9"))
    assert not _is_hit(store)
    adopt_stage(STAGE.name, "smoke", [], store.location, why="the same bytes", undo=False)
    assert _is_hit(store)
    standing = store.ledger.latest(RECIPE.key, STAGE.name)
    assert standing is not None
    assert standing.outputs == old.outputs
    adopt_stage(STAGE.name, "smoke", [], store.location, why=None, undo=True)
    assert not _is_hit(store)
    assert "the adoption (the same bytes) is taken back" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "why", "told"),
    [
        (replace(RECIPE, python="3.9"), None, "say with --why"),
        (
            replace(RECIPE, config={"source": {"url": "elsewhere"}}),
            "never mind",
            "other attempts differ in config",
        ),
    ],
)
def test_nothing_is_adopted_without_a_reason_or_across_another_setting(
    store: Store, record: Recorder, recipe: Recipe, why: str | None, told: str
) -> None:
    record(recipe=recipe)
    with pytest.raises(UsageError, match=told):
        adopt_stage(STAGE.name, "smoke", [], store.location, why=why, undo=False)
    assert not _is_hit(store)


def test_a_damaged_result_is_not_adopted(store: Store, record: Recorder) -> None:
    _damage(store, record(recipe=replace(RECIPE, python="3.9")))
    with pytest.raises(UsageError, match="nothing can stand for"):
        adopt_stage(STAGE.name, "smoke", [], store.location, why="the same bytes", undo=False)
