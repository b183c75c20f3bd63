"""Disks that are full, read-only, forbidden, gone or broken, under a run: one clear error, and nothing is lost.

Each test takes the fault away and runs once more: that run ends with the bytes of an undisturbed one and does nothing
again that was finished.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from arena import Arena, Case, Ended, until
from stores import Finished, Reference, done_again, finished, left_over, look, outputs

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

Opening = Callable[[str], Path | None]
root = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a disk or become another user")


def told(ended: Ended, found: str, remedy: str) -> None:
    """One clear error: what was found, and what to do; no traceback."""
    print(ended.err[-1500:])
    assert ended.code in (1, 2), ended
    assert found in ended.err, ended
    assert remedy in ended.err, ended
    assert "Traceback" not in ended.err, ended


def goes_on(arena: Arena, case: Case, reference: Reference, before: Finished) -> None:
    """A run without the fault ends as if there had been none."""
    again = arena.run(case)
    assert again.code == 0, again
    assert done_again(before, finished(case.store)) == []
    assert outputs(case.store) == reference.outputs
    assert look(case.store).wrong == ()
    assert left_over(case) == []


def mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, capture_output=True)


@pytest.fixture
def disk(arena: Arena) -> Iterator[Callable[[str, Path | None], Case]]:
    """A case whose store is a disk of its own, filled with an opening."""
    cases = []

    def make(size: str, opening: Path | None) -> Case:
        case = arena.case()
        case.store.mkdir()
        try:
            mount(f"size={size}", case.store)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no small disk can be mounted here: {error}")
        cases.append(case)
        if opening is not None:
            shutil.copytree(opening, case.store, dirs_exist_ok=True, symlinks=True)
        return case

    yield make
    for case in cases:
        case.settle()
        subprocess.run(["umount", "--lazy", case.store], check=True)


def kilobytes(folder: Path) -> int:
    """What a copy of a folder takes on a disk of its own."""
    return sum(-(-path.lstat().st_size // 4096) * 4 for path in folder.rglob("*") if path.is_file())


@root
@pytest.mark.parametrize(
    ("stage", "room"),
    [  # kilobytes
        pytest.param("nothing", 40, marks=pytest.mark.sample),
        ("order/20", 60),
        ("train/rnnsearch", 300),
        ("train/rnnsearch", 900),
        ("all done", 100),
    ],
)
def test_a_full_disk_is_told_and_a_rerun_with_room_completes(
    opening: Opening, disk: Callable[[str, Path | None], Case], arena: Arena, reference: Reference,
    stage: str, room: int,
) -> None:  # fmt: skip
    start = opening(stage)
    case = disk(f"{room + (kilobytes(start) if start else 0)}k", start)
    ended = arena.run(case)
    told(ended, "the disk is full", "free some space")
    assert case.settle() == []
    before = finished(case.store)
    subprocess.run(["mount", "-o", "remount,size=300m", case.store], check=True)
    goes_on(arena, case, reference, before)


@root
def test_a_read_only_disk_is_told(
    opening: Opening, disk: Callable[[str, Path | None], Case], arena: Arena, reference: Reference
) -> None:
    case = disk("100m", opening("gate"))
    before = finished(case.store)
    subprocess.run(["mount", "-o", "remount,ro", case.store], check=True)
    told(arena.run(case), "the file system is read-only", "mount it writable, or choose another store")
    subprocess.run(["mount", "-o", "remount,rw", case.store], check=True)
    goes_on(arena, case, reference, before)


@pytest.mark.parametrize(
    "forbidden",
    [
        pytest.param(".", marks=pytest.mark.sample),
        "local/*/logs",
        "runs",
        "ledger",
        "blobs/*",
        "leases",
        "tmp",
        "work",
    ],
)
def test_a_folder_without_permission_is_told(
    opening: Opening, arena: Arena, reference: Reference, forbidden: str
) -> None:
    case = arena.case(opening("download/lines-en"))
    before = finished(case.store)
    if forbidden == ".":
        shutil.rmtree(case.store / "tmp", ignore_errors=True)  # it is to be made anew
    if forbidden in ("tmp", "work"):
        (case.store / forbidden).mkdir(exist_ok=True)
    folders = [case.store] if forbidden == "." else sorted(case.store.glob(forbidden))
    assert folders
    for folder in folders:
        folder.chmod(0o555)
    ended = arena.start(case, mortal=True).wait()
    told(
        ended,
        "permission was denied",
        "give this user the right to read and write there, or choose another store",
    )
    for folder in folders:
        folder.chmod(0o755)
    goes_on(arena, case, reference, before)


@pytest.mark.parametrize(
    ("stage", "changes"),  # since the stage began
    [
        pytest.param("gate", 20, marks=pytest.mark.sample),
        ("ingest/lines", 10),
        ("translate/rnnsearch/all", 30),
        ("train/rnnsearch", 40),
    ],
)
def test_a_store_that_vanishes_is_told_and_nothing_is_made_in_its_place(
    opening: Opening, arena: Arena, reference: Reference, stage: str, changes: int
) -> None:
    case = arena.case(opening(stage))
    run = arena.start(case)
    until(f"{stage:<32} started", run)
    begun = len(case.changes())
    while len(case.changes()) < begun + changes:
        assert not run.ended(), run.wait()
        time.sleep(0.002)
    elsewhere = case.store.with_name("elsewhere")
    case.store.rename(elsewhere)
    ended = run.wait()
    told(ended, "vanished, or another one is in its place", "mount it or bring it back, then run again")
    assert case.settle() == []
    assert not case.store.exists(), sorted(case.store.rglob("*"))
    elsewhere.rename(case.store)
    goes_on(arena, case, reference, finished(case.store))


DRIVER_FAULTS = [
    pytest.param("fsync /ledger/ 0", "gate", marks=pytest.mark.sample),
    ("fsync /tmp/ 3", "gate"),
    ("link /leases/ 0", "gate"),
    ("link /runs/ 0", "gate"),
    ("rename /blobs/ 0", "download/lines-en"),
    ("write /fetched/ 0", "download/lines-en"),
    ("read /blobs/ 3", "gate"),
    ("unlink /tmp/ 2", "gate"),
    ("write /reports/ 0", "all done"),
]
WORKER_FAULTS = [
    ("fsync /tmp/ 4", "gate"),
    ("link /shards/ 1", "gate"),
    ("read /blobs/ 1", "translate/rnnsearch/all"),
    ("fsync /checkpoints/ 0", "train/rnnsearch"),
    ("write /messages 0", "train/rnnsearch"),
]
ERROR = "reported an input/output error"
REMEDY = "check the disk or the network mount, then run `rnnsearch verify`"


@pytest.mark.parametrize(("plan", "stage"), DRIVER_FAULTS)
def test_an_input_output_error_in_the_driver_is_told(
    opening: Opening, arena: Arena, reference: Reference, plan: str, stage: str
) -> None:
    if arena.preload is None:
        pytest.skip("no compiler: a broken disk cannot be played")
    case = arena.case(opening(stage))
    (case.folder / "eio").write_text(plan)
    ended = arena.start(case, environment={"CHAOS_EIO": str(case.folder / "eio")}).wait()
    told(ended, ERROR, REMEDY)
    assert case.settle() == []
    goes_on(arena, case, reference, finished(case.store))


@pytest.mark.parametrize(("plan", "stage"), WORKER_FAULTS)
def test_an_input_output_error_in_a_worker_is_told(
    opening: Opening, arena: Arena, reference: Reference, plan: str, stage: str
) -> None:
    if arena.preload is None:
        pytest.skip("no compiler: a broken disk cannot be played")
    case = arena.case(opening(stage))
    arena.broken_disk.write_text(plan)
    try:
        ended = arena.run(case)
    finally:
        arena.broken_disk.unlink()
    told(ended, ERROR, REMEDY)
    assert case.settle() == []
    goes_on(arena, case, reference, finished(case.store))
