"""verify: every byte is looked at."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.code import code_digest
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store
from rnnsearch.storage.verify import discard_damaged, verify


@pytest.fixture
def attempt(store: Store, recipe: Callable[..., Recipe]) -> Attempt:
    files = [FileEntry(name, *store.put_bytes(name.encode()), None) for name in ("a", "b", "c")]
    shard = store.put_bytes(b"partial")
    store.shards.record(recipe("count"), {"partial": shard.digest})
    return store.ledger.record(recipe(), {"kept": store.write_artifact(files).digest})


def _harm(store: Store, digest: Digest, how: str) -> None:
    path = Path(store.location) / blob_name(digest)
    path.chmod(0o644)
    match how:
        case "delete":
            path.unlink()
        case "flip":
            times = path.stat()
            path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            state = store.backend.stat(blob_name(digest))
            assert state is not None
            store.blobs._seen.remember(digest, state)  # as if the ctime had been kept too


def test_a_sound_store_is_sound(store: Store, attempt: Attempt) -> None:
    orphan = store.put_bytes(b"orphan").digest
    steps: list[tuple[int, int]] = []
    found = verify(store, progress=lambda done, total: steps.append((done, total)))
    assert found.sound
    assert found.blobs == 6
    assert found.orphaned == (orphan,)
    assert steps == [(step, 6) for step in range(1, 7)]
    assert found.bytes == sum(store.blobs.size(digest) or 0 for digest in store.blobs.digests())


def test_what_is_missing_and_damaged_is_named_with_what_needs_it(store: Store, attempt: Attempt) -> None:
    _harm(store, hash_bytes(b"a"), "delete")
    _harm(store, hash_bytes(b"b"), "flip")
    _harm(store, hash_bytes(b"partial"), "delete")
    found = verify(store)
    assert not found.sound
    missing = {problem.digest: problem.places for problem in found.missing}
    assert {digest: [place.path for place in places] for digest, places in missing.items()} == {
        hash_bytes(b"a"): ["a"],
        hash_bytes(b"partial"): [""],
    }
    (damaged,) = found.damaged
    assert damaged.digest == hash_bytes(b"b")
    assert [(place.stage, place.output, place.path) for place in damaged.places] == [
        ("clean/train", "kept", "b")
    ]


def test_a_missing_manifest_is_missed(store: Store, attempt: Attempt) -> None:
    _harm(store, attempt.outputs["kept"], "delete")
    assert [problem.digest for problem in verify(store).missing] == [attempt.outputs["kept"]]


def test_damage_that_was_found_is_a_miss_from_then_on(store: Store, attempt: Attempt) -> None:
    _harm(store, hash_bytes(b"b"), "flip")
    assert store.intact(attempt.outputs["kept"])
    verify(store)
    assert not store.intact(attempt.outputs["kept"])


def test_discarding_leaves_what_a_run_can_make_again(store: Store, attempt: Attempt) -> None:
    _harm(store, hash_bytes(b"b"), "flip")
    record = Path(store.location) / "ledger" / "clean.train" / attempt.key / "00001.json"
    record.chmod(0o644)
    record.write_bytes(b"{}")
    found = verify(store)
    assert found.records == (f"ledger/clean.train/{attempt.key}/00001.json",)
    discard_damaged(store, found)
    again = verify(store)
    assert again.damaged == again.records == ()
    assert store.put_bytes(b"b").digest == hash_bytes(b"b")
    assert verify(store).sound


def test_what_was_taken_back_is_not_missed(store: Store, attempt: Attempt) -> None:
    store.ledger.withdraw_collected(attempt)
    _harm(store, hash_bytes(b"a"), "delete")
    assert verify(store).missing == ()


@pytest.mark.parametrize("folder", ["code", "sources"])
def test_damaged_parts_and_sources_of_code_are_named_and_written_anew(store: Store, folder: str) -> None:
    code = code_digest(["rnnsearch.storage.digests"])
    store.put_code(code)
    assert verify(store).sound
    path = Path(store.location) / folder / code.digest
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    found = verify(store)
    assert found.records == (f"{folder}/{code.digest}",)
    discard_damaged(store, found)
    assert verify(store).sound
    assert store.code(code.digest) is None
    store.put_code(code)
    assert store.code(code.digest) == (code.parts, code.sources)
