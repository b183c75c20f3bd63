"""`kill -9` at every kind of change that a run makes to its store: each role, event and area, listed.

An undisturbed run of each opening (a store in which one stage is still to do, or none at all) says which changes there
are. Each kind of them gets a kill at one of its occurrences, drawn by the seed: half of the kinds by an odd seed, the
other half by an even one. Then come more, until there are enough.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from arena import Arena, Case
from kills import AT_A_CHANGE, Kill, rerun
from stores import Reference, outputs

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

OPENINGS = (  # cheapest first
    "download/lines-en",
    "gate",
    "duplicates",
    "shortlist",
    "order/20",
    "ingest/lines",
    "evaluate/rnnsearch",
    "translate/rnnsearch/all",
    "train/rnnsearch",
    "nothing",
)
KILLS = 36
SAMPLE = 12
_UNEVEN = {("driver", event, "leases") for event in ("open", "fsync", "link", "remove")}
"""Signs of life come by the clock: how many there are is not known before."""


class Boundary(NamedTuple):
    """One change to be killed at."""

    opening: str
    role: str
    event: str
    area: str
    number: int
    of: int
    how: str

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.role, self.event, self.area

    def __str__(self) -> str:
        return f"{self.role}: {self.event} {self.area} {self.number} of {self.of}, {self.how}; {self.opening}"


Counts = Mapping[str, Mapping[tuple[str, str, str], int]]


@pytest.fixture(scope="session")
def counts(
    arena: Arena, opening: Callable[[str], Path | None], undisturbed: Case, reference: Reference
) -> Counts:
    """For each opening, how many changes of each kind an undisturbed run makes from there."""
    found = {}
    for name in OPENINGS:
        case = undisturbed
        if name != "nothing":
            case = arena.case(opening(name))
            ended = arena.run(case)
            assert ended.code == 0, ended
            assert case.settle() == []
            assert outputs(case.store) == reference.outputs, name
        found[name] = case.counts()
    return found


def drawn(counts: Counts, seed: int, wanted: int) -> Sequence[Boundary]:
    """The changes to be killed at: one of each kind of the seed's half, in the cheapest opening with it, then any."""
    random_ = random.Random(seed)
    everywhere = [
        (opening, kind, number)
        for opening, kinds in counts.items()
        for kind, number in kinds.items()
        if kind not in _UNEVEN or opening != "nothing"
    ]
    first = dict[tuple[str, str, str], Boundary]()
    for opening, kind, of in everywhere:
        if kind not in first:
            first[kind] = _boundary(random_, opening, kind, of)
    found = [first[kind] for kind in sorted(first)[seed % 2 :: 2]]
    random_.shuffle(found)
    cheap = [each for each in everywhere if each[0] not in OPENINGS[-2:]]
    while len(found) < wanted:
        boundary = _boundary(random_, *random_.choice(cheap))
        if boundary not in found:
            found.append(boundary)
    return found


def _boundary(random_: random.Random, opening: str, kind: tuple[str, str, str], of: int) -> Boundary:
    how = random_.choice(["before", "half"]) if kind[1] == "fsync" else "before"
    return Boundary(opening, *kind, random_.randint(1, of), of, how)


@pytest.fixture(scope="session")
def boundaries(counts: Counts, seed: int) -> Sequence[Boundary]:
    return drawn(counts, seed, KILLS)


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=[pytest.mark.sample] if number < SAMPLE else []) for number in range(KILLS)],
)
def test_after_a_kill_at_a_change_of_the_store_one_rerun_ends_with_the_same_bytes(
    arena: Arena,
    opening: Callable[[str], Path | None],
    reference: Reference,
    boundaries: Sequence[Boundary],
    kills: list[Kill],
    number: int,
) -> None:
    boundary = boundaries[number]
    for which in range(boundary.number, 0, -max(1, boundary.number // 3)):  # the clock had made some of them
        case = arena.case(opening(boundary.opening))
        case.plan(*boundary.kind, which, boundary.how)
        killed = arena.run(case)
        print(boundary, "" if which == boundary.number else f"(at {which})")
        if case.fired() is not None:
            break
        case.remove()
    else:
        pytest.fail(f"{boundary} was not reached\n{killed}")
    if boundary.role == "driver":
        assert killed.code == -9, killed
    kind = f"{boundary.role}{AT_A_CHANGE}"
    kills.append(rerun(arena, case, reference, kind, str(boundary), killed))
    case.remove()


def test_two_seeds_in_a_row_kill_at_every_kind_of_change(counts: Counts, seed: int) -> None:
    kinds = {kind for found in counts.values() for kind in found}
    for role, event, area in sorted(kinds):
        print(
            role,
            event,
            area,
            *(f"{name}: {found.get((role, event, area), 0)}" for name, found in counts.items()),
        )
    both = [*drawn(counts, seed, KILLS), *drawn(counts, seed + 1, KILLS)]
    assert kinds <= {boundary.kind for boundary in both}
    assert {area for _, _, area in kinds} >= {
        "blobs",
        "ledger",
        "shards",
        "runs",
        "leases",
        "checkpoint",
        "tmp",
    }
