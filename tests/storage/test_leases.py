"""Leases: one holder, and a dead one does not hold for ever."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rnnsearch.storage import leases as module
from rnnsearch.storage.errors import DamagedError
from rnnsearch.storage.leases import Lease, LeaseBusyError, LeaseLostError, LeaseRecord
from rnnsearch.storage.processes import ProcessIdentity, current_process, life_of, parse_token
from rnnsearch.storage.store import Store

_HOLDER = """
import sys, time
from rnnsearch.storage.store import Store
with Store.open(sys.argv[1]).leases.hold("x", seconds=float(sys.argv[2])) as lease:
    print(lease.epoch, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease `x`."""
    command = [sys.executable, "-c", _HOLDER, store.location, "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def _write(store: Store, record: LeaseRecord) -> None:
    """Let another holder be written down."""
    name = module._name(record.name)
    data = module._seal(record)
    seen = store.backend.read_versioned(name)
    assert store.backend.replace_if(name, data, None if seen is None else seen.version)


def _elsewhere(seconds: float, counter: int = 0) -> LeaseRecord:
    holder = ProcessIdentity("other", "boot", "", 1, "1")
    return LeaseRecord(name="x", epoch=7, holder=holder, token="t", counter=counter, seconds=seconds)


def test_each_holder_has_an_epoch_of_its_own(store: Store) -> None:
    epochs = []
    for _ in range(3):
        with store.leases.hold("a/b") as lease:
            epochs.append(lease.epoch)
    assert epochs == [1, 2, 3]
    assert store.leases.held() == []


def test_a_living_holder_is_waited_for(store: Store, holder: subprocess.Popen[str]) -> None:
    seen: list[LeaseRecord] = []
    with (
        pytest.raises(LeaseBusyError, match=f"process {holder.pid} on "),
        store.leases.hold("x", patience=1.2, on_wait=seen.append),
    ):
        pass
    assert len(seen) >= 2
    assert {record.holder.pid for record in seen if record.holder} == {holder.pid}
    with pytest.raises(LeaseBusyError), store.leases.hold("x", patience=0):
        pass


def test_a_killed_holder_on_this_host_is_seen_within_two_seconds(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    killed: list[float] = []

    def kill() -> None:
        os.kill(holder.pid, signal.SIGKILL)  # it stays a zombie: its parent does not wait for it
        killed.append(time.monotonic())

    timer = threading.Timer(0.7, kill)
    timer.start()
    with store.leases.hold("x") as lease:
        assert time.monotonic() - killed[0] < 2
        assert lease.epoch == 2


def test_a_stopped_holder_loses_the_lease_after_its_time_and_learns_it(store: Store) -> None:
    command = [sys.executable, "-c", _HOLDER.replace("time.sleep(600)", _CHECKING), store.location, "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        with store.leases.hold("x", seconds=1) as lease:
            assert 0.9 < time.monotonic() - began < 4
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout.readline() == "lost\n"
            lease.check()
        assert process.wait() == 0
    left = store.leases.read("x")
    assert left is not None
    assert (left.epoch, left.holder) == (2, None)  # the late one did not write over it


_CHECKING = """
    try:
        while True:
            lease.check()
            time.sleep(0.05)
    except Exception as error:
        assert type(error).__name__ == "LeaseLostError", error
        print("lost", flush=True)
"""


def test_a_reused_process_id_does_not_keep_a_lease(store: Store) -> None:
    before = replace(current_process(), start="1")
    _write(store, LeaseRecord(name="x", epoch=3, holder=before, token="t", counter=5, seconds=1e6))
    with store.leases.hold("x", patience=0) as lease:
        assert lease.epoch == 4


def test_a_silent_holder_elsewhere_loses_the_lease_after_its_time(store: Store) -> None:
    _write(store, _elsewhere(seconds=1.0))
    began = time.monotonic()
    with store.leases.hold("x") as lease:
        assert 1.0 <= time.monotonic() - began < 3
        assert lease.epoch == 8


def test_a_beating_holder_elsewhere_keeps_the_lease(store: Store) -> None:
    beats = 0

    def beat(_: LeaseRecord) -> None:
        nonlocal beats
        beats += 1
        _write(store, _elsewhere(seconds=1.0, counter=beats))

    _write(store, _elsewhere(seconds=1.0))
    with pytest.raises(LeaseBusyError), store.leases.hold("x", patience=2.5, on_wait=beat):
        pass
    assert beats >= 4


def test_no_wall_clock_is_trusted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(store, _elsewhere(seconds=60))
    for shift in (-1e7, 1e7):

        def set_clock(_: LeaseRecord, shift: float = shift) -> None:
            now = time.time() + shift
            monkeypatch.setattr(time, "time", lambda: now)

        with pytest.raises(LeaseBusyError), store.leases.hold("x", patience=1.2, on_wait=set_clock):
            pass


def test_a_held_lease_gives_signs_of_life(store: Store) -> None:
    with store.leases.hold("x", seconds=0.5):
        first = store.leases.read("x")
        time.sleep(0.4)
        second = store.leases.read("x")
    assert first is not None
    assert second is not None
    assert second.counter > first.counter


def test_a_lease_that_another_took_is_known_as_lost(store: Store) -> None:
    with store.leases.hold("x") as lease:
        lease.check()
        _write(store, _elsewhere(seconds=60))
        with pytest.raises(LeaseLostError, match="epoch 1"):
            lease.check()
    assert store.leases.read("x") == _elsewhere(seconds=60)


def test_an_error_inside_releases_the_lease(store: Store) -> None:
    with pytest.raises(RuntimeError), store.leases.hold("x"):
        raise RuntimeError
    assert store.leases.held() == []


def test_a_store_that_is_gone_at_the_end_does_not_hide_what_ended_the_block(
    store: Store, tmp_path: Path
) -> None:
    def work() -> None:
        with store.leases.hold("x"):
            (tmp_path / "store").rename(tmp_path / "elsewhere")
            raise RuntimeError("the reason")

    with pytest.raises(RuntimeError, match="the reason"):
        work()


def test_threads_hold_one_after_the_other(store: Store) -> None:
    inside: list[Lease] = []
    most = 0

    def work() -> None:
        nonlocal most
        with store.leases.hold("x") as lease:
            inside.append(lease)
            most = max(most, len(inside))
            time.sleep(0.05)
            inside.remove(lease)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_process_is_told_by_more_than_its_number() -> None:
    me = current_process()
    assert life_of(me) == "alive"
    assert life_of(replace(me, start="1")) == "dead"
    assert life_of(replace(me, pid=2**22 - 7)) == "dead"
    assert life_of(replace(me, boot="another")) == "unknown"
    assert life_of(replace(me, namespace="another")) == "unknown"
    assert life_of(replace(me, host="another")) == "unknown"
    odd = replace(me, host="a.b~c d/é")
    assert parse_token(odd.token()) == odd
    assert not set("./") & set(odd.token())


def test_a_damaged_lease_is_told_from_a_held_one(store: Store, tmp_path: Path) -> None:
    with store.leases.hold("x"):
        pass
    newest = sorted((tmp_path / "store" / module._name("x")).iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(DamagedError, match="delete it"), store.leases.hold("x"):
        pass
