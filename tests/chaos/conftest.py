"""The arena of the chaos tests, the undisturbed run that all is compared with, and the table at the end."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `--import-mode=importlib` leaves it out

from arena import Arena, Case
from kills import Kill, changes, table
from stores import Reference, forget, reference_of

SEED = int(os.environ.get("CHAOS_SEED", "1"))
"""Other seeds kill at other moments."""

_kills: list[Kill] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sample: the part of the chaos tests that make chaos-ci runs")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _kills:
        terminalreporter.section(f"kills, seed {SEED}")
        terminalreporter.write_line(table(_kills))
        terminalreporter.write_line(changes(_kills))


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture(scope="session")
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    place = Arena()
    yield place
    place.close(keep=request.session.testsfailed > 0)


@pytest.fixture(scope="session")
def undisturbed(arena: Arena) -> Case:
    """The case of a run that nothing disturbed."""
    case = arena.case()
    ended = arena.run(case)
    assert ended.code == 0, ended
    assert case.settle() == []
    return case


@pytest.fixture(scope="session")
def reference(undisturbed: Case) -> Reference:
    """What the undisturbed run left."""
    return reference_of(undisturbed.store)


@pytest.fixture(scope="session")
def opening(arena: Arena, undisturbed: Case) -> Callable[[str], Path | None]:
    """A store to start from, by the one stage that is still to do; none at all for `nothing`."""
    made: dict[str, Path | None] = {"nothing": None, "all done": undisturbed.store}

    def make(stage: str) -> Path | None:
        if stage not in made:
            case = arena.case(undisturbed.store)
            forget(case.store, stage)
            made[stage] = case.store
        return made[stage]

    return make


@pytest.fixture(scope="session")
def kills() -> list[Kill]:
    """Add to it what was killed: it is printed at the end."""
    return _kills
