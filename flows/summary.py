"""The summary of a run in a list of runs. Imports stay light."""

import json
from contextlib import suppress
from typing import NamedTuple

from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store


class Summary(NamedTuple):
    """The best evaluated system of a run; None where nothing was trained or evaluated, or its scores are gone."""

    bleu: float | None  # tokenised, All
    updates: int | None


def summarize(store: Store, run: Run) -> Summary:
    """The summary of a run, whatever version made it."""
    uses = {use.stage: use for use in run.uses}
    found = []
    for stage, use in uses.items():
        kind, _, system = stage.partition("/")
        training = store.ledger.attempt(use.key, use.attempt, stage) if kind == "train" else None
        if training is None:
            continue
        evaluated, bleu = uses.get(f"evaluate/{system}"), None
        if evaluated is not None:
            evaluation = store.ledger.attempt(evaluated.key, evaluated.attempt, evaluated.stage)
            with suppress(StoreError, ValueError, KeyError):
                bleu = None if evaluation is None else bleu_of(store, evaluation)
        found.append(Summary(bleu, training.observations.get("updates")))
    return max(found, key=lambda each: (each.bleu is not None, each.bleu or 0.0), default=Summary(None, None))


def bleu_of(store: Store, evaluation: Attempt) -> float:
    """The tokenised BLEU of an evaluation, on all of its test set."""
    (file,) = store.read_artifact(evaluation.outputs["scores"]).files
    scores = json.loads(store.get_bytes(file.digest))
    return float(scores["subsets"]["all"]["bleu"]["score"])
