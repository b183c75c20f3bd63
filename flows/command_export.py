"""`rnnsearch export --as model`: a system as a folder that `translate --model` loads on a machine without the store."""

import json
import sys
from pathlib import Path

from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.export import Card, CardScore, export_model
from rnnsearch.flows.places import check_new_folder
from rnnsearch.flows.systems import TrainedSystem, choose_system
from rnnsearch.flows.terminal import emit
from rnnsearch.storage.store import Store

_SEEN = ("updates", "epochs", "hours", "device", "workers", "threads")


def export_system(
    location: str, run: str | None, system: str | None, folder: Path, *, as_json: bool = False
) -> None:
    """Write the best system of a run, or a named one, into a new folder and print its path."""
    check_new_folder(folder)
    store = Store.open(location, create=False)
    found = last_finished(store) if run is None else store.runs.find(run)
    chosen = choose_system(store, found, system)
    export_model(
        store,
        folder,
        model=chosen.training.outputs["model"],
        source=chosen.shortlist.outputs["source"],
        target=chosen.shortlist.outputs["target"],
        text=chosen.text,
        search=chosen.settings.search,
        card=_card(store, chosen),
    )
    sys.stderr.write(f"system {chosen.name} of run {chosen.run}\n")
    if as_json:
        emit({"folder": folder, "run": chosen.run, "system": chosen.name, "bleu": chosen.bleu})
    else:
        sys.stdout.write(f"{folder}\n")


def _card(store: Store, system: TrainedSystem) -> Card:
    seen = system.training.observations
    return Card(
        name=system.name,
        corpora=[(name, corpus.licence) for name, corpus in system.settings.corpora.items()],
        training={name: _short(seen[name]) for name in _SEEN if name in seen},
        scores=_scores(store, system),
        recipe=system.training.key,
    )


def _scores(store: Store, system: TrainedSystem) -> list[CardScore]:
    if system.evaluation is None:
        return []
    artifact = system.evaluation.outputs["scores"]
    (file,) = store.read_artifact(artifact).files
    subsets = json.loads(store.get_bytes(file.digest))["subsets"]
    found = []
    for name, scores in subsets.items():
        bleu = scores.get("bleu")
        if bleu is not None:
            found.append(CardScore(f"BLEU, {name}", f"{bleu['score']:.2f}", bleu["signature"], artifact))
    return found


def _short(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
