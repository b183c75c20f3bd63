"""One contract for every backend: of folders, and of buckets on moto's real server."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rnnsearch.storage.backends import Backend, Versioned
from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.errors import MissingError, StoreError, VanishedError
from rnnsearch.storage.local import LocalBackend
from rnnsearch.storage.processes import ProcessIdentity, current_process
from rnnsearch.storage.s3 import S3Backend
from rnnsearch.storage.store import Store, open_backend

_RACER = """
import sys, time
from pathlib import Path
from rnnsearch.storage.store import open_backend
location, gate, me, races = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
backend = open_backend(location, create=False)
gate.with_name(gate.name + me).touch()
while not gate.exists():
    time.sleep(0.001)
won = [str(race) for race in range(races) if backend.create_exclusive(f"race/{race}", me.encode())]
print(" ".join(won))
"""

_COUNTER = """
import sys
from rnnsearch.storage.store import open_backend
backend = open_backend(sys.argv[1], create=False)
done = 0
while done < int(sys.argv[2]):
    seen = backend.read_versioned("counter")
    if backend.replace_if("counter", str(int(seen.data) + 1).encode() + b" " * 20, seen.version):
        done += 1
"""


class BackendContract:
    """What `Store` relies on."""

    races = 8
    steps = 8

    def test_bytes_come_back(self, backend: Backend) -> None:
        backend.put("blobs/ab/x", b"one")
        assert backend.read("blobs/ab/x") == b"one"
        assert backend.digest("blobs/ab/x") == hash_bytes(b"one")
        backend.put("blobs/ab/x", b"two2")
        assert backend.read("blobs/ab/x") == b"two2"

    def test_an_empty_name_holds_no_bytes(self, backend: Backend) -> None:
        backend.put("empty", b"")
        assert backend.read("empty") == b""
        assert backend.create_exclusive("pin", b"")
        state = backend.stat("pin")
        assert state is not None
        assert state.size == 0

    def test_a_missing_name_is_told_apart(self, backend: Backend) -> None:
        assert backend.stat("no/such") is None
        assert backend.read_versioned("no/such") is None
        assert backend.delete("no/such") is False
        assert backend.move("no/such", "to") is False
        assert backend.replace_if("no/such", b"x", "17") is None
        with pytest.raises(MissingError):
            backend.read("no/such")
        with pytest.raises(MissingError):
            backend.digest("no/such")

    def test_a_name_is_created_once(self, backend: Backend) -> None:
        assert backend.create_exclusive("a/b", b"first")
        assert not backend.create_exclusive("a/b", b"second")
        assert backend.read("a/b") == b"first"

    def test_a_register_is_replaced_only_at_the_version_seen(self, backend: Backend) -> None:
        first = backend.replace_if("x", b"1", None)
        assert first is not None
        assert backend.read_versioned("x") == Versioned(b"1", first)
        assert backend.replace_if("x", b"2", None) is None
        second = backend.replace_if("x", b"2", first)
        assert second is not None
        assert backend.replace_if("x", b"3", first) is None
        assert backend.read_versioned("x") == Versioned(b"2", second)

    def test_a_writer_that_slept_through_many_versions_changes_nothing(self, backend: Backend) -> None:
        old = version = backend.replace_if("x", b"0", None)
        for step in range(1, 30):
            version = backend.replace_if("x", str(step).encode(), version)
            assert version is not None
        for slept in (None, old):
            assert backend.replace_if("x", b"late", slept) is None
            assert backend.read_versioned("x") == Versioned(b"29", version)

    def test_a_fingerprint_follows_the_bytes(self, backend: Backend) -> None:
        backend.put("x", b"one")
        before = backend.stat("x")
        backend.put("x", b"two")
        assert backend.stat("x") != before

    def test_the_states_of_a_folder_are_those_of_each_of_its_names(self, backend: Backend) -> None:
        for name in ("d/a", "d/b/c", "dd/e"):
            backend.put(name, name.encode())
        assert backend.states("d") == {name: backend.stat(name) for name in ("d/a", "d/b/c")}
        assert backend.states("none") == {}

    def test_names_and_children_are_sorted(self, backend: Backend) -> None:
        for name in ("d/b/2", "d/b/1", "d/a", "d.e/c", "dd"):
            backend.put(name, b"")
        assert backend.names("d") == ["d/a", "d/b/1", "d/b/2"]
        assert backend.children("d") == ["a", "b"]
        assert {"d", "d.e", "dd"} <= set(backend.children(""))
        assert backend.names("none") == backend.children("none") == []

    def test_many_names_are_read_in_order(self, backend: Backend) -> None:
        backend.put("a", b"1")
        backend.put("b", b"2")
        assert backend.read_many(["b", "missing", "a"]) == [b"2", None, b"1"]
        assert backend.read_many(["a"]) == [b"1"]
        assert backend.read_many([]) == []

    def test_a_blob_is_moved_and_deleted(self, backend: Backend) -> None:
        backend.put("a", b"1")
        assert backend.move("a", "trash/a")
        assert backend.stat("a") is None
        assert backend.read("trash/a") == b"1"
        assert backend.delete("trash/a")
        assert backend.stat("trash/a") is None

    def test_a_file_is_stored_and_fetched(self, backend: Backend, tmp_path: Path) -> None:
        data = os.urandom(3_000_000)
        source, copy = tmp_path / "source", tmp_path / "copy"
        source.write_bytes(data)
        backend.put_file("big", source, hash_bytes(data))
        backend.fetch("big", copy)
        assert copy.read_bytes() == data

    def test_a_file_that_changes_while_it_is_stored_is_refused(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        (tmp_path / "source").write_bytes(b"other bytes")
        with pytest.raises(StoreError, match="changed while"):
            backend.put_file("x", tmp_path / "source", hash_bytes(b"bytes"))
        assert backend.stat("x") is None

    @pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a"])
    def test_a_name_that_could_leave_the_store_is_refused(self, backend: Backend, name: str) -> None:
        with pytest.raises(StoreError, match="is no name in a store"):
            backend.put(name, b"")

    def test_of_racing_processes_exactly_one_creates_each_name(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        command = [sys.executable, "-c", _RACER, backend.location, str(gate)]
        racers = [
            subprocess.Popen([*command, str(me), str(self.races)], stdout=subprocess.PIPE, text=True)
            for me in range(3)
        ]
        while len(list(tmp_path.glob("gate?"))) < len(racers):
            threading.Event().wait(0.01)
        gate.touch()
        won = {me: racer.communicate()[0].split() for me, racer in enumerate(racers)}
        assert sorted(race for races in won.values() for race in races) == sorted(map(str, range(self.races)))
        for me, races in won.items():
            assert all(backend.read(f"race/{race}") == str(me).encode() for race in races)

    def test_no_step_of_racing_replacements_is_lost(self, backend: Backend) -> None:
        backend.replace_if("counter", b"0", None)
        command = [sys.executable, "-c", _COUNTER, backend.location, str(self.steps)]
        for racer in [subprocess.Popen(command) for _ in range(2)]:
            assert racer.wait() == 0
        seen = backend.read_versioned("counter")
        assert seen is not None
        assert int(seen.data) == 2 * self.steps

    def test_what_a_dead_process_left_is_swept_and_what_a_living_one_has_is_not(
        self, backend: Backend
    ) -> None:
        alive = current_process()
        dead = ProcessIdentity(alive.host, alive.boot, alive.namespace, alive.pid, "1")
        elsewhere = ProcessIdentity("other", alive.boot, alive.namespace, alive.pid, "1")
        for owner in (alive, dead, elsewhere):
            backend.create_exclusive(f"tmp/{owner.token()}.mine", b"half")
        assert backend.sweep() == [f"tmp/{dead.token()}.mine"]
        assert len(backend.children("tmp")) == 2


class TestLocalBackend(BackendContract):
    races = 200
    steps = 100

    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        (tmp_path / "store").mkdir()
        return LocalBackend(tmp_path / "store")

    def test_nothing_unfinished_is_left(self, backend: LocalBackend, tmp_path: Path) -> None:
        backend.put("a", b"1")
        backend.create_exclusive("a", b"2")
        version = backend.replace_if("b", b"2", None)
        for _ in range(20):
            version = backend.replace_if("b", b"2", version)
        assert len(list((tmp_path / "store" / "b").iterdir())) < 10
        assert list((tmp_path / "store" / "tmp").iterdir()) == []

    def test_a_blob_is_read_only(self, backend: LocalBackend, tmp_path: Path) -> None:
        backend.put("a", b"1")
        assert not (tmp_path / "store" / "a").stat().st_mode & 0o222

    def test_a_vanished_folder_is_not_made_again(self, backend: LocalBackend, tmp_path: Path) -> None:
        backend.put("a/b", b"1")
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        for action in (
            lambda: backend.put("a/b", b"1"),
            lambda: backend.create_exclusive("c", b"1"),
            lambda: backend.read("a/b"),
            lambda: backend.stat("a/b"),
            lambda: backend.children("a"),
        ):
            with pytest.raises(VanishedError, match="mount it or bring it back"):
                action()
        assert not (tmp_path / "store").exists()
        (tmp_path / "store").mkdir()  # such as the empty folder below an unmounted disk
        with pytest.raises(VanishedError):
            backend.put("a/b", b"1")


class TestS3Backend(BackendContract):
    @pytest.fixture
    def backend(self, bucket: str) -> S3Backend:
        return S3Backend(f"{bucket}/some/prefix")

    def test_a_store_works_in_a_bucket(
        self, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        store = Store.open(f"s3://{bucket}/store")
        blob = store.put_bytes(b"bytes")
        assert Store.open(f"s3://{bucket}/store").get_bytes(blob.digest) == b"bytes"
        assert store.local_file(blob.digest).read_bytes() == b"bytes"
        with store.leases.hold("a") as lease:
            lease.check()
            assert lease.epoch == 1

    def test_a_put_whose_answer_was_lost_is_known_as_ours(self, backend: S3Backend) -> None:
        call = backend._files.call_s3

        def lossy(method: str, **arguments: object) -> object:
            answer = call(method, **arguments)
            return call(method, **arguments) if method == "put_object" else answer  # as a client tries again

        backend._files.call_s3 = lossy
        try:
            assert backend.create_exclusive("x", b"1")
        finally:
            backend._files.call_s3 = call
        assert not backend.create_exclusive("x", b"1")

    def test_a_missing_bucket_is_named(self, bucket: str) -> None:
        with pytest.raises(MissingError, match="nosuchbucket"):
            open_backend("s3://nosuchbucket/x", create=True)


@pytest.mark.parametrize("location", ["gs://bucket/x", "http://host/x"])
def test_a_place_of_another_kind_is_refused(location: str) -> None:
    with pytest.raises(StoreError, match="give a folder or s3"):
        open_backend(location, create=True)
