"""The stages of a run and their dependencies. Light: `plan` reads it without torch, Prefect or Ray."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rnnsearch.flows import kinds
from rnnsearch.flows.sections import sections
from rnnsearch.flows.settings import (
    BACKWARD,
    AlignmentConfig,
    CorpusConfig,
    ExternalConfig,
    Settings,
    SettingsError,
    SweepConfig,
    SystemConfig,
)
from rnnsearch.flows.shapes import Ref, Stage
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.pipeline.config import LanguagesConfig

SPLITS = ("train", "dev", "test")


def build(settings: Settings) -> tuple[Stage, ...]:
    """All stages of a profile, each after those that it waits for."""
    return tuple(_stages(settings))


def _stages(settings: Settings) -> Iterator[Stage]:
    yield from _pairs(settings)
    yield from _clean_text(settings)
    training = Ref("tokenize/train", "pairs")
    if settings.select is not None:
        yield from _selection(settings)
        training = Ref("select", "kept")
    yield kinds.OVERLAP.stage(
        sharded={"pairs": (training,)},
        whole={"sentences": (Ref("leakage/test", "sentences"),)},
        config=sections(settings.leakage),
    )
    yield kinds.SHORTLIST.stage(sharded={"pairs": (training,)}, config=sections(settings.shortlist))
    for words in sorted({system.max_words for system in settings.systems.values()}):
        yield from _examples(settings, str(words), words, training, _shortlists())
    if settings.alignment is not None and isinstance(settings.alignment.backward, SystemConfig):
        yield from _backward(settings, settings.alignment.backward, training)
    for name in sorted(settings.systems, key=lambda name: _continued(settings, name)):
        yield from _system(settings, name, settings.systems[name])
    for name, other in settings.external.items():
        yield from _external(settings, name, other)


def _pairs(settings: Settings) -> Iterator[Stage]:
    for name, source in settings.sources.items():
        kind = kinds.DOWNLOAD if source.member is None else kinds.DOWNLOAD_MEMBER
        yield kind.stage(
            name,
            config=_identity(source),
            local=source.local if source.sha256 is None else None,
            unkeyed={"source": source.model_dump(mode="json")},
        )
    for name, corpus in settings.corpora.items():
        yield kinds.INGEST.stage(
            name,
            whole={"file": tuple(Ref(f"download/{name}", "file") for name in by_side(settings, corpus))},
            config={
                "corpus": name,
                "format": corpus.format.model_dump(mode="json"),
                **sections(settings.ingest),
            },
        )
    pairs = tuple(Ref(f"ingest/{corpus}", "pairs") for corpus in settings.corpora)
    yield kinds.SURVEY.stage(
        sharded={"pairs": pairs},
        config=sections(settings.clean, settings.filter, _languages(settings)),
        libraries=_filter_libraries(settings),
    )
    yield kinds.HOLDOUT_KEYS.stage(sharded={"pairs": pairs}, config=sections(settings.holdout))
    yield kinds.HOLDOUT.stage(
        sharded={"pairs": pairs},
        whole={"keys": (Ref("holdout-keys", "keys"),)},
        config=sections(settings.holdout),
    )


def _clean_text(settings: Settings) -> Iterator[Stage]:
    for split in SPLITS:
        if split == "train":
            yield kinds.CLEAN.stage(
                split,
                sharded={"pairs": (Ref("holdout", split),)},
                config=sections(settings.clean, settings.filter, _languages(settings)),
                libraries=_filter_libraries(settings),
            )
        else:
            yield kinds.NORMALIZE.stage(
                split, sharded={"pairs": (Ref("holdout", split),)}, config=sections(settings.clean)
            )
    kept = (Ref("clean/train", "kept"),)
    evaluation = (Ref("normalize/dev", "kept"), Ref("normalize/test", "kept"))
    yield kinds.DUPLICATES.stage(sharded={"pairs": kept}, config=sections(settings.duplicates))
    yield kinds.LEAKAGE.stage(sharded={"pairs": evaluation})
    yield kinds.LEAKAGE.stage("test", sharded={"pairs": (Ref("normalize/test", "kept"),)})
    yield kinds.GATE_DEV.stage(
        sharded={"pairs": (Ref("normalize/dev", "kept"),)},
        whole={"sentences": (Ref("leakage/test", "sentences"),)},
        config=sections(settings.leakage),
    )
    yield kinds.GATE.stage(
        sharded={"pairs": kept, "duplicates": (Ref("duplicates", "rows"),)},
        whole={"sentences": (Ref("leakage", "sentences"),)},
        config=sections(settings.leakage),
    )
    sources = {
        "train": Ref("gate", "kept"),
        "dev": Ref("gate-dev", "kept"),
        "test": Ref("normalize/test", "kept"),
    }
    for split in SPLITS:
        yield kinds.TOKENIZE.stage(
            split, sharded={"pairs": (sources[split],)}, config=sections(settings.tokenize)
        )


def _languages(settings: Settings) -> LanguagesConfig:
    return LanguagesConfig(source=settings.tokenize.source_language, target=settings.tokenize.target_language)


def _filter_libraries(settings: Settings) -> tuple[str, ...]:
    """What the filters use besides. Raises SettingsError where an optional library is wanted and not there."""
    if not settings.filter.languages:
        return ()
    if find_spec("py3langid") is None:
        raise SettingsError(
            "filter.languages needs py3langid, which is not installed; install rnnsearch[langid], or set it to false"
        )
    return ("py3langid",)


def _selection(settings: Settings) -> Iterator[Stage]:
    if settings.select is None:
        return
    models = sections(settings.language_model)
    pool = {"pairs": (Ref("tokenize/train", "pairs"),)}
    vocabulary = {
        "source_vocabulary": (Ref("selection-vocabulary", "source"),),
        "target_vocabulary": (Ref("selection-vocabulary", "target"),),
    }
    yield kinds.SELECTION_VOCABULARY.stage(sharded={"pairs": (Ref("tokenize/dev", "pairs"),)}, config=models)
    in_domain = {"in_domain": (Ref("selection-vocabulary", "text"),)}
    yield kinds.SELECTION_SAMPLE.stage(sharded=pool, whole=in_domain, config=models)
    yield kinds.LANGUAGE_MODELS.stage(
        whole=in_domain | {"sample": (Ref("selection-sample", "sample"),)} | vocabulary, config=models
    )
    yield kinds.SCORE.stage(sharded=pool, whole={"models": (Ref("language-models", "models"),)} | vocabulary)
    yield kinds.THRESHOLD.stage(
        sharded={"scores": (Ref("score", "scores"),)}, config=sections(settings.select)
    )
    yield kinds.SELECT.stage(sharded=pool | {"rows": (Ref("threshold", "rows"),)})


def _examples(
    settings: Settings, name: str, words: int, training: Ref, shortlists: Mapping[str, tuple[Ref, ...]]
) -> Iterator[Stage]:
    encode = settings.encode.model_copy(update={"max_words": words})
    yield kinds.ENCODE.stage(name, sharded={"pairs": (training,)}, whole=shortlists, config=sections(encode))
    yield kinds.ORDER.stage(
        name, whole={"examples": (Ref(f"encode/{name}", "kept"),)}, config=sections(encode)
    )


def _shortlists() -> Mapping[str, tuple[Ref, ...]]:
    return {side: (Ref("shortlist", side),) for side in ("source", "target")}


def _system(settings: Settings, name: str, system: SystemConfig) -> Iterator[Stage]:
    whole = {
        "examples": (Ref(f"order/{system.max_words}", "examples"),),
        "dev": (Ref("tokenize/dev", "pairs"),),
        **_shortlists(),
    }
    if system.continues is not None:
        whole["initial_state"] = (Ref(f"train/{system.continues}", "state"),)
    yield _training(name, system, whole)
    test = Ref("tokenize/test", "pairs")
    for policy in ("all", "no-unk"):
        unknown = "allow" if policy == "all" else "forbid"
        yield kinds.TRANSLATE.stage(
            f"{name}/{policy}",
            sharded={"tokens": (test,)},
            whole={"model": (Ref(f"train/{name}", "model"),), **_shortlists()},
            config=sections(settings.search.model_copy(update={"unknown": unknown, "n_best": 1})),
        )
    yield _evaluation(
        settings,
        name,
        all_=Ref(f"translate/{name}/all", "hypotheses"),
        no_unk=Ref(f"translate/{name}/no-unk", "hypotheses"),
        search=sections(settings.search),
    )
    if settings.alignment is not None and system.network.kind != "rnnencdec":
        yield _align(name, Ref("tokenize/test", "pairs"), _shortlists())
        yield _alignment(name, settings.alignment)
    if settings.sweep is not None and name in (settings.sweep.systems or settings.systems):
        yield _sweep(settings, name, settings.sweep)


def _training(name: str, system: SystemConfig, whole: Mapping[str, tuple[Ref, ...]]) -> Stage:
    return kinds.TRAIN.stage(name, whole=whole, config=sections(system.network, system.train))


def _backward(settings: Settings, system: SystemConfig, training: Ref) -> Iterator[Stage]:
    """A system of the other direction, on the same pairs turned around; it aligns, and translates nothing."""
    given = {"train": training} | {split: Ref(f"tokenize/{split}", "pairs") for split in ("dev", "test")}
    for split, pairs in given.items():
        yield kinds.TURN.stage(split, sharded={"pairs": (pairs,)})
    shortlists = {"source": (Ref("shortlist", "target"),), "target": (Ref("shortlist", "source"),)}
    yield from _examples(settings, BACKWARD, system.max_words, Ref("turn/train", "pairs"), shortlists)
    whole = {
        "examples": (Ref(f"order/{BACKWARD}", "examples"),),
        "dev": (Ref("turn/dev", "pairs"),),
        **shortlists,
    }
    yield _training(BACKWARD, system, whole)
    yield _align(BACKWARD, Ref("turn/test", "pairs"), shortlists)


def _external(settings: Settings, name: str, other: ExternalConfig) -> Iterator[Stage]:
    text = {} if other.tokens else sections(settings.clean, settings.tokenize)
    yield kinds.EXTERNAL.stage(
        name,
        whole={
            "file": (Ref(f"download/{other.source}", "file"),),
            "tokens": (Ref("tokenize/test", "pairs"),),
        },
        config={"tokens": other.tokens, **text},
    )
    given = Ref(f"external/{name}", "hypotheses")
    yield _evaluation(settings, name, all_=given, no_unk=given, search={"search": {}})


def _evaluation(settings: Settings, name: str, *, all_: Ref, no_unk: Ref, search: Mapping[str, Any]) -> Stage:
    return kinds.EVALUATE.stage(
        name,
        sharded={
            "hypotheses": (all_,),
            "no_unk": (no_unk,),
            "tokens": (Ref("tokenize/test", "pairs"),),
            "raw": (Ref("normalize/test", "kept"),),
        },
        whole={**_shortlists(), "overlap": (Ref("overlap", "overlap"),)},
        config={**sections(settings.evaluate, settings.tokenize), **search},
    )


def _align(name: str, pairs: Ref, shortlists: Mapping[str, tuple[Ref, ...]]) -> Stage:
    return kinds.ALIGN.stage(
        name,
        sharded={"tokens": (pairs,)},
        whole={"model": (Ref(f"train/{name}", "model"),), **shortlists},
    )


def _alignment(name: str, config: AlignmentConfig) -> Stage:
    beside = {key: Ref(f"download/{source}", "file") for key, source in config.sources.items()}
    if isinstance(config.backward, SystemConfig):
        beside["backward"] = Ref(f"align/{BACKWARD}", "alignments")
    return kinds.EVALUATE_ALIGNMENT.stage(
        name,
        whole={
            "alignments": (Ref(f"align/{name}", "alignments"),),
            **{key: (ref,) for key, ref in beside.items()},
        },
    )


def _sweep(settings: Settings, name: str, config: SweepConfig) -> Stage:
    search = settings.search.model_copy(update={"unknown": "allow", "n_best": 1})
    return kinds.SWEEP.stage(
        name,
        whole={
            "pairs": (Ref("tokenize/dev", "pairs"),),
            "model": (Ref(f"train/{name}", "model"),),
            **_shortlists(),
        },
        config={
            "sweep": config.model_dump(mode="json", include={"beams", "sentences"}),
            **sections(search, settings.evaluate, settings.tokenize),
        },
    )


def _continued(settings: Settings, name: str) -> int:
    """How many trainings a system goes on from: those come first, whatever the order of the profile."""
    base = settings.systems[name].continues
    return 0 if base is None else 1 + _continued(settings, base)


def _identity(source: SourceConfig) -> Mapping[str, Any]:
    """What decides the bytes of a source: its digest if that is known, else its address.

    The content of a local file is added when the recipe is made.
    """
    member = {} if source.member is None else {"member": source.member}
    if source.sha256 is not None:
        return {"content": source.sha256, **member}
    if source.local is not None:
        return member
    return {"url": source.url, "md5": source.md5, **member}


def by_side(settings: Settings, corpus: CorpusConfig) -> Sequence[str]:
    """The sources of a corpus; of several files the source side, the target side and the keys, in that order.

    Files that have the names that the format gives to the sides are sorted by them.
    """
    sides = [getattr(corpus.format, side, "") for side in ("source", "target", "key")]
    named = {settings.sources[name].name: name for name in corpus.sources}
    wanted = [side for side in sides if side]
    if (
        len(corpus.sources) > 1
        and len(named) == len(wanted) == len(corpus.sources)
        and set(named) == set(wanted)
    ):
        return [named[side] for side in wanted]
    return corpus.sources
