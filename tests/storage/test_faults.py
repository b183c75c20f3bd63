"""Faults of the disk: one clear error each, and nothing that was finished is lost."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.errors import StoreError, VanishedError, explained
from rnnsearch.storage.gc import collect
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store
from rnnsearch.storage.verify import verify

_NOBODY = 65534

_AS_NOBODY = f"""
import os, sys
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.gc import collect
from rnnsearch.storage.store import Store
os.setgid({_NOBODY}); os.setuid({_NOBODY})
try:
    store = Store.open(sys.argv[1])
    print(store.get_bytes(sys.argv[2]).decode(), store.intact(sys.argv[2]), len(store.runs.list()))
    store.put_bytes(b"new")
except StoreError as error:
    print(error)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_a_full_disk_is_told_and_loses_nothing(disk: Path) -> None:
    store = Store.open(disk / "store")
    kept = store.put_bytes(os.urandom(300_000))
    run = store.runs.start({})
    with pytest.raises(StoreError, match=r"the disk is full; free some space \(`rnnsearch gc`"):
        store.put_bytes(os.urandom(900_000))
    ballast = _fill(disk)
    with pytest.raises(StoreError, match="the disk is full"):
        store.runs.finish(run.id, "failed")
    with pytest.raises(StoreError, match="the disk is full"):
        store.put_file(ballast)
    assert store.blobs.intact(kept.digest)
    store.pins.release()
    assert list((disk / "store" / "tmp").iterdir()) == []
    ballast.unlink()
    again = Store.open(disk / "store")
    assert again.put_bytes(b"y" * 200_000).size == 200_000
    assert verify(again).sound


def test_gc_frees_a_disk_that_has_no_room_at_all(disk: Path) -> None:
    store = Store.open(disk / "store")
    store.put_bytes(os.urandom(300_000))
    store.pins.release()
    _fill(disk)
    assert collect(store).bytes == 300_000
    assert store.put_bytes(os.urandom(200_000)).size == 200_000


def _fill(disk: Path) -> Path:
    """Write a file that takes all the room there is."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 512)
    return ballast


def test_a_read_only_disk_can_be_read_and_tells_that_it_cannot_be_written(disk: Path) -> None:
    blob = Store.open(disk / "store").put_bytes(b"finished")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    store = Store.open(disk / "store")
    assert store.get_bytes(blob.digest) == b"finished"
    assert store.blobs.intact(blob.digest)
    assert verify(store).sound
    with pytest.raises(StoreError, match="the file system is read-only; mount it writable"):
        store.put_bytes(b"new")
    with pytest.raises(StoreError, match="read-only"), store.leases.hold("x"):
        pass
    with pytest.raises(StoreError, match="read-only"):
        Store.open(disk / "other")


def test_an_unmounted_disk_is_told_and_its_mount_point_stays_empty(disk: Path) -> None:
    store = Store.open(disk)
    blob = store.put_bytes(b"finished")
    subprocess.run(["umount", disk], check=True)
    for action in (
        lambda: store.put_bytes(b"new"),
        lambda: store.get_bytes(blob.digest),
        lambda: store.blobs.intact(blob.digest),
        lambda: store.runs.start({}),
        store.ledger.stages,
    ):
        with pytest.raises(VanishedError, match="vanished"):
            action()
    assert list(disk.iterdir()) == []
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_store_of_another_user_can_be_read_and_tells_that_it_cannot_be_written(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    digest = store.put_bytes(b"finished").digest
    folders = [tmp_path, *tmp_path.parents]
    modes = [folder.stat().st_mode for folder in folders]
    try:
        for folder in folders:
            folder.chmod(folder.stat().st_mode | 0o055)
        shown = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, store.location, digest],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    first, second = shown.stdout.splitlines() or ("", shown.stderr)
    assert first == "finished False 0"  # a blob is no artifact
    assert "permission was denied; give this user the right to read and write there" in second


def test_an_input_output_error_is_told_and_leaves_no_half_blob(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreError, match="input/output error; check the disk"):
        store.put_bytes(b"bytes")
    monkeypatch.undo()
    store.pins.release()
    assert store.blobs.size(hash_bytes(b"bytes")) is None
    assert list((Path(store.location) / "tmp").iterdir()) == []


def test_a_file_system_without_links_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(Path, "hardlink_to", refused)
    with pytest.raises(StoreError, match="needs hard links; choose another file system"):
        store.runs.start({})


@pytest.mark.parametrize(
    "number", [errno.EDQUOT, errno.ESTALE, errno.EMFILE, errno.ENAMETOOLONG, errno.ELOOP]
)
def test_every_error_says_what_to_do(number: int) -> None:
    message = str(explained(OSError(number, os.strerror(number)), "write x"))
    assert message.startswith("could not write x: ")
    assert len(message.split("; ")) == 2


def test_a_folder_in_the_place_of_a_blob_is_an_error(store: Store) -> None:
    digest = hash_bytes(b"x")
    (Path(store.location) / "blobs" / digest[:2] / digest).mkdir(parents=True)
    with pytest.raises(StoreError, match="could not"):
        store.put_bytes(b"x")


def test_no_writer_of_the_cache_makes_a_store_in_place_of_one_that_vanished(
    tmp_path: Path, recipe: Callable[..., Recipe]
) -> None:
    store = Store.open(tmp_path / "store")
    made = store.ledger.record(recipe(), {"kept": store.write_artifact([]).digest})
    blob = store.put_bytes(b"text")
    state = store.backend.stat(f"blobs/{blob.digest[:2]}/{blob.digest}")
    assert state is not None
    elsewhere = (tmp_path / "store").rename(tmp_path / "elsewhere")
    shutil.rmtree(elsewhere / "local")
    store.blobs._seen.forget(blob.digest)
    store.blobs._seen.remember(blob.digest, state)
    store.ledger._index._write("ledger/clean.train", {})
    for work in (
        lambda: temporary_path(store.backend.cache, store.backend.make_folder),
        lambda: store.local_folder(made.outputs["kept"]),
        lambda: store.local_file(blob.digest),
    ):
        with pytest.raises(StoreError):
            work()
    assert not (tmp_path / "store").exists()
