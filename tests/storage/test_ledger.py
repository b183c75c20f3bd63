"""The ledger: attempts are added, never changed; damaged ones are not believed."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.ledger import Adoption, Ledger
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

RecipeMaker = Callable[..., Recipe]

OUT = {"kept": hash_bytes(b"kept")}


def _file(store: Store, recipe: Recipe, name: str, stage: str = "clean.train") -> Path:
    return Path(store.location) / "ledger" / stage / recipe.key / name


def test_what_was_recorded_comes_back(store: Store, recipe: RecipeMaker) -> None:
    made = store.ledger.record(
        recipe(config={"a": [1, {"b": None}]}),
        OUT,
        rows={"kept": 3},
        placement={"workers": 2},
        observations={"seconds": 1.5},
        environment={"host": "h"},
    )
    assert made.number == 1
    fresh = Store.open(store.location).ledger
    assert fresh.latest(made.key) == made
    assert fresh.latest(made.key, "clean/train") == made
    assert fresh.attempts(made.key) == fresh.history("clean/train") == [made]
    assert fresh.recipes("clean/train") == [made.recipe]
    assert fresh.find(made.key[:8]) == [made]
    assert fresh.latest(hash_bytes(b"none")) is None
    assert made.stage == "clean/train"


def test_attempts_are_numbered_and_the_newest_counts(store: Store, recipe: RecipeMaker) -> None:
    for number in (1, 2, 3):
        made = store.ledger.record(recipe(), {"kept": hash_bytes(str(number).encode())})
        assert made.number == number
    latest = store.ledger.latest(recipe().key)
    assert latest is not None
    assert latest.number == 3
    second = store.ledger.attempt(recipe().key, 2)
    assert second is not None
    assert second.outputs == {"kept": hash_bytes(b"2")}


def test_racing_records_get_numbers_of_their_own(store: Store, recipe: RecipeMaker) -> None:
    made: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: made.extend(store.ledger.record(recipe(), OUT).number for _ in range(5))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 21))
    assert len(store.ledger.attempts(recipe().key)) == 20


@pytest.mark.parametrize(
    "stage", ["a", "a/b", "train/RNNsearch-50★", "download/x.y==1.0", "a b/é", "a%2Eb/c"]
)
def test_stages_of_any_name_come_back(store: Store, recipe: RecipeMaker, stage: str) -> None:
    made = store.ledger.record(recipe(stage), OUT)
    assert store.ledger.stages() == [stage]
    assert store.ledger.latest(made.key) == made
    folder = next(path for path in (Path(store.location) / "ledger").iterdir())
    assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%")


def test_the_ledger_of_shards_fans_out(store: Store, recipe: RecipeMaker) -> None:
    made = store.shards.record(recipe("tokenize"), OUT, rows={"kept": 1}, part_of=hash_bytes(b"stage"))
    assert (Path(store.location) / "shards" / "tokenize" / made.key[:2] / made.key / "recipe.json").exists()
    assert store.shards.keys("tokenize") == [made.key]
    assert store.shards.history("tokenize") == [made]
    store.shards.delete(made.key, "tokenize")
    assert store.shards.latest(made.key) is None
    assert store.shards.history("tokenize") == []


def test_history_is_in_order_of_time(
    store: Store, recipe: RecipeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in (5.0, 3.0, 4.0):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        store.ledger.record(recipe(config={"at": moment}), OUT)
    assert [attempt.recorded for attempt in store.ledger.history("clean/train")] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("harm", ["flipped", "truncated", "emptied", "other"])
def test_a_damaged_attempt_is_not_believed(store: Store, recipe: RecipeMaker, harm: str) -> None:
    first = store.ledger.record(recipe(), OUT)
    store.ledger.record(recipe(), {"kept": hash_bytes(b"newer")})
    path = _file(store, recipe(), "00002.json")
    data = path.read_bytes()
    changed = {
        "flipped": data.replace(hash_bytes(b"newer").encode(), hash_bytes(b"other").encode()),
        "truncated": data[: len(data) // 2],
        "emptied": b"",
        "other": b'["list"]',
    }[harm]
    assert changed != data
    path.chmod(0o644)
    path.write_bytes(changed)
    assert store.ledger.latest(recipe().key) == first
    assert store.ledger.damaged() == [str(path.relative_to(store.location))]
    assert store.ledger.record(recipe(), OUT).number == 3


def test_a_damaged_recipe_is_not_believed_and_heals_when_it_is_recorded_again(
    store: Store, recipe: RecipeMaker
) -> None:
    store.ledger.record(recipe(), OUT)
    path = _file(store, recipe(), "recipe.json")
    body = json.loads(path.read_bytes())
    body["stage"] = "clean/dev"
    path.chmod(0o644)
    path.write_text(json.dumps(body))
    fresh = Store.open(store.location)
    assert fresh.ledger.latest(recipe().key) is None
    assert fresh.ledger.recipes("clean/train") == []
    assert fresh.ledger.damaged() == [str(path.relative_to(store.location))]
    fresh.ledger.record(recipe(), OUT)
    assert fresh.ledger.damaged() == []
    assert len(fresh.ledger.attempts(recipe().key)) == 2


def test_an_adoption_stands_until_it_is_undone(store: Store, recipe: RecipeMaker) -> None:
    old = store.ledger.record(recipe(), OUT, rows={"kept": 3}, observations={"seconds": 9.0})
    new = recipe(code=hash_bytes(b"refactored"))
    adopted = store.ledger.adopt(new, old, "only a rename")
    assert adopted.adopted == Adoption(old.key, 1, "only a rename")
    assert (adopted.key, adopted.outputs, adopted.rows) == (new.key, old.outputs, old.rows)
    assert store.ledger.latest(new.key) == adopted
    store.ledger.undo(new.key, "clean/train", "it was not")
    assert store.ledger.latest(new.key) is None
    assert store.ledger.attempts(new.key) == [replace(adopted, withdrawn="undone")]
    assert store.ledger.latest(old.key) == old
    with pytest.raises(StoreError, match="nothing to undo"):
        store.ledger.undo(new.key, "clean/train")


def test_undoing_an_adoption_lets_an_own_attempt_stand_again(store: Store, recipe: RecipeMaker) -> None:
    old = store.ledger.record(recipe(), OUT)
    new = recipe(code=hash_bytes(b"new"))
    own = store.ledger.record(new, {"kept": hash_bytes(b"own")})
    store.ledger.adopt(new, old, "why")
    store.ledger.undo(new.key, "clean/train")
    assert store.ledger.latest(new.key) == own


@pytest.mark.parametrize(
    ("stage", "why", "message"),
    [
        ("clean/dev", "why", "cannot stand for"),
        ("clean/train", " ", "needs a reason"),
        ("same", "why", "nothing to adopt"),
    ],
)
def test_an_adoption_that_makes_no_sense_is_refused(
    store: Store, recipe: RecipeMaker, stage: str, why: str, message: str
) -> None:
    old = store.ledger.record(recipe(), OUT)
    new = recipe() if stage == "same" else recipe(stage, code=hash_bytes(b"new"))
    with pytest.raises(StoreError, match=message):
        store.ledger.adopt(new, old, why)


def test_a_thousand_entries_are_read_in_well_under_a_second(store: Store, recipe: RecipeMaker) -> None:
    for number in range(40):  # the records of one are copied: writing a thousand would flush for long
        store.ledger.record(recipe(f"stage-{number}", config={"n": 0}), OUT)
    for number in range(40):
        source = store.ledger.history(f"stage-{number}")[0]
        folder = Path(store.location) / "ledger" / f"stage-{number}"
        attempt = (folder / source.key / "00001.json").read_bytes()
        for copy in range(1, 25):
            other = recipe(f"stage-{number}", config={"n": copy, **{str(key): key for key in range(30)}})
            (folder / other.key).mkdir()
            (folder / other.key / "recipe.json").write_bytes(
                json.dumps(other.to_json(), sort_keys=True, separators=(",", ":")).encode()
            )
            (folder / other.key / "00001.json").write_bytes(attempt)
    ledger = Store.open(store.location).ledger
    began = time.process_time()
    assert sum(len(ledger.recipes(stage)) for stage in ledger.stages()) == 1000
    assert sum(len(ledger.history(stage)) for stage in ledger.stages()) == 1000
    assert time.process_time() - began < 0.8


def test_a_ledger_needs_no_store(store: Store, recipe: RecipeMaker) -> None:
    other = Ledger(store.backend, "elsewhere")
    key: Digest = other.record(recipe(), OUT).key
    assert other.latest(key) is not None
    assert store.ledger.latest(key) is None
