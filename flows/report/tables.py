"""The tables that page and Markdown share: ours beside the paper's."""

from typing import NamedTuple

from rnnsearch.flows.report.data import (
    Comparison,
    CorpusFlow,
    Evidence,
    FlowStep,
    ReportData,
    SubsetScore,
    System,
    Training,
)
from rnnsearch.flows.report.paper import TABLE_1, TABLE_2, PaperRow, PaperTraining


class ScoreRow(NamedTuple):
    """A row of Table 1. `ours` is None where no system of this run stands for the paper's row."""

    name: str
    ours: System | None
    paper: PaperRow | None

    @property
    def all(self) -> SubsetScore | None:
        """Our score on all test sentences."""
        return self.ours.score("all") if self.ours else None

    @property
    def no_unk(self) -> SubsetScore | None:
        """Our score on the sentences without unknown words."""
        return self.ours.score("no-unk") if self.ours else None


class TrainingRow(NamedTuple):
    """A row of Table 2."""

    name: str
    system: System | None
    paper: PaperTraining | None

    @property
    def ours(self) -> Training | None:
        """Our training."""
        return self.system.training if self.system else None


class FlowTable(NamedTuple):
    """The ways of all corpora side by side: one row a corpus, one column a step, totals below."""

    steps: tuple[str, ...]
    rows: tuple[tuple[str, tuple[FlowStep | None, ...]], ...]
    total: tuple[int | None, ...]


class ReasonRow(NamedTuple):
    """How many pairs of each corpus left in this step for this reason."""

    step: str
    reason: str
    pairs: tuple[int, ...]
    evidence: str


def table_1(report: ReportData) -> list[ScoreRow]:
    """Our systems that the paper does not have, then the paper's rows in its order."""
    known = _by_row(report)
    own = [ScoreRow(system.name, system, None) for system in report.systems if system not in known.values()]
    return own + [ScoreRow(row.name, known.get(row.name), row) for row in TABLE_1]


def table_2(report: ReportData) -> list[TrainingRow]:
    """As `table_1`, for the trainings."""
    known = _by_row(report)
    own = [
        TrainingRow(system.name, system, None)
        for system in report.systems
        if system not in known.values() and not system.external
    ]
    return own + [TrainingRow(row.name, known.get(row.name), row) for row in TABLE_2]


def _by_row(report: ReportData) -> dict[str, System]:
    """The first system for each of the paper's rows; further ones get rows of their own."""
    known: dict[str, System] = {}
    for system in report.systems:
        if system.paper_row:
            known.setdefault(system.paper_row, system)
    return known


def flow_table(flows: tuple[CorpusFlow, ...]) -> FlowTable:
    """Pairs left after each step, by corpus. A total is None where a corpus has no number."""
    steps = _steps(flows)
    rows = []
    for flow in flows:
        left = {step.name: step for step in flow.steps}
        rows.append((flow.corpus, tuple(left.get(step) for step in steps)))
    total = []
    for column in range(len(steps)):
        cells = [left[column] for _, left in rows]
        values = [None if cell is None else cell.pairs for cell in cells]
        known = [value for value in values if value is not None]
        total.append(sum(known) if len(known) == len(values) else None)
    return FlowTable(steps, tuple(rows), tuple(total))


def _steps(flows: tuple[CorpusFlow, ...]) -> tuple[str, ...]:
    """The steps of all corpora in pipeline order; a step that only some have follows the one before it there."""
    steps: list[str] = []
    for flow in flows:
        place = 0
        for step in flow.steps:
            if step.name not in steps:
                steps.insert(place, step.name)
            place = steps.index(step.name) + 1
    return tuple(steps)


def reason_rows(flows: tuple[CorpusFlow, ...]) -> list[ReasonRow]:
    """Dropped pairs by step and reason, one number a corpus."""
    lost: dict[tuple[str, str], list[int]] = {}
    evidence: dict[tuple[str, str], str] = {}
    for position, flow in enumerate(flows):
        for step in flow.steps:
            for dropped in step.dropped:
                cell = (step.name, dropped.reason)
                lost.setdefault(cell, [0] * len(flows))[position] += dropped.pairs
                evidence[cell] = step.evidence
    steps = _steps(flows)
    cells = sorted(lost, key=lambda cell: (steps.index(cell[0]), cell[1]))
    return [
        ReasonRow(step, reason, tuple(lost[step, reason]), evidence[step, reason]) for step, reason in cells
    ]


def comparison(report: ReportData, subset: str, first: str, second: str) -> Comparison | None:
    """The paired test of these two, turned so that the difference is that of `first` over `second`."""
    for test in report.comparisons:
        if test.subset == subset and {test.first, test.second} == {first, second}:
            if test.first == first:
                return test
            return Comparison(
                subset=subset,
                first=first,
                second=second,
                difference=-test.difference,
                low=None if test.high is None else -test.high,
                high=None if test.low is None else -test.low,
                p_value=test.p_value,
                samples=test.samples,
            )
    return None


def cost_summary(report: ReportData) -> tuple[float, float]:
    """Seconds computed in this run, and seconds that cached stages would have taken again."""
    spent = sum(cost.seconds or 0.0 for cost in report.costs if not cost.cached)
    saved = sum(cost.seconds or 0.0 for cost in report.costs if cost.cached)
    return spent, saved


def upstream(report: ReportData, start: str) -> list[Evidence]:
    """All stages that the stage `start` rests on, nearest first, each once."""
    known = {entry.id: entry for entry in report.evidence}
    found: dict[str, Evidence] = {}
    queue = [start]
    while queue:
        entry = known.get(queue.pop(0))
        if entry is None:
            continue
        for given in entry.inputs:
            if given.made_by in known and given.made_by not in found and given.made_by != start:
                found[given.made_by] = known[given.made_by]
                queue.append(given.made_by)
    return list(found.values())
