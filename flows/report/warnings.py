"""What a reader should know before the numbers: test sentences in training, empty segments, missing rules."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from rnnsearch.flows.notes import language_notes
from rnnsearch.flows.report.data import NearCopy, Overlap, System
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.config import TokenizeConfig

NEAR_SHOWN = 10


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


def gather_warnings(view: RunView, systems: tuple[System, ...], overlap: Overlap | None) -> tuple[str, ...]:
    """Each warning as a sentence, the gravest first."""
    return (*_overlapping(overlap), *_empty(view, systems), *_languages(view))


def _overlapping(overlap: Overlap | None) -> Iterator[str]:
    if overlap is None:
        return
    if overlap.either:
        yield (
            f"{overlap.share:.1%} of the test set stands in the training data: {overlap.sources:,} sources and "
            f"{overlap.references:,} references of {overlap.sentences:,} sentences "
            f"({overlap.one_word:,} of these texts "
            "are a single word); the subset not-in-training is scored without them."
        )
    if overlap.near_sources or overlap.near_references:
        yield (
            f"{overlap.near_sources:,} test sources and {overlap.near_references:,} references differ from a training "
            "sentence in one word only."
        )


def _empty(view: RunView, systems: tuple[System, ...]) -> Iterator[str]:
    empty = _scores(view, systems).get("empty", {})
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
