"""What differs between two runs: what was asked for, what each stage was made from, scores, sentences."""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rnnsearch.flows.recipe import told
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.bleu import HYPOTHESIS_WORDS, MATCHES, REFERENCE_WORDS, TOTALS, bleu
from rnnsearch.pipeline.config import EvaluateConfig
from rnnsearch.pipeline.scores import bleu_statistics, compare_systems, subset
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.parts import changed_lines
from rnnsearch.storage.recipes import flat

SUBSETS = ("all", "no-unk")
_ENDS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "update": max,
    "loss_per_token": operator.itemgetter(-1),
    "dev_loss_per_token": min,
    "dev_bleu": max,
}

How = Literal["equal", "equal bytes", "other bytes", "first only", "second only"]
"""`equal`: one recipe and one outcome; `equal bytes`: another recipe, which made the same."""


class Setting(NamedTuple):
    """A setting that differs; values as JSON text, None where one run has none."""

    name: str
    first: str | None
    second: str | None


class StageDifference(NamedTuple):
    """A stage of one run beside that of the other."""

    stage: str
    how: How
    reasons: tuple[str, ...]  # what of its own differs: settings, code, versions; for one recipe where it ran
    inputs: tuple[str, ...]  # `stage:output` that it read and that differ


class CodeDifference(NamedTuple):
    """A definition that changed."""

    name: str  # the present one
    stages: tuple[str, ...]  # that reach it
    lines: tuple[str, ...]  # of a unified diff, without its head


class ScoreDifference(NamedTuple):
    """BLEU of a system whose evaluations differ, on a subset; differences are second less first."""

    system: str
    subset: str
    sentences: int
    first: float
    second: float
    low: float  # of the difference, 95 % by the paired bootstrap
    high: float
    p_value: float  # approximate randomisation


class TrainingDifference(NamedTuple):
    """One number of two curves that differ."""

    system: str
    what: str  # the column of CURVE: updates in all, the last loss, the best on dev
    first: float | None
    second: float | None


class SentenceDifference(NamedTuple):
    """A test sentence whose translation became better or worse: BLEU with one added to each count, 0 to 100."""

    system: str
    place: str  # corpus:line
    source: str
    reference: str
    first: str
    second: str
    first_score: float
    second_score: float


@dataclass(frozen=True, kw_only=True)
class RunDifference:
    """Two runs, side by side. `notes` says what could not be compared, and why."""

    first: str
    second: str
    settings: tuple[Setting, ...]
    stages: tuple[StageDifference, ...]
    code: tuple[CodeDifference, ...]
    trainings: tuple[TrainingDifference, ...]
    scores: tuple[ScoreDifference, ...]
    sentences: tuple[SentenceDifference, ...]
    notes: tuple[str, ...]


def compare_runs(first: RunView, second: RunView, sentences: int) -> RunDifference:
    """Compare two runs of one store, with so many of the sentences of each system that changed most."""
    notes: list[str] = []
    stages = tuple(_stages(first, second))
    other = {each.stage for each in stages if each.how == "other bytes"}
    systems = [name for name in second.names("evaluate") if f"evaluate/{name}" in other]
    tables = {name: _same_test(first, second, name, notes) for name in systems}
    both = {name: pair for name, pair in tables.items() if pair is not None}
    return RunDifference(
        first=first.run.id,
        second=second.run.id,
        settings=tuple(_settings(first, second)),
        stages=stages,
        code=tuple(_code(first, second, notes)),
        trainings=tuple(_trainings(first, second)),
        scores=tuple(each for name, pair in both.items() for each in _scores(second, name, *pair, notes)),
        sentences=tuple(each for name, pair in both.items() for each in _changed(name, *pair, sentences)),
        notes=(*notes, *first.missing, *second.missing),
    )


def _settings(first: RunView, second: RunView) -> Iterator[Setting]:
    yield from _differing(*(flat(view.settings() or {}) for view in (first, second)))


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[Setting]:
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield Setting(name, first.get(name), second.get(name))


def _stages(first: RunView, second: RunView) -> Iterator[StageDifference]:
    for stage, new in second.attempts.items():
        old = first.attempts.get(stage)
        yield StageDifference(stage, "second only", (), ()) if old is None else _stage(first, old, new)
    for stage in first.attempts:
        if stage not in second.attempts:
            yield StageDifference(stage, "first only", (), ())


def _stage(view: RunView, old: Attempt, new: Attempt) -> StageDifference:
    equal = old.outputs == new.outputs
    if old.key == new.key:
        if equal:
            return StageDifference(new.stage, "equal", (), ())
        moved = _differing(flat(old.placement), flat(new.placement))
        where = (f"{each.name} {each.first} → {each.second}" for each in moved)
        return StageDifference(new.stage, "other bytes", ("one recipe, made twice", *where), ())
    before, now = old.recipe, new.recipe
    made_by: Mapping[str, str] = {
        **old.observations.get("made_by", {}),
        **new.observations.get("made_by", {}),
    }
    inputs = [made_by.get(each.name, each.name) for each in _differing(before.inputs, now.inputs)]
    parts = (view.store.code_parts(recipe.code) for recipe in (before, now))
    own = told(before, dataclasses.replace(now, inputs=before.inputs), *parts)
    return StageDifference(new.stage, "equal bytes" if equal else "other bytes", tuple(own), tuple(inputs))


def _code(first: RunView, second: RunView, notes: list[str]) -> Iterator[CodeDifference]:
    """The changed lines of each definition, once for all stages that reach it."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    unknown: list[str] = []
    for stage, new in second.attempts.items():
        old = first.attempts.get(stage)
        if old is None or old.recipe.code == new.recipe.code:
            continue
        before, now = (second.store.code(attempt.recipe.code) for attempt in (old, new))
        if before is None or now is None:
            unknown.append(stage)
            continue
        for change in changed_lines(before, now):
            found.setdefault(change, []).append(stage)
    if unknown:
        notes.append(
            f"the code of one of the runs is not stored, so no lines are shown: {', '.join(unknown)}"
        )
    for (name, lines), stages in sorted(found.items()):
        yield CodeDifference(name, tuple(stages), lines)


def _trainings(first: RunView, second: RunView) -> Iterator[TrainingDifference]:
    for name in second.names("train"):
        curves = [
            [row for table in view.tables(f"train/{name}", "curve", list(_ENDS)) for row in table.to_pylist()]
            for view in (first, second)
        ]
        if all(curves) and curves[0] != curves[1]:
            for what, best in _ENDS.items():
                values = ([row[what] for row in curve if row[what] is not None] for curve in curves)
                yield TrainingDifference(name, what, *(best(each) if each else None for each in values))


def _same_test(
    first: RunView, second: RunView, system: str, notes: list[str]
) -> tuple[pa.Table, pa.Table] | None:
    """The SENTENCES of a system in both runs, where they are of one test set."""
    tables = [view.table(f"evaluate/{system}", "sentences") for view in (first, second)]
    old, new = tables
    if old is None or new is None:
        return None
    if any(old[name].to_pylist() != new[name].to_pylist() for name in ("corpus", "line", "reference")):
        notes.append(f"{system} is not compared: the two runs have other test sentences or references")
        return None
    return old, new


def _scores(
    view: RunView, system: str, old: pa.Table, new: pa.Table, notes: list[str]
) -> Iterator[ScoreDifference]:
    config = EvaluateConfig.model_validate(
        view.attempts[f"evaluate/{system}"].recipe.config.get("evaluate", {})
    )
    for name in SUBSETS:
        was, mask = (subset(table, name)[0] for table in (old, new))
        if not np.array_equal(was, mask):
            notes.append(f"{system} is not compared on {name}: {was.sum():,} and {mask.sum():,} sentences")
            continue
        if not mask.any():
            continue
        test = compare_systems(new, old, name, config)
        yield ScoreDifference(
            system=system,
            subset=name,
            sentences=int(mask.sum()),
            first=round(bleu(bleu_statistics(old, name)).score, 2),
            second=round(bleu(bleu_statistics(new, name)).score, 2),
            low=round(test.interval.low, 2),
            high=round(test.interval.high, 2),
            p_value=round(test.randomization_p, 4),
        )


def _changed(system: str, old: pa.Table, new: pa.Table, count: int) -> Iterator[SentenceDifference]:
    scores = [_sentence_bleu(bleu_statistics(table, "all")) for table in (old, new)]
    change = np.abs(scores[1] - scores[0])
    for row in np.argsort(-change, kind="stable")[:count].tolist():
        if change[row] == 0:
            return
        was, now = (table.slice(row, 1).to_pylist()[0] for table in (old, new))
        yield SentenceDifference(
            system=system,
            place=f"{now['corpus']}:{now['line']}",
            source=now["source"],
            reference=now["reference"],
            first=was["hypothesis"],
            second=now["hypothesis"],
            first_score=round(float(scores[0][row]), 1),
            second_score=round(float(scores[1][row]), 1),
        )


def _sentence_bleu(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """BLEU of each sentence, 0 to 100, one added to the counts above the first order (Lin and Och 2004)."""
    matches, totals = (rows[:, part].astype(np.float64) for part in (MATCHES, TOTALS))
    matches[:, 1:] += 1
    totals[:, 1:] += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(matches > 0, np.log(matches / totals), -np.inf).mean(axis=1)
        penalty = np.minimum(0.0, 1 - rows[:, REFERENCE_WORDS] / rows[:, HYPOTHESIS_WORDS])
    return np.where(np.isfinite(precisions), 100 * np.exp(precisions + penalty), 0.0)
