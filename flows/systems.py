"""The systems of a run as something that translates: which is best, and its model, shortlists and rules of text."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import Settings
from rnnsearch.flows.summary import bleu_of
from rnnsearch.flows.translator import TextConfig, Translator
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store


@dataclass(frozen=True)
class TrainedSystem:
    """One system of a run."""

    run: str
    name: str
    settings: Settings
    training: Attempt
    shortlist: Attempt
    evaluation: Attempt | None
    bleu: float | None  # tokenised, All; None where it was not evaluated

    def translator(self, store: Store) -> Translator:
        """Load it."""
        source, target = (
            store.get_table(store.read_artifact(self.shortlist.outputs[side]).files[0].digest)
            for side in ("source", "target")
        )
        model = store.local_folder(self.training.outputs["model"])
        return Translator(model, source, target, self.text, self.name)

    @property
    def text(self) -> TextConfig:
        """What was done to the text that it learned from."""
        return TextConfig(clean=self.settings.clean, tokenize=self.settings.tokenize)


def choose_system(store: Store, run: Run, name: str | None) -> TrainedSystem:
    """The system of this name, or the one of the highest BLEU; of equal ones, one that attends.

    Raises UsageError if the run has none.
    """
    try:
        settings = Settings.model_validate(run.request["settings"])
    except ValidationError as error:
        raise UsageError(
            f"the settings of run {run.id} are not those of this version ({error.errors()[0]['msg']}); use the "
            "version that made it, or run its profile again"
        ) from error
    used = {use.stage: store.ledger.attempt(use.key, use.attempt, use.stage) for use in run.uses}
    systems = dict(_systems(store, run.id, settings, used))
    if not systems:
        raise UsageError(f"run {run.id} trained no system; `rnnsearch runs {run.id}` shows what it did")
    if name is None:
        return max(systems.values(), key=_rank)
    if name not in systems:
        raise UsageError(f"run {run.id} has no system {name!r}; it has {', '.join(systems)}")
    return systems[name]


def _rank(system: TrainedSystem) -> tuple[bool, float, bool]:
    attends = system.settings.systems[system.name].network.kind != "rnnencdec"
    return system.bleu is not None, system.bleu or 0.0, attends


def _systems(
    store: Store, run: str, settings: Settings, used: Mapping[str, Attempt | None]
) -> Mapping[str, TrainedSystem]:
    shortlist = used.get("shortlist")
    found = {}
    for name in settings.systems:
        training, evaluation = used.get(f"train/{name}"), used.get(f"evaluate/{name}")
        if training is not None and shortlist is not None:
            bleu = None if evaluation is None else bleu_of(store, evaluation)
            found[name] = TrainedSystem(run, name, settings, training, shortlist, evaluation, bleu)
    return found
