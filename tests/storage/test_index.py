"""The ledger index returns the same records as the ledger, even if it is lost, damaged or out of date."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

RecipeMaker = Callable[..., Recipe]
STAGE = "clean/train"


def _history(location: str) -> list[Attempt]:
    """As a process that has just begun reads it."""
    return Store.open(location).ledger.history(STAGE)


def _reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the records that the store reads, appended as they are read."""
    read: list[str] = []
    real = store.backend.read_many

    def spy(names: list[str]) -> list[bytes | None]:
        read.extend(names)
        return real(names)

    monkeypatch.setattr(store.backend, "read_many", spy)
    return read


@pytest.fixture
def filled(store: Store, recipe: RecipeMaker) -> Store:
    for number in range(3):
        store.ledger.record(recipe(STAGE, config={"number": number}), {"kept": hash_bytes(b"kept")})
    assert len(store.ledger.history(STAGE)) == 3
    return store


def _file(store: Store) -> Path:
    (path,) = (store.backend.cache / "index").iterdir()
    return path


def test_records_that_are_indexed_are_not_read_again(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Store.open(filled.location)
    read = _reads(again, monkeypatch)
    assert again.ledger.history(STAGE) == filled.ledger.history(STAGE)
    assert again.ledger.recipes(STAGE) == filled.ledger.recipes(STAGE)
    assert read == []


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":7')),
        lambda path: path.write_bytes(b"\xff" * 100),
    ],
    ids=["deleted", "empty", "truncated", "a value changed", "noise"],
)
def test_a_lost_or_damaged_index_changes_no_answer_and_is_written_anew(
    filled: Store, harm: Callable[[Path], object]
) -> None:
    before, sound = _history(filled.location), _file(filled).read_bytes()
    harm(_file(filled))
    assert _history(filled.location) == before
    assert _file(filled).read_bytes() == sound


def test_an_index_that_is_behind_reads_what_is_new_alone(
    filled: Store, recipe: RecipeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _file(filled).read_bytes()
    new = filled.ledger.record(recipe(STAGE, config={"number": 3}), {})
    assert len(filled.ledger.history(STAGE)) == 4
    _file(filled).write_bytes(old)  # a slower writer was last
    again = Store.open(filled.location)
    read = _reads(again, monkeypatch)
    assert new in again.ledger.history(STAGE)
    assert len(read) == 2
    assert {name.split("/")[-2] for name in read} == {new.key}


def test_the_index_does_not_stand_for_a_record_that_was_damaged_or_deleted(filled: Store) -> None:
    first, second, third = _history(filled.location)
    root = Path(filled.location)
    for attempt, change in ((first, Path.unlink), (second, lambda path: path.write_bytes(b"{}"))):
        (path,) = (root / "ledger").rglob(f"{attempt.key}/00001.json")
        path.chmod(0o644)
        change(path)
    assert _history(filled.location) == [third]
    assert filled.ledger.history(STAGE) == [third]


def test_an_index_that_cannot_be_written_costs_time_alone(filled: Store) -> None:
    before = _history(filled.location)
    _file(filled).unlink()
    (filled.backend.cache / "index").rmdir()
    (filled.backend.cache / "index").touch()
    assert _history(filled.location) == before
