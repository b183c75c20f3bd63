"""SIGINT and SIGTERM to a run: it says how to go on, lets go of everything, and goes on from there."""

import re
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from arena import SETTINGS, Arena, until
from stores import Reference, done_again, finished, last_run, last_update, left_over, outputs

from rnnsearch.model.checkpoint import read_checkpoint
from rnnsearch.storage.store import Store

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

Opening = Callable[[str], Path | None]


@pytest.mark.parametrize(
    ("number", "stage", "alone"),
    [
        (signal.SIGINT, "train/rnnsearch", False),
        pytest.param(signal.SIGTERM, "train/rnnsearch", True, marks=pytest.mark.sample),
        (signal.SIGTERM, "translate/rnnsearch/all", False),
        (signal.SIGTERM, "ingest/lines", False),
        (signal.SIGINT, "starting Prefect", True),
    ],
)
def test_a_signal_ends_a_run_clean_and_the_line_it_leaves_goes_on(
    arena: Arena, opening: Opening, reference: Reference, number: int, stage: str, alone: bool
) -> None:
    case = arena.case(opening("gate" if stage == "starting Prefect" else stage))
    run = arena.start(case, alone=alone)
    until(stage if stage == "starting Prefect" else f"{stage:<32} started", run)
    time.sleep(1)
    began = time.monotonic()
    run.send(number)
    ended = run.wait()
    print(f"{signal.Signals(number).name} in {stage}: ended after {time.monotonic() - began:.1f} s")
    assert ended.code == 128 + number, ended
    assert "Traceback" not in ended.err, ended
    (command,) = re.findall(r"stopped; `rnnsearch (.+)` goes on from here", ended.err)
    assert case.settle(15) == []
    store = Store.open(case.store)
    assert store.leases.held() == []
    if stage != "starting Prefect":
        assert last_run(case.store).state == "cancelled"
    before = finished(case.store)
    again = arena.run(case, *shlex.split(command))
    assert again.code == 0, again
    assert done_again(before, finished(case.store)) == []
    assert outputs(case.store) == reference.outputs
    assert left_over(case) == []
    case.remove()


def test_a_signal_in_a_training_costs_no_update(arena: Arena, opening: Opening) -> None:
    """No checkpoint is due for long, so one that is there was written because of the signal."""
    case = arena.case(opening("train/rnnsearch"))
    long = {
        "updates": 1_000_000,
        "checkpoint_every": 900_000,
        "evaluate_every": 900_000,
        "log_every": 900_000,
    }
    changes = [f"systems.rnnsearch.train.{name}={value}" for name, value in long.items()]
    run = arena.start(case, settings=(*SETTINGS, *changes))
    while last_update(case) < 20:
        assert not run.ended(), run.wait()
        time.sleep(0.05)
    run.send(signal.SIGTERM)
    ended = run.wait()
    assert ended.code == 128 + signal.SIGTERM, ended
    assert case.settle(15) == []
    (place,) = case.store.glob("work/*/epoch-*/checkpoints/update-*")
    assert read_checkpoint(place).update >= last_update(case) >= 20
    case.remove()


@pytest.mark.parametrize("alone", [pytest.param(False, marks=pytest.mark.sample), True])
def test_a_second_ctrl_c_is_immediate(
    arena: Arena, opening: Opening, reference: Reference, alone: bool
) -> None:
    case = arena.case(opening("train/rnnsearch"))
    run = arena.start(case, alone=alone)
    until("train/rnnsearch                  started", run)
    time.sleep(1)
    run.send(signal.SIGINT)
    until("once more to stop at once", run)
    began = time.monotonic()
    run.send(signal.SIGINT)
    ended = run.wait()
    seconds = time.monotonic() - began
    print(f"the second one ended it after {seconds:.2f} s")
    assert ended.code == 130, ended
    assert "goes on from here" not in ended.err, ended  # it waited for nothing, not even for its last line
    assert seconds < 1
    assert case.settle(15) == []
    assert Store.open(case.store).leases.held() == []
    again = arena.run(case)
    assert again.code == 0, again
    assert outputs(case.store) == reference.outputs
    assert left_over(case) == []
    case.remove()


def test_ctrl_c_ends_a_run_that_waits_for_another(arena: Arena, opening: Opening) -> None:
    case = arena.case(opening("train/rnnsearch"))
    first = arena.start(case)
    until("train/rnnsearch                  started", first)
    second = arena.start(case)
    time.sleep(6)
    assert not first.ended()
    began = time.monotonic()
    second.send(signal.SIGINT)
    ended = second.wait()
    assert ended.code == 130, ended
    assert time.monotonic() - began < 10
    assert first.wait().code == 0
    case.remove()
