"""Evidence: every stage of a run with what decided its output, where it ran and what it cost."""

import json
from collections.abc import Mapping
from typing import Any

from rnnsearch.flows.report.data import Evidence, Input, Output, StageCost
from rnnsearch.flows.report.view import RunView
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.ledger import Attempt


def evidence(view: RunView) -> tuple[Evidence, ...]:
    """One entry a stage, in the order of the run."""
    makers: dict[str, str] = {}
    entries = []
    order = list(view.request.get("stages", ()))
    stages = sorted(view.attempts, key=lambda stage: order.index(stage) if stage in order else len(order))
    for stage in stages:
        attempt = view.attempts[stage]
        recipe = attempt.recipe
        versions = [
            f"Python {recipe.python}",
            *(f"{name} {v}" for name, v in sorted(recipe.libraries.items())),
        ]
        adopted = attempt.adopted
        entries.append(
            Evidence(
                id=stage,
                stage=stage,
                key=attempt.key,
                code=recipe.code,
                attempt=attempt.number,
                cached=view.uses[stage].hit,
                outputs=tuple(_output(view, attempt, name) for name in attempt.outputs),
                inputs=tuple(
                    Input(name=name, digest=digest, made_by=makers.get(digest, ""))
                    for name, digest in recipe.inputs.items()
                ),
                config=_text(recipe.config),
                versions=", ".join(versions),
                placement=_text(attempt.placement),
                observations=_text(attempt.observations),
                adopted=""
                if adopted is None
                else f"{adopted.why} (attempt {adopted.number} of {adopted.key[:12]})",
            )
        )
        makers |= dict.fromkeys(attempt.outputs.values(), stage)
    return tuple(entries)


def costs(view: RunView) -> tuple[StageCost, ...]:
    """What each stage took, or would have taken again had it not been there."""
    found = []
    for stage, use in view.uses.items():
        attempt = view.attempts.get(stage)
        seen = attempt.observations.get("seconds") if attempt else None
        seconds = seen if use.hit else use.seconds
        found.append(
            StageCost(
                stage=stage,
                seconds=float(seconds) if isinstance(seconds, int | float) else None,
                cached=use.hit,
                device=device(attempt) if attempt else "",
                evidence=view.evidence(stage),
            )
        )
    return tuple(found)


def device(attempt: Attempt) -> str:
    """What an attempt ran on, in a word or two."""
    placement = attempt.placement
    seen = attempt.observations.get("device")
    if isinstance(seen, str):
        workers = attempt.observations.get("workers", placement.get("train_workers", 1))
        return f"{workers} × {seen}" if isinstance(workers, int) and workers > 1 else seen
    processors = placement.get("processors")
    return f"{processors:g} processors" if isinstance(processors, int | float) else ""


def _output(view: RunView, attempt: Attempt, name: str) -> Output:
    digest = attempt.outputs[name]
    try:
        artifact = view.store.read_artifact(digest)
    except StoreError:
        return Output(name=name, digest=digest)
    rows = attempt.rows.get(name, artifact.rows)
    return Output(name=name, digest=digest, files=len(artifact.files), rows=rows, size=artifact.size)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) if value else ""
