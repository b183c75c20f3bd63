"""The systems of a run: scores, trainings and curves, and paired tests between them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rnnsearch.flows.report.data import (
    Attention,
    BeamPoint,
    Behaviour,
    Bin,
    Comparison,
    CurvePoint,
    Estimate,
    Links,
    Metric,
    Spread,
    SubsetScore,
    System,
    Training,
)
from rnnsearch.flows.report.departures import changed_settings
from rnnsearch.flows.report.lineage import device
from rnnsearch.flows.report.paper import paper_row
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.config import EvaluateConfig
from rnnsearch.pipeline.scores import compare_systems

COMPARED = ("all", "no-unk")
LAST_UPDATES = 0.1  # of the curve: the train NLL is a mean over them, one batch says little

_METRICS = {"bleu": "BLEU, detokenised", "chrf": "chrF", "ter": "TER"}
_POLICIES = {
    "all": "all",
    "no-unk": "no-unk",
    "no-unk-allowed": "all",
    "not-in-training": "all",
}  # which translation a subset scores


def gather_systems(view: RunView) -> tuple[System, ...]:
    """Every system that the run wanted or that was scored in it."""
    ours: Mapping[str, Any] = view.settings("systems") or {}
    others: Mapping[str, Any] = view.settings("external") or {}
    return (
        *(_system(view, name, config) for name, config in ours.items()),
        *(_external(view, name, config) for name, config in others.items()),
    )


def gather_comparisons(view: RunView, sentences: Mapping[str, pa.Table]) -> tuple[Comparison, ...]:
    """Paired tests of every two systems, from their SENTENCES."""
    found = []
    for first, second in itertools.combinations(sentences, 2):
        config = EvaluateConfig.model_validate(
            view.attempts[f"evaluate/{first}"].recipe.config.get("evaluate", {})
        )
        for subset in COMPARED:
            try:
                test = compare_systems(sentences[first], sentences[second], subset, config)
            except EvaluationError as error:
                view.missing.append(f"test of {first} and {second} on {subset}: {error}")
                continue
            found.append(
                Comparison(
                    subset=subset,
                    first=first,
                    second=second,
                    difference=round(test.difference, 4),
                    low=round(test.interval.low, 4),
                    high=round(test.interval.high, 4),
                    p_value=round(test.randomization_p, 6),
                    samples=config.bootstrap_samples,
                )
            )
    return tuple(found)


def _external(view: RunView, name: str, config: Mapping[str, Any]) -> System:
    row = config.get("row") or paper_row(name)
    return System(name=name, external=True, paper_row=row, **_scored(view, name))


def _system(view: RunView, name: str, config: Mapping[str, Any]) -> System:
    settings = view.request.get("settings", {})
    training = _training(view, name, config)
    return System(
        name=name,
        kind=config.get("network", {}).get("kind", ""),
        max_words=config.get("max_words"),
        paper_row=config.get("row") or paper_row(name),
        training=training,
        curve=_points(_curve(view, name, config)),
        settings=changed_settings(settings, name),
        links=_links(view, name),
        beams=_beams(view, name),
        **_scored(view, name),
    )


def _scored(view: RunView, name: str) -> dict[str, Any]:
    """The fields of a System that come from its evaluation."""
    scores = view.json(f"evaluate/{name}", "scores") or {}
    subsets = scores.get("subsets", {})
    found = (_subset(view, name, subset, subsets[subset]) for subset in _POLICIES if subset in subsets)
    seen = scores.get("behaviour", {})
    return {
        "scores": tuple(score for score in found if score is not None),
        "by_length": _bins(scores.get("by_length", ())),
        "at_most_length": _bins(scores.get("at_most_length", ())),
        "by_unknown": _bins(scores.get("by_unknown", ())),
        "by_rarest": _bins(scores.get("by_rarest", ())),
        "behaviour": _behaviour(seen, scores.get("sentences"), view.evidence(f"evaluate/{name}")),
        "attention": _attention(seen.get("attention")),
    }


def _subset(view: RunView, name: str, subset: str, found: Mapping[str, Any]) -> SubsetScore | None:
    score = found.get("bleu")
    if not found.get("sentences") or score is None:
        return None
    translated = view.attempts.get(f"translate/{name}/{_POLICIES[subset]}")
    translated = translated or view.attempts.get(f"external/{name}")
    digest = translated.outputs.get("hypotheses", "") if translated else ""
    artifact = f"|artifact:{digest[:12]}" if digest else ""
    return SubsetScore(
        subset=subset,
        sentences=found["sentences"],
        bleu=Estimate(value=score["score"], low=score.get("low"), high=score.get("high")),
        signature=f"{score['signature']}{artifact}",
        brevity=score.get("brevity_penalty"),
        ratio=score.get("ratio"),
        metrics=tuple(
            Metric(name=label, value=part["score"], signature=part.get("signature", ""))
            for key, label in _METRICS.items()
            if (part := found.get("sacrebleu", {}).get(key))
        ),
        evidence=view.evidence(f"evaluate/{name}"),
    )


def _bins(rows: Iterable[Mapping[str, Any]]) -> tuple[Bin, ...]:
    return tuple(
        Bin(
            low=row["low"],
            high=row["high"],
            sentences=row["sentences"],
            bleu=Estimate(value=row["bleu"], low=row.get("bleu_low"), high=row.get("bleu_high")),
            signature=row.get("signature", ""),
        )
        for row in rows
        if row.get("sentences") and row.get("bleu") is not None
    )


def _behaviour(seen: Mapping[str, Any], sentences: int | None, evidence: str) -> Behaviour:
    stuttering = seen.get("stuttering_sentences")
    return Behaviour(
        unknown_output=seen.get("unknown_output"),
        unknown_source=seen.get("unknown_source"),
        unknown_reference=seen.get("unknown_reference"),
        repetition=stuttering / sentences if stuttering is not None and sentences else None,
        empty=seen.get("empty_outputs"),
        fallbacks=seen.get("fallbacks"),
        unfinished=seen.get("unfinished"),
        evidence=evidence,
    )


def _attention(seen: Mapping[str, Any] | None) -> Attention | None:
    if seen is None:
        return None
    return Attention(
        entropy=seen.get("entropy"),
        entropy_by_position=tuple(seen.get("entropy_by_position", ())),
        entropy_by_length=tuple(
            Spread(**row) for row in seen.get("entropy_by_length", ()) if row["sentences"]
        ),
        least_weight=seen.get("least_weight"),
        most_weight=seen.get("most_weight"),
        dropped=seen.get("dropped_words"),
        repeated=seen.get("repeated_words"),
    )


def _links(view: RunView, name: str) -> Links | None:
    stage = f"evaluate-alignment/{name}"
    found = view.json(stage, "scores")
    if found is None:
        return None
    gold = found.get("gold", {})
    return Links(
        sentences=found["sentences"],
        links=found["links"],
        entropy=found["entropy"],
        gold_sentences=gold.get("sentences"),
        error_rate=gold.get("error_rate"),
        agreement=found.get("agreement"),
        evidence=view.evidence(stage),
    )


def _beams(view: RunView, name: str) -> tuple[BeamPoint, ...]:
    stage = f"sweep/{name}"
    attempt = view.attempts.get(stage)
    seconds = attempt.observations.get("beam_seconds", {}) if attempt else {}
    return tuple(
        BeamPoint(
            beam=row["beam"],
            sentences=row["sentences"],
            bleu=Estimate(value=row["bleu"], low=row["bleu_low"], high=row["bleu_high"]),
            ratio=row.get("ratio"),
            unfinished=row.get("unfinished"),
            seconds=seconds[str(row["beam"])] / row["sentences"] if str(row["beam"]) in seconds else None,
            signature=row["signature"],
        )
        for row in view.rows_of_json(stage, "scores")
        if row["sentences"]
    )


def _curve(view: RunView, name: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a curve; a training that continues another one has that one's rows before its own."""
    rows = [row for table in view.tables(f"train/{name}", "curve") for row in table.to_pylist()]
    earlier = config.get("continues")
    if not rows or not earlier:
        return rows
    before = _curve(view, earlier, view.settings("systems", earlier) or {})
    return [row for row in before if row["update"] < rows[0]["update"]] + rows


def _points(rows: Sequence[Mapping[str, Any]]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            update=row["update"],
            train_loss=row.get("loss_per_token"),
            dev_loss=row.get("dev_loss_per_token"),
            gradient_norm=row.get("gradient_norm"),
            clipped_share=row.get("clipped_share"),
            entropy=row.get("attention_entropy"),
            dev_bleu=row.get("dev_bleu"),
        )
        for row in rows
    )


def _training(view: RunView, name: str, config: Mapping[str, Any]) -> Training | None:
    attempt = view.attempts.get(f"train/{name}")
    if attempt is None:
        return None
    rows = _curve(view, name, config)
    seen = attempt.observations
    updates = rows[-1]["update"] if rows else seen.get("updates")
    late = [
        row
        for row in rows
        if row["update"] > (1 - LAST_UPDATES) * rows[-1]["update"]
        and row.get("loss_per_sentence") is not None
    ]
    counted = sum(row["sentences"] for row in late)
    dev = [row["dev_loss_per_sentence"] for row in rows if row.get("dev_loss_per_sentence") is not None]
    return Training(
        updates=updates,
        epochs=seen.get("epochs"),
        hours=_hours(view, name, config),
        device=device(attempt),
        train_nll=sum(row["loss_per_sentence"] * row["sentences"] for row in late) / counted
        if counted
        else None,
        dev_nll=min(dev, default=None),
        tokens_per_second=seen.get("tokens_per_second"),
        evidence=view.evidence(f"train/{name}"),
    )


def _hours(view: RunView, name: str, config: Mapping[str, Any]) -> float | None:
    """The hours of a training and of those that it continues."""
    attempt = view.attempts.get(f"train/{name}")
    own = attempt.observations.get("hours") if attempt else None
    earlier = config.get("continues")
    if own is None or not earlier:
        return own
    before = _hours(view, earlier, view.settings("systems", earlier) or {})
    return None if before is None else own + before
