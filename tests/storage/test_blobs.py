"""Blobs: written whole, verified when read, and damage is noticed."""

import os
import threading
from pathlib import Path

import pytest

from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.store import Store


@pytest.fixture
def digest(store: Store) -> Digest:
    return store.put_bytes(b"some bytes of a blob").digest


@pytest.fixture
def path(store: Store, digest: Digest) -> Path:
    return Path(store.location) / blob_name(digest)


def _flip(path: Path, *, keep_times: bool = True) -> None:
    """Change one bit in place, and keep size, inode and mtime."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))
    path.chmod(before.st_mode)
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_ino == before.st_ino


def test_a_blob_is_named_by_its_content(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    blob = store.put_file(tmp_path / "file")
    assert blob == store.put_bytes(b"x" * 3_000_000)
    assert blob.digest == hash_bytes(b"x" * 3_000_000)
    assert store.get_bytes(blob.digest) == b"x" * 3_000_000
    assert store.local_file(blob.digest).read_bytes() == b"x" * 3_000_000


def test_a_blob_is_written_once(store: Store, path: Path) -> None:
    before = path.stat()
    store.put_bytes(b"some bytes of a blob")
    assert path.stat() == before


def test_a_missing_blob_is_told(store: Store, digest: Digest, path: Path) -> None:
    path.unlink()
    assert not store.blobs.intact(digest)
    with pytest.raises(MissingError, match="run the stage that makes it again"):
        store.get_bytes(digest)
    with pytest.raises(MissingError):
        store.local_file(digest)


def test_a_flipped_bit_with_equal_size_inode_and_mtime_is_found_on_a_hit(
    store: Store, digest: Digest, path: Path
) -> None:
    assert store.blobs.intact(digest)
    _flip(path)
    assert not store.blobs.intact(digest)  # its ctime is another, so it is hashed again


@pytest.mark.parametrize("read", ["get_bytes", "local_file"])
def test_a_flipped_bit_that_no_stat_shows_is_found_on_read_and_then_on_every_hit(
    store: Store, digest: Digest, path: Path, read: str
) -> None:
    _flip(path)
    state = store.backend.stat(blob_name(digest))
    assert state is not None
    store.blobs._seen.remember(digest, state)  # as if even the ctime had been kept
    assert store.blobs.intact(digest)
    with pytest.raises(DamagedError, match="changed after it was stored"):
        getattr(store, read)(digest)
    assert not store.blobs.intact(digest)
    assert not Store.open(store.location).blobs.intact(digest)


@pytest.mark.parametrize("size", [0, 5])
def test_a_truncated_blob_is_found(store: Store, digest: Digest, path: Path, size: int) -> None:
    path.chmod(0o644)
    os.truncate(path, size)
    assert not store.blobs.intact(digest)
    assert not store.blobs.intact(digest, 20)
    with pytest.raises(DamagedError):
        store.get_bytes(digest)


def test_a_blob_of_another_size_than_recorded_is_not_intact(store: Store, digest: Digest) -> None:
    assert store.blobs.intact(digest, 20)
    assert not store.blobs.intact(digest, 21)


def test_a_damaged_blob_is_healed_by_writing_it_again(store: Store, digest: Digest, path: Path) -> None:
    _flip(path)
    assert store.put_bytes(b"some bytes of a blob").digest == digest
    assert store.get_bytes(digest) == b"some bytes of a blob"
    assert store.blobs.intact(digest)


def test_a_touched_blob_is_hashed_again_and_then_remembered(store: Store, digest: Digest, path: Path) -> None:
    os.utime(path)
    assert store.blobs.intact(digest)
    assert store.blobs._seen.matches(digest, store.backend.stat(blob_name(digest)))  # type: ignore[arg-type]


@pytest.mark.parametrize("harm", ["lost", "torn", "garbage", "read-only"])
def test_the_memory_of_what_was_hashed_may_be_lost_torn_or_unwritable(
    store: Store, digest: Digest, path: Path, harm: str
) -> None:
    log = store.backend.cache / "seen"
    text = log.read_bytes()
    match harm:
        case "lost":
            log.unlink()
        case "torn":
            log.write_bytes(text[:-5])
        case "garbage":
            log.write_bytes(b"\xff\x00 x\n" + text[:40] + b"\n\n")
        case "read-only":
            log.unlink()
            log.mkdir()  # root may write into a read-only file
    again = Store.open(store.location)
    assert again.blobs.intact(digest)
    _flip(path)
    assert not again.blobs.intact(digest)
    assert again.put_bytes(b"more").size == 4


def test_the_memory_is_shared_by_processes_and_stays_small(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rnnsearch.storage.seen._SMALL", 10)
    other = Store.open(store.location)
    digests = [store.put_bytes(str(number).encode()).digest for number in range(5)]
    monkeypatch.setattr(other.blobs, "examine", lambda _: "damaged")
    assert all(other.blobs.intact(digest) for digest in digests)  # without hashing
    for _ in range(9):
        for digest in digests:
            os.utime(Path(store.location) / blob_name(digest))
            assert store.blobs.intact(digest)
    fresh = Store.open(store.location)
    assert all(fresh.blobs.intact(digest) for digest in digests)
    assert len((store.backend.cache / "seen").read_text().splitlines()) <= 10


def test_many_threads_store_equal_blobs(store: Store) -> None:
    threads = [
        threading.Thread(target=lambda: [store.put_bytes(b"%d" % number) for number in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.blobs.digests())) == 20
    assert all(store.blobs.examine(digest) == "intact" for digest in store.blobs.digests())


def test_a_local_copy_of_a_bucket_is_verified(bucket: str) -> None:
    store = Store.open(f"s3://{bucket}")
    digest = store.put_bytes(b"bytes").digest
    copy = store.local_file(digest)
    copy.chmod(0o644)
    copy.write_bytes(b"other")
    assert store.local_file(digest).read_bytes() == b"bytes"
    store.backend.put(blob_name(digest), b"harm!")
    assert not store.blobs.intact(digest)
    with pytest.raises(DamagedError):
        store.get_bytes(digest)


def test_a_file_that_cannot_be_read_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothere"):
        store.put_file(tmp_path / "nothere")


def test_a_process_that_verifies_blobs_again_writes_nothing_into_the_memory(
    store: Store, digest: Digest
) -> None:
    log = store.backend.cache / "seen"
    before = log.read_bytes()
    fresh = Store.open(store.location)
    assert fresh.get_bytes(digest) == b"some bytes of a blob"
    assert log.read_bytes() == before


def test_the_sizes_of_all_blobs_are_those_of_each(store: Store) -> None:
    store.put_bytes(b"another")
    sizes = store.blobs.sizes()
    assert list(sizes) == list(store.blobs.digests())
    assert sizes == {digest: store.blobs.size(digest) for digest in sizes}
