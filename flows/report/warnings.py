"""Warnings shown before the scores: test sentences in training, misaligned lines, damaged text."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from rnnsearch.flows.notes import language_notes
from rnnsearch.flows.report.data import Example, Finding, NearCopy, Overlap, System
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.config import TokenizeConfig

NEAR_SHOWN = 10


class _Damage(NamedTuple):
    """What a check means, from which share of a corpus on it is worth a warning, and the setting that mends it."""

    least: float
    said: str
    setting: str | None = None


_DAMAGE = {
    "tokenised": _Damage(
        0.2, "look tokenised already: if they are, name it in tokenize.pretokenized_corpora"
    ),
    "escaped": _Damage(0.01, "hold Moses' escapes such as &apos;: clean.unescape takes them out", "unescape"),
    "entities": _Damage(0.01, "hold HTML entities: clean.unescape replaces them", "unescape"),
    "mojibake": _Damage(
        0.001, "are in a wrong encoding: clean.repair_mojibake mends them", "repair_mojibake"
    ),
    "controls": _Damage(
        0.001, "hold control characters of cp1252: clean.repair_controls reads them", "repair_controls"
    ),
    "swapped": _Damage(0.001, "seem to have changed their sides: filter.swapped drops such pairs"),
    "identical": _Damage(0.1, "have the same text on both sides: filter.identical drops such pairs"),
    "wrong_script": _Damage(0.05, "have a side in another script than its language's: see filter.min_script"),
}
_TOKENS = ("tokenised", "escaped", "entities")


def gather_overlap(view: RunView, systems: tuple[System, ...]) -> Overlap | None:
    """The overlap of test set and training data, None where no system was scored."""
    scores = _scores(view, systems)
    found = scores.get("in_training")
    if found is None:
        return None
    table = view.table("overlap", "overlap")
    near = [] if table is None else _near(table)
    return Overlap(
        sentences=scores["sentences"],
        sources=found["sources"],
        references=found["references"],
        either=found["sentences"],
        one_word=0 if table is None else _one_word(table),
        near_sources=sum(copy.side == "source" for copy in near),
        near_references=sum(copy.side == "target" for copy in near),
        near=tuple(near[:NEAR_SHOWN]),
        evidence=view.evidence("overlap"),
    )


def gather_findings(view: RunView) -> tuple[Finding, ...]:
    """What the survey found, by corpus and check."""
    table = view.table("survey", "survey")
    rows = [] if table is None else table.to_pylist()
    sizes = {row["corpus"]: row["pairs"] for row in rows if row["check"] == "pairs"}
    return tuple(
        Finding(
            corpus=row["corpus"],
            check=row["check"],
            pairs=row["pairs"],
            of=sizes[row["corpus"]],
            examples=tuple(Example(**example) for example in row["examples"]),
            evidence=view.evidence("survey"),
        )
        for row in rows
        if row["check"] != "pairs"
    )


def gather_warnings(
    view: RunView, systems: tuple[System, ...], overlap: Overlap | None, findings: tuple[Finding, ...]
) -> tuple[str, ...]:
    """The warnings as sentences, most serious first."""
    return (
        *_slipped(view, findings),
        *_overlapping(overlap),
        *_empty(view, systems),
        *_damaged(view, findings),
        *_languages(view),
    )


def _slipped(view: RunView, findings: tuple[Finding, ...]) -> Iterator[str]:
    """Corpora of dev and test first: there a slip makes every score wrong."""
    held = view.settings("holdout") or {}
    scored = {held.get("corpus"), *held.get("dev_corpora", ()), *held.get("test_corpora", ())}
    slips = [finding for finding in findings if finding.check == "slipped"]
    for finding in sorted(slips, key=lambda finding: finding.corpus not in scored):
        places = ", ".join(example.place for example in finding.examples)
        whose = "which gives dev or test, " if finding.corpus in scored else ""
        yield (
            f"the sides of corpus {finding.corpus}, {whose}seem to have slipped against each other in "
            f"{finding.pairs:,} lines ({places}, counted from 0): look at them in its files; filter.slipped drops such "
            "lines from training."
        )


def _damaged(view: RunView, findings: tuple[Finding, ...]) -> Iterator[str]:
    settings = {**(view.settings("tokenize") or {}), **(view.settings("clean") or {})}
    given = settings.get("pretokenized_corpora", ())
    for finding in findings:
        known = _DAMAGE.get(finding.check)
        if known is None or finding.share < known.least:
            continue
        if finding.check in _TOKENS and (settings.get("pretokenized") or finding.corpus in given):
            continue
        if known.setting is not None and settings.get(known.setting):
            continue
        yield f"{finding.share:.1%} of the pairs of corpus {finding.corpus} {known.said}."


def _overlapping(overlap: Overlap | None) -> Iterator[str]:
    if overlap is None:
        return
    if overlap.either:
        yield (
            f"{overlap.share:.1%} of the test set stands in the training data: {overlap.sources:,} sources and "
            f"{overlap.references:,} references of {overlap.sentences:,} sentences ({overlap.one_word:,} of these "
            "texts are a single word); the subset not-in-training is scored without them."
        )
    if overlap.near_sources or overlap.near_references:
        yield (
            f"{overlap.near_sources:,} test sources and {overlap.near_references:,} references differ from a training "
            "sentence in one word only."
        )


def _empty(view: RunView, systems: tuple[System, ...]) -> Iterator[str]:
    scores = _scores(view, systems)
    if scores.get("repeated"):
        yield f"{scores['repeated']:,} test sentences repeat an earlier one of the test set, source and reference."
    empty = scores.get("empty", {})
    for side in ("sources", "references"):
        if empty.get(side):
            yield (
                f"{empty[side]:,} test {side} are empty; they keep their places and are scored as empty sentences."
            )


def _languages(view: RunView) -> Iterator[str]:
    try:
        config = TokenizeConfig.model_validate(view.settings("tokenize") or {})
    except ValidationError:
        return  # a run of an older version, whose codes were not looked at
    yield from (f"{note}." for note in language_notes(config))


def _scores(view: RunView, systems: tuple[System, ...]) -> Mapping[str, Any]:
    """The scores of the first system that has some: what they say of the test set holds for all."""
    for system in systems:
        scores = view.json(f"evaluate/{system.name}", "scores")
        if scores is not None:
            return scores
    return {}


def _near(table: pa.Table) -> list[NearCopy]:
    """The near copies of test sentences that have no exact one."""
    exact = {(row["side"], row["text"]) for row in table.to_pylist() if not row["near"]}
    return [
        NearCopy(
            side=row["side"], text=row["text"], corpus=row["corpus"], line=row["line"], pairs=row["pairs"]
        )
        for row in table.to_pylist()
        if row["near"] and (row["side"], row["text"]) not in exact
    ]


def _one_word(table: pa.Table) -> int:
    return int(pc.sum(pc.and_(pc.equal(table["words"], 1), pc.invert(table["near"]))).as_py() or 0)
