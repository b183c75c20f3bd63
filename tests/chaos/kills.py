"""What was killed, and what became of it: the rows of the table at the end."""

from collections.abc import Sequence
from typing import NamedTuple

from arena import Arena, Case, Ended
from stores import Reference, done_again, finished, last_run, left_over, look, outputs

AT_A_CHANGE = ", at a change of the store"
"""Kinds of kill that are listed one by one."""


class Kill(NamedTuple):
    """One kill and the one rerun after it."""

    kind: str
    where: str
    survived: bool  # the run went on by itself to a good end: Ray replaced the worker
    computed: int  # stages that the rerun had to make
    again: int  # finished stages and shards that were made again
    equal: bool  # the rerun ended with the digests of the undisturbed run
    seconds: float


def rerun(
    arena: Arena,
    case: Case,
    reference: Reference,
    kind: str,
    where: str,
    killed: Ended,
    *,
    alone: bool = False,
) -> Kill:
    """Run once more and hold the outcome to what is promised; AssertionError says what broke."""
    case.calm()
    before = finished(case.store)
    again = arena.run(case, alone=alone)
    story = f"{kind} {where}\n--- killed\n{killed}\n--- rerun\n{again}"
    assert again.code == 0, story
    run = last_run(case.store)
    repeated = done_again(before, finished(case.store))
    made = outputs(case.store, run)
    report = Kill(
        kind=kind,
        where=where,
        survived=killed.code == 0,
        computed=sum(not use.hit for use in run.uses),
        again=len(repeated),
        equal=made == reference.outputs,
        seconds=killed.seconds + again.seconds,
    )
    print(report)
    different = [stage for stage, made_then in reference.outputs.items() if made.get(stage) != made_then]
    assert different == [], story
    assert repeated == [], story
    assert run.state == "finished", story
    assert left_over(case) == [], story
    found = look(case.store)
    assert found.wrong == (), story
    assert found.orphaned <= reference.orphaned, story
    return report


def table(kills: Sequence[Kill]) -> str:
    """A Markdown table, a row for each kind of kill."""
    kinds = list(dict.fromkeys(kill.kind for kill in kills))
    rows = [_row(kind, [kill for kill in kills if kill.kind == kind]) for kind in kinds]
    head = (
        "kind of kill", "kills", "run went on by itself", "reruns equal", "stages a rerun made",
        "finished work done again", "seconds a kill",
    )  # fmt: skip
    lines = [head, tuple("---" for _ in head), *rows, _row("all", kills)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def changes(kills: Sequence[Kill]) -> str:
    """The kinds of change that processes were killed at, by role."""
    seen = [kill.where.split()[:3] for kill in kills if kill.kind.endswith(AT_A_CHANGE)]
    roles = sorted({role for role, _, _ in seen})
    return "\n".join(
        f"{role} {', '.join(sorted({f'{event} in {area}' for each, event, area in seen if each == role}))}"
        for role in roles
    )


def _row(kind: str, kills: Sequence[Kill]) -> tuple[str, ...]:
    computed = sorted(kill.computed for kill in kills)
    return (
        kind,
        str(len(kills)),
        str(sum(kill.survived for kill in kills)),
        str(sum(kill.equal for kill in kills)),
        f"{computed[0]} to {computed[-1]}",
        str(sum(kill.again for kill in kills)),
        f"{sum(kill.seconds for kill in kills) / len(kills):.1f}",
    )
