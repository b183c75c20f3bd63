"""`kill -9` from outside at moments drawn by the seed: the driver, a Ray worker, a training worker, the raylet.

A moment is a number of changes of the store since the run began, and some milliseconds more: so kills are spread over
the whole run on a fast machine and on a slow one.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from arena import UPDATES, Arena, Case, Ended, Started, descendants
from kills import Kill, rerun
from stores import Reference, last_update

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

TRAINING = "train/rnnsearch"
TEXT = ("gate", "duplicates", "shortlist", "order/20", "translate/rnnsearch/all")
Opening = Callable[[str], Path | None]
Usual = Callable[[str], int]


class Moment:
    """When to kill: drawn once, so that a failure names it."""

    def __init__(self, seed: int, kind: str, number: int) -> None:
        self.random = random.Random(f"{seed} {kind} {number}")
        self.share = self.random.random()
        self.more = self.random.random() * 0.2  # seconds

    def wait(self, case: Case, run: Started, usual: float) -> None:
        """Until the share of the usual number of changes was made, or the run ended before."""
        while len(case.changes()) < self.share * usual and not run.ended():
            time.sleep(0.01)
        time.sleep(self.more)

    def __str__(self) -> str:
        return f"after {self.share:.0%} of the changes and {1000 * self.more:.0f} ms"


Strike = Callable[[Case, Started, float], bool]
"""Kills something of a run, so much earlier than its moment; tells whether it still lived."""


def struck(arena: Arena, opening: Path | None, strike: Strike, *, alone: bool = False) -> tuple[Case, Ended]:
    """A run in which the kill came before the end, and its case."""
    for earlier in (1.0, 0.7, 0.4, 0.1):
        case = arena.case(opening)
        run = arena.start(case, alone=alone)
        came = strike(case, run, earlier)
        ended = run.wait()
        if came:
            return case, ended
        print(f"what was to be killed had ended by itself\n{ended}")
        case.remove()
    raise AssertionError("there was nothing to kill, four times")


def cases(count: int, sample: int) -> list[object]:
    return [pytest.param(each, marks=[pytest.mark.sample] if each < sample else []) for each in range(count)]


@pytest.fixture(scope="session")
def usual(arena: Arena, opening: Opening, undisturbed: Case) -> Usual:
    """How many changes a run makes from an opening."""
    known = {"nothing": len(undisturbed.changes())}

    def count(stage: str) -> int:
        if stage not in known:
            case = arena.case(opening(stage))
            assert arena.run(case).code == 0
            assert case.settle() == []
            known[stage] = len(case.changes())
        return known[stage]

    return count


def _kill_driver(moment: Moment, usual: int) -> Strike:
    def strike(case: Case, run: Started, earlier: float) -> bool:
        moment.wait(case, run, earlier * usual)
        run.kill()
        killed = run.wait()
        return (
            killed.code == -signal.SIGKILL and "\nlog: " not in killed.err
        )  # its last line but the report's

    return strike


@pytest.mark.parametrize("number", cases(5, 2))
def test_a_driver_killed_at_any_moment(
    arena: Arena, opening: Opening, usual: Usual, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:  # fmt: skip
    moment = Moment(seed, "driver", number)
    stage = "nothing" if number == 4 else moment.random.choice((*TEXT, TRAINING))
    case, killed = struck(arena, opening(stage), _kill_driver(moment, usual(stage)))
    kills.append(rerun(arena, case, reference, "driver, any moment", f"{stage} {moment}", killed))
    case.remove()


@pytest.mark.parametrize("number", cases(4, 2))
def test_a_ray_worker_killed_at_any_moment(
    arena: Arena, opening: Opening, usual: Usual, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:  # fmt: skip
    moment = Moment(seed, "worker", number)
    stage = moment.random.choice(TEXT)
    usual_ = usual(stage)

    def strike(case: Case, run: Started, earlier: float) -> bool:
        """From when a worker is at work, at the earliest."""
        while not run.ended():
            if arena.workers():
                moment.wait(case, run, earlier * min(usual_, len(case.changes()) + 40))
                working = arena.workers()
                if working and _kill(moment.random.choice(working)):
                    return True
            time.sleep(0.01)
        return False

    case, killed = struck(arena, opening(stage), strike)
    assert killed.code == 0, killed  # Ray replaces a lost worker
    kills.append(rerun(arena, case, reference, "Ray worker, any moment", f"{stage} {moment}", killed))
    case.remove()


@pytest.mark.parametrize("number", cases(3, 2))
def test_a_training_worker_killed_at_any_moment(
    arena: Arena, opening: Opening, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:
    moment = Moment(seed, "trainer", number)

    def strike(case: Case, run: Started, earlier: float) -> bool:
        victim = _first(lambda: (each for each in arena.workers() if "TrainWorker" in _title(each)), run)
        while last_update(case) < earlier * moment.share * UPDATES and not run.ended():
            time.sleep(0.002)
        return _kill(victim)

    case, killed = struck(arena, opening(TRAINING), strike)
    assert killed.code == 0, killed
    where = f"at update {moment.share * UPDATES:.0f} of {UPDATES}"
    kills.append(rerun(arena, case, reference, "training worker, any moment", where, killed))
    case.remove()


@pytest.mark.parametrize("number", cases(2, 1))
def test_a_raylet_killed_at_any_moment_ends_the_run_with_a_reason(
    arena: Arena, opening: Opening, usual: Usual, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:  # fmt: skip
    moment = Moment(seed, "raylet", number)
    stage = ("gate", TRAINING, "translate/rnnsearch/all", "shortlist")[(number + 2 * seed - 2) % 4]
    usual_ = usual(stage)

    def strike(case: Case, run: Started, earlier: float) -> bool:
        raylet = _first(lambda: (each for each in descendants(run.pid) if each.name() == "raylet"), run)
        moment.wait(case, run, earlier * usual_)
        return _kill(raylet)

    case, killed = struck(arena, opening(stage), strike, alone=True)
    assert killed.code in (0, 1), killed
    assert case.settle() == []
    (said,) = [path.read_text() for path in case.folder.glob("*.err")]
    assert "Traceback" not in said, said
    assert killed.code == 0 or "goes on from there" in said or "run the same command again" in said, said
    kills.append(rerun(arena, case, reference, "raylet, any moment", f"{stage} {moment}", killed))
    case.remove()


@pytest.mark.parametrize("number", cases(2, 1))
def test_a_killed_driver_leaves_no_server_and_no_ray(
    arena: Arena, opening: Opening, usual: Usual, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:  # fmt: skip
    moment = Moment(seed, "alone", number)
    stage = (TRAINING, "gate", "translate/rnnsearch/all", "shortlist")[(number + 2 * seed - 2) % 4]
    case, killed = struck(arena, opening(stage), _kill_driver(moment, usual(stage)), alone=True)
    began = time.monotonic()
    assert case.settle() == []
    print(f"nothing lives {time.monotonic() - began:.1f} s after the kill")
    (said,) = [path.read_text() for path in case.folder.glob("*.err")]
    assert f"--store {case.store}` goes on from there" in said, said
    where = f"{stage} {moment}"
    kills.append(rerun(arena, case, reference, "driver with its own servers", where, killed, alone=True))
    case.remove()


def _first(find: Callable[[], Iterator[psutil.Process]], run: Started) -> psutil.Process:
    while not run.ended():
        for process in find():
            return process
        time.sleep(0.01)
    raise AssertionError(f"the run ended before there was something to kill\n{run.wait()}")


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> bool:
    """Kill a process; False if it had ended by itself."""
    try:
        lived = process.status() != psutil.STATUS_ZOMBIE
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return lived
