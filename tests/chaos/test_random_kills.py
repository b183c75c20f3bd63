"""`kill -9` from outside at moments drawn by the seed: the driver, a Ray worker, a training worker, the raylet.

A moment is a number of changes of the store since the run began, and some milliseconds more: so kills are spread over
the whole run on a fast machine and on a slow one.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from arena import Arena, Case, Started, descendants
from kills import Kill, rerun
from stores import Reference

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

TEXT = ("gate", "duplicates", "shortlist", "order/20", "translate/rnnsearch/all")
Opening = Callable[[str], Path | None]


class Moment:
    """When to kill: drawn once, so that a failure names it."""

    def __init__(self, seed: int, kind: str, number: int) -> None:
        self.random = random.Random(f"{seed} {kind} {number}")
        self.share = self.random.random()
        self.more = self.random.random() * 0.2  # seconds

    def wait(self, case: Case, run: Started, usual: int) -> bool:
        """Until the share of the usual number of changes was made; False if the run ended before."""
        while len(case.changes()) < self.share * usual:
            if run.ended():
                return False
            time.sleep(0.01)
        time.sleep(self.more)
        return not run.ended()

    def __str__(self) -> str:
        return f"after {self.share:.0%} of the changes and {1000 * self.more:.0f} ms"


def cases(count: int, sample: int) -> list[object]:
    return [pytest.param(each, marks=[pytest.mark.sample] if each < sample else []) for each in range(count)]


@pytest.fixture(scope="session")
def usual(arena: Arena, opening: Opening, undisturbed: Case) -> Callable[[str], int]:
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


@pytest.mark.parametrize("number", cases(12, 2))
def test_a_driver_killed_at_any_moment(
    arena: Arena, opening: Opening, usual: Callable[[str], int], reference: Reference, kills: list[Kill],
    seed: int, number: int,
) -> None:  # fmt: skip
    moment = Moment(seed, "driver", number)
    stage = "nothing" if number % 6 == 5 else moment.random.choice((*TEXT, "train/rnnsearch"))
    case = arena.case(opening(stage))
    run = arena.start(case)
    moment.wait(case, run, usual(stage))
    run.kill()
    kills.append(rerun(arena, case, reference, "driver, any moment", f"{stage} {moment}", run.wait()))
    case.remove()


@pytest.mark.parametrize("number", cases(10, 2))
def test_a_ray_worker_killed_at_any_moment(
    arena: Arena, opening: Opening, usual: Callable[[str], int], reference: Reference, kills: list[Kill],
    seed: int, number: int,
) -> None:  # fmt: skip
    moment = Moment(seed, "worker", number)
    stage = moment.random.choice(TEXT)
    usual_ = usual(stage)
    case = arena.case(opening(stage))
    run = arena.start(case)
    victim = None
    while victim is None and not run.ended():  # from when a worker is at work, at the earliest
        working = arena.workers()
        if working and moment.wait(case, run, min(usual_, len(case.changes()) + 40)):
            victim = moment.random.choice(working)
            _kill(victim)
        time.sleep(0.01)
    killed = run.wait()
    assert killed.code == 0, killed  # Ray replaces a lost worker
    kills.append(rerun(arena, case, reference, "Ray worker, any moment", f"{stage} {moment}", killed))
    case.remove()


@pytest.mark.parametrize("number", cases(6, 2))
def test_a_training_worker_killed_at_any_moment(
    arena: Arena, opening: Opening, reference: Reference, kills: list[Kill], seed: int, number: int
) -> None:
    moment = Moment(seed, "trainer", number)
    case = arena.case(opening("train/rnnsearch"))
    run = arena.start(case)
    victim = _first(lambda: (each for each in arena.workers() if "TrainWorker" in _title(each)), run)
    while not (said := list(case.store.glob("work/*/epoch-*/messages.jsonl"))) and not run.ended():
        time.sleep(0.01)
    print(said, moment)
    time.sleep(moment.more * 10)
    _kill(victim)
    killed = run.wait()
    assert killed.code == 0, killed
    kills.append(rerun(arena, case, reference, "training worker, any moment", str(moment), killed))
    case.remove()


@pytest.mark.parametrize("number", cases(4, 1))
def test_a_raylet_killed_at_any_moment_ends_the_run_with_a_reason(
    arena: Arena, opening: Opening, usual: Callable[[str], int], reference: Reference, kills: list[Kill],
    seed: int, number: int,
) -> None:  # fmt: skip
    moment = Moment(seed, "raylet", number)
    stage = ("gate", "train/rnnsearch", "translate/rnnsearch/all", "shortlist")[number % 4]
    usual_ = usual(stage)
    case = arena.case(opening(stage))
    run = arena.start(case, alone=True)
    raylet = _first(lambda: (each for each in descendants(run.pid) if each.name() == "raylet"), run)
    moment.wait(case, run, usual_)
    _kill(raylet)
    killed = run.wait()
    assert killed.code in (0, 1), killed
    assert "Traceback" not in killed.err, killed
    assert case.settle(15) == []
    kills.append(rerun(arena, case, reference, "raylet, any moment", f"{stage} {moment}", killed))
    case.remove()


@pytest.mark.parametrize("number", cases(4, 1))
def test_a_killed_driver_leaves_no_server_and_no_ray(
    arena: Arena, opening: Opening, usual: Callable[[str], int], reference: Reference, kills: list[Kill],
    seed: int, number: int,
) -> None:  # fmt: skip
    moment = Moment(seed, "alone", number)
    stage = ("train/rnnsearch", "gate", "translate/rnnsearch/all", "shortlist")[number % 4]
    usual_ = usual(stage)
    case = arena.case(opening(stage))
    run = arena.start(case, alone=True)
    moment.wait(case, run, usual_)
    run.kill()
    killed = run.wait()
    began = time.monotonic()
    assert case.settle(15) == []
    print(f"nothing lives {time.monotonic() - began:.1f} s after the kill")
    report = rerun(
        arena, case, reference, "driver with its own servers", f"{stage} {moment}", killed, alone=True
    )
    kills.append(report)
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


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        print("it had ended by itself")
