"""A run carried from one store into another: everything it used, nothing twice, and whole or not at all."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.code import code_digest
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.gc import collect
from rnnsearch.storage.local import LocalBackend
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import Run, StageUse
from rnnsearch.storage.store import Store
from rnnsearch.storage.transfer import Carried, carry_run
from rnnsearch.storage.verify import verify

RecipeMaker = Callable[..., Recipe]

CODE = code_digest(["rnnsearch.storage.digests"])


def make_run(store: Store, recipe: RecipeMaker, *, state: Any = "finished", setting: str = "a") -> Run:
    """A map over two shards, and a fold over its output whose partial values no artifact names."""
    run = store.runs.start({"profile": "small", "overrides": [setting]})
    store.put_code(CODE)
    mapped = recipe("clean", code=CODE.digest, config={"setting": setting})
    shards = []
    for number in range(2):
        blob = store.put_bytes(f"shard {number} of {setting}".encode())
        part = replace(mapped, stage="clean shard", inputs={"shard": blob.digest})
        store.shards.record(part, {"kept": blob.digest}, part_of=mapped.key)
        shards.append(FileEntry(f"shard-{number:05}", blob.digest, blob.size, 1))
    first = store.ledger.record(mapped, {"kept": store.write_artifact(shards).digest}, rows={"kept": 2})
    folded = recipe("count", code=CODE.digest, inputs=first.outputs)
    for shard in shards:
        part = replace(folded, stage="count shard", inputs={"shard": shard.digest})
        store.shards.record(
            part, {"partial": store.put_bytes(shard.path.encode()).digest}, part_of=folded.key
        )
    value = store.put_bytes(b"two rows")
    total = store.write_artifact([FileEntry("total.json", value.digest, value.size, None)])
    second = store.ledger.record(folded, {"total": total.digest}, observations={"seconds": 3.0})
    for attempt in (first, second):
        use = StageUse(attempt.stage, attempt.key, attempt.number, False, "never computed", 1.5, 2, 2)
        store.runs.record_stage(run.id, use)
    if state != "running":
        store.runs.finish(run.id, state, "a note")
        store.runs.tag(run.id, "good")
    store.pins.release()
    return store.runs.get(run.id)


@pytest.fixture
def there(memory: Path) -> Store:
    return Store.open(memory / "there")


@pytest.fixture
def here(memory: Path) -> Iterator[Store]:
    store = Store.open(memory / "here")
    yield store
    store.close()


def _records(store: Store) -> dict[str, bytes]:
    """All that a store holds but what is a process's own, and the leases, whose epochs count attempts."""
    root = Path(store.location)
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in files.items() if not name.startswith(("local/", "leases/"))
    }


def test_a_run_comes_with_its_records_blobs_and_remembered_work(
    there: Store, here: Store, recipe: RecipeMaker
) -> None:
    run = make_run(there, recipe)
    carried = carry_run(there, here, run)
    here.close()
    assert carried.run == run.id
    assert carried.stages == 2
    assert here.runs.get(run.id) == run
    assert here.runs.find("good") == run
    for use in run.uses:
        assert here.ledger.latest(use.key, use.stage) == there.ledger.latest(use.key, use.stage)
    for stage in there.shards.stages():
        assert here.shards.history(stage) == there.shards.history(stage)
    assert here.code(CODE.digest) == (CODE.parts, CODE.sources)
    assert set(here.blobs.digests()) == set(there.blobs.digests())
    assert carried.blobs == len(set(there.blobs.digests()))
    assert verify(here).sound
    assert collect(here, keep_last=1).blobs == ()
    assert here.code(CODE.digest) == (CODE.parts, CODE.sources)


def test_what_is_there_is_not_copied_and_a_second_time_changes_nothing(
    there: Store, here: Store, recipe: RecipeMaker
) -> None:
    run = make_run(there, recipe)
    make_run(here, recipe, setting="another")
    had = set(here.blobs.digests())
    carried = carry_run(there, here, run)
    here.pins.release()
    assert carried.blobs == len(set(there.blobs.digests()) - had) > 0
    before = _records(here)
    assert carry_run(there, here, run) == Carried(run.id, 2, 0, 0)
    here.pins.release()
    assert _records(here) == before


def test_an_attempt_that_stands_here_with_the_same_outputs_is_the_runs_and_another_number_is_told(
    there: Store, here: Store, recipe: RecipeMaker
) -> None:
    run = make_run(there, recipe)
    own = make_run(here, recipe)
    other = here.put_bytes(b"of other bytes")
    artifact = here.write_artifact([FileEntry("total.json", other.digest, other.size, None)])
    clean, count = own.uses
    found = here.ledger.attempt(count.key, count.attempt, count.stage)
    assert found is not None
    here.ledger.withdraw_collected(found)
    here.ledger.record(found.recipe, {"total": artifact.digest})
    carry_run(there, here, run)
    uses = here.runs.get(run.id).uses
    assert [use.attempt for use in uses] == [clean.attempt, 3 + 1]  # the records before are 1, 2 and 3
    assert len(here.ledger.attempts(clean.key, clean.stage)) == 1


def test_wherever_a_transfer_breaks_off_there_is_no_run_and_the_next_one_ends_in_the_same_records(
    there: Store, memory: Path, recipe: RecipeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(there, recipe)
    left = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def change(self: LocalBackend, name: str, *arguments: Any) -> Any:
            nonlocal left
            if not name.startswith("leases/"):  # this process would wait for itself: it is not dead
                left -= 1
                if left == 0:
                    raise StoreError("cut")
            return original(self, name, *arguments)

        return change

    for change in ("create_exclusive", "put", "put_file"):
        monkeypatch.setattr(LocalBackend, change, counted(getattr(LocalBackend, change)))
    whole = Store.open(memory / "whole")
    left = before = 1_000_000
    carry_run(there, whole, run)
    changes = before - left
    assert changes > 30
    whole.close()
    expected = _records(whole)
    for number in range(1, changes + 1):
        store = Store.open(memory / str(number))
        left = number
        with pytest.raises(StoreError, match="cut"):
            carry_run(there, store, run)
        assert store.runs.list() == ()
        carry_run(there, store, run)
        store.close()
        assert _records(store) == expected, f"after a break at change {number}"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_run_that_ended_otherwise_brings_what_it_finished(
    there: Store, here: Store, recipe: RecipeMaker, state: str
) -> None:
    run = make_run(there, recipe, state=state)
    carry_run(there, here, run)
    assert here.runs.get(run.id).state == state
    assert here.runs.get(run.id).note == "a note"


def test_what_cannot_be_carried_is_told_and_leaves_no_run(
    there: Store, here: Store, recipe: RecipeMaker
) -> None:
    with pytest.raises(StoreError, match="has not ended"):
        carry_run(there, here, make_run(there, recipe, state="running"))
    run = make_run(there, recipe)
    with pytest.raises(StoreError, match="is in already"):
        carry_run(there, there, run)
    hurt = there.read_artifact(next(iter(there.ledger.history("clean")[-1].outputs.values()))).files[0]
    path = Path(there.location) / blob_name(hurt.digest)
    path.chmod(0o644)
    path.write_bytes(b"x" * hurt.size)
    with pytest.raises(StoreError, match=r"of clean is gone from .*, or damaged; run it there again"):
        carry_run(there, here, run)
    assert here.runs.list() == ()


def test_another_run_of_the_same_id_is_not_replaced(there: Store, here: Store, recipe: RecipeMaker) -> None:
    run = make_run(there, recipe)
    carry_run(there, here, replace(run, request={"profile": "another"}))
    with pytest.raises(StoreError, match="another run is called"):
        carry_run(there, here, run)
    assert here.runs.get(run.id).request == {"profile": "another"}


def test_a_run_goes_to_s3_and_comes_back_the_same(
    there: Store, here: Store, recipe: RecipeMaker, bucket: str
) -> None:
    run = make_run(there, recipe)
    cloud = Store.open(f"s3://{bucket}/store")
    carry_run(there, cloud, run)
    carry_run(cloud, here, cloud.runs.find(run.id))
    here.pins.release()
    assert here.runs.list() == there.runs.list() == (run,)
    for name, data in _records(there).items():
        if not name.startswith("runs/"):  # when a stage ended is not carried
            assert _records(here)[name] == data, name
