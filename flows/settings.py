"""A profile: everything that decides what a run makes, and the placement, which decides only where.

A profile is TOML: one of those shipped in `profiles/`, or a file of the user's. `--set section.key=value` changes
single keys; the value is read as TOML, and as a plain string where it is not TOML.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from rnnsearch.flows.cpus import usable_cpus
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.flows.sources.lockfile import lock_path, pinned_by, read_lock
from rnnsearch.flows.sources.secrets import redacted
from rnnsearch.model.config import GROUNDHOG, NetworkConfig, SearchConfig, TrainConfig
from rnnsearch.pipeline.config import (
    CleanConfig,
    DuplicatesConfig,
    EncodeConfig,
    EvaluateConfig,
    FilterConfig,
    Format,
    HoldoutConfig,
    IngestConfig,
    LanguageModelConfig,
    LeakageConfig,
    Section,
    SelectConfig,
    ShortlistConfig,
    TokenizeConfig,
)

PROFILES = Path(__file__).parent / "profiles"
BACKWARD = "backward"  # the system of the other direction, which only aligns
SEARCHES = {"plain": SearchConfig(), "groundhog": GROUNDHOG}  # what `search.preset` may name


S = TypeVar("S", bound=BaseModel)


class SettingsError(ValueError):
    """A profile or an override that cannot be used; the message says which key and what would do."""

    def __init__(self, message: str) -> None:
        """Keep the message without the secrets of addresses that it quotes."""
        super().__init__(redacted(message))


class CorpusConfig(Section):
    """A named set of pairs: which source holds it, in which format, under which licence."""

    source: str | tuple[str, ...]  # one source, or one for each side
    format: Format
    licence: str = ""
    declared_pairs: int | None = Field(default=None, ge=0)  # as its publisher says; shown by `plan`
    declared_words: int | None = Field(default=None, ge=0)  # of the target language

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that hold the corpus."""
        return (self.source,) if isinstance(self.source, str) else self.source


class SystemConfig(Section):
    """One system of the comparison: a network, its training and the length of the pairs it sees."""

    network: NetworkConfig = NetworkConfig()
    train: TrainConfig = TrainConfig()
    max_words: int = Field(default=50, gt=0)
    continues: str | None = None  # the system whose final state this training starts from
    row: str = ""  # the row of the paper's Table 1 that this system stands for


class ExternalConfig(Section):
    """Another system's translations of the test set: one line a sentence, in the order of the test set."""

    source: str  # the source that holds them
    tokens: bool  # true: tokens as ours are, separated by spaces; false: running text, which we tokenise
    row: str = ""  # the row of the paper's Table 1 that it stands for: Moses


class AlignmentConfig(Section):
    """Links to hold the attention of every system against: one line for each test sentence and its reference."""

    gold: str | None = (
        None  # a source: `i-j` sure, `ipj` possible, from 0; an empty line where nobody made links
    )
    backward: str | SystemConfig | None = None
    """The other direction: a system to train for it, or a source with its links `j-i`, as `export --as text` writes
    them."""

    @model_validator(mode="after")
    def _is_of_use(self) -> Self:
        if self.gold is None and self.backward is None:
            raise ValueError("there are no links; set alignment.gold, alignment.backward or both")
        if isinstance(self.backward, SystemConfig):
            if self.backward.network.kind == "rnnencdec":
                raise ValueError("alignment.backward looks at no source word; give it another network.kind")
            if self.backward.continues is not None:
                raise ValueError(
                    "alignment.backward continues no system; remove alignment.backward.continues"
                )
        return self

    @property
    def sources(self) -> Mapping[str, str]:
        """The sources of links that were made elsewhere."""
        named = {"gold": self.gold, "backward": self.backward}
        return {name: source for name, source in named.items() if isinstance(source, str)}


class SweepConfig(Section):
    """Beam width against quality and latency, on the first sentences of dev."""

    beams: tuple[Annotated[int, Field(gt=0, le=10_000)], ...] = Field(default=(1, 2, 4, 8, 12), min_length=1)
    sentences: int = Field(default=200, gt=0)
    systems: tuple[str, ...] = ()  # all of them, if none is named

    @field_validator("beams")
    @classmethod
    def _ascend(cls, beams: tuple[int, ...]) -> tuple[int, ...]:
        if list(beams) != sorted(set(beams)):
            raise ValueError(f"beams must ascend, not {beams}")
        return beams


class PlacementConfig(Section):
    """Where things run: never part of a recipe, always recorded."""

    train_workers: int = Field(default=1, gt=0, le=10_000)
    threads_per_worker: int = Field(default=0, ge=0, le=10_000)  # 0: the usable CPUs, shared by the workers
    stages_at_once: int = Field(default=1, gt=0, le=10_000)
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one

    def threads(self) -> int:
        """Threads of each training worker."""
        return self.threads_per_worker or max(1, usable_cpus().usable // self.train_workers)


class Settings(Section):
    """A whole profile."""

    title: str
    about: str = ""
    sources: dict[str, SourceConfig]
    corpora: dict[str, CorpusConfig]
    ingest: IngestConfig = IngestConfig()
    holdout: HoldoutConfig
    clean: CleanConfig = CleanConfig()
    filter: FilterConfig = FilterConfig()
    duplicates: DuplicatesConfig = DuplicatesConfig()
    leakage: LeakageConfig = LeakageConfig()
    tokenize: TokenizeConfig = TokenizeConfig()
    language_model: LanguageModelConfig = LanguageModelConfig()
    select: SelectConfig | None = None  # absent: every pair that passed the gate is kept
    shortlist: ShortlistConfig = ShortlistConfig()
    encode: EncodeConfig = EncodeConfig()
    systems: dict[str, SystemConfig]
    external: dict[str, ExternalConfig] = Field(default_factory=dict)
    search: SearchConfig = SearchConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    alignment: AlignmentConfig | None = None  # absent: attention is held against nothing
    sweep: SweepConfig | None = None  # absent: one beam only
    placement: PlacementConfig = PlacementConfig()

    @field_validator("search", mode="before")
    @classmethod
    def _preset(cls, search: Any) -> Any:
        """A preset stands for its settings: recipes hold these, not its name. Keys beside it change single ones."""
        if not isinstance(search, dict) or "preset" not in search:
            return search
        others = {name: value for name, value in search.items() if name != "preset"}
        return {**preset(search["preset"]).model_dump(), **others}

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        def known(name: str, names: Iterable[str], where: str) -> None:
            if name not in names:
                raise ValueError(f"{where} names {name!r}, which is not among {', '.join(names) or 'none'}")

        for corpus, config in self.corpora.items():
            for source in config.sources:
                known(source, self.sources, f"corpora.{corpus}.source")
        held = self.holdout
        for corpus in (*held.dev_corpora, *held.test_corpora, *((held.corpus,) if held.corpus else ())):
            known(corpus, self.corpora, "holdout")
        for corpus in self.select.per_corpus if self.select else ():
            known(corpus, self.corpora, "select.per_corpus")
        for name, other in self.external.items():
            known(other.source, self.sources, f"external.{name}.source")
            if name in self.systems:
                raise ValueError(f"external.{name} has the name of one of our systems; give it another")
        for key, source in (self.alignment.sources if self.alignment else {}).items():
            known(source, self.sources, f"alignment.{key}")
        if BACKWARD in (*self.systems, *self.external):
            raise ValueError(f"the name {BACKWARD!r} is that of the other direction; give the system another")
        for corpus in self.tokenize.pretokenized_corpora:
            known(corpus, self.corpora, "tokenize.pretokenized_corpora")
        for system in self.sweep.systems if self.sweep else ():
            known(system, self.systems, "sweep.systems")
        for system, chosen in self.systems.items():
            if chosen.continues is not None:
                known(chosen.continues, self.systems, f"systems.{system}.continues")
                if chosen.network != self.systems[chosen.continues].network:
                    raise ValueError(f"systems.{system} continues {chosen.continues} but its network differs")
        for system in self.systems:
            line = [system]
            while (base := self.systems[line[-1]].continues) is not None:
                if base in line:
                    raise ValueError(
                        f"systems.{system}.continues goes round in a circle: {' → '.join([*line, base])}"
                    )
                line.append(base)
        return self


def load_settings(profile: str, overrides: Iterable[str] = (), *, locked: bool = True) -> Settings:
    """Read a profile by name or by path and apply `section.key=value` overrides in order.

    Relative `file:` sources are meant from the profile's folder. If `locked`, the lock file beside the profile pins
    the sources that have no digest of their own. Raises SettingsError.
    """
    path = find_profile(profile)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from error
    for override in overrides:
        _override(values, override)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(f"the profile {profile}", error, Settings)) from error
    try:
        pins = read_lock(lock_path(path)) if locked else {}
    except ValueError as error:
        raise SettingsError(str(error)) from error
    sources = {
        name: pinned_by(source.resolved(path.parent), pins.get(name))
        for name, source in settings.sources.items()
    }
    return settings.model_copy(update={"sources": sources})


def preset(name: object) -> SearchConfig:
    """The search of this name. Raises SettingsError."""
    if not isinstance(name, str) or name not in SEARCHES:
        raise SettingsError(f"search.preset is one of {', '.join(SEARCHES)}, not {name!r}")
    return SEARCHES[name]


def apply_overrides(config: S, overrides: Iterable[str], name: str) -> S:
    """One section with `key=value` overrides applied in order. Raises SettingsError."""
    values = config.model_dump(mode="json")
    for override in overrides:
        _override(values, override)
    try:
        return type(config).model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(name, error, type(config))) from error


def setting_names(settings: Settings) -> Iterator[str]:
    """The path of every setting, with the names that a profile gives to sources, corpora and systems."""
    tables = {name: list(getattr(settings, name)) for name in ("sources", "corpora", "systems", "external")}
    for path in dict.fromkeys(_paths(Settings)):
        table, entry, rest = path.partition(".NAME.")
        if not entry:
            yield path
        for name in tables.get(table, ()):
            yield f"{table}.{name}.{rest}"


def find_profile(profile: str) -> Path:
    """The file of a profile given by name (`demo`) or by path (`mine.toml`)."""
    if profile.endswith(".toml") or "/" in profile:
        path = Path(profile)
        if not _is_file(path):
            raise SettingsError(f"there is no profile {profile}; `rnnsearch init` writes one to start from")
        return path.resolve()
    path = PROFILES / f"{profile}.toml"
    if not _is_file(path):
        shipped = sorted(each.stem for each in PROFILES.glob("*.toml"))
        raise SettingsError(
            f"there is no profile {profile!r}{_nearest(profile, shipped)}; shipped: {', '.join(shipped)}"
        )
    return path


def _override(values: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise SettingsError(f"--set {_short(override)} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, a number of too many digits, brackets without end
        value = text
    place = values
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise SettingsError(f"--set {_short(override)}: {key!r} is a value, not a section")
    place[keys[-1]] = value


def _short(value: object) -> str:
    """A value as a message shows it."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= 200 else f"{text[:150]} … {text[-20:]}"


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a name that is too long


def _explain(profile: str, error: ValidationError, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        place, names = _located(model, [str(part) for part in problem["loc"]])
        where = ".".join(place)
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where} is not a setting; {_hint(place[-1], names, model)}")
        elif problem["type"] == "value_error":
            lines.append(f"{where + ': ' if where else ''}{problem['ctx']['error']}")
        else:
            found = "" if problem["type"] == "missing" else f", found {_short(problem['input'])}"
            lines.append(f"{where}: {problem['msg'][:1].lower()}{problem['msg'][1:]}{found}")
    return f"{profile} cannot be used:\n  " + "\n  ".join(lines)


def _located(root: type[BaseModel], path: Sequence[str]) -> tuple[list[str], list[str]]:
    """Where a problem is, without pydantic's tags of unions, and the names that are valid there."""
    kinds: list[Any] = [root]  # what may stand at this place: sections, or a table of them
    place: list[str] = []
    names: list[str] = []
    for position, part in enumerate(path, 1):
        names = [name for kind in kinds for name in getattr(kind, "model_fields", ())]
        if len(kinds) > 1 and part not in names and position < len(path):
            continue  # the tag of one of them
        place.append(part)
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    return place, names


def _inside(kind: Any, name: str) -> Sequence[Any]:
    """What may stand under a name in a section, or in a table of sections."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(name)
        found = None if field is None else field.annotation
    else:
        found = next(reversed(get_args(kind)), None)
    options = get_args(found) if get_origin(found) in (Union, UnionType) else (found,)
    return [option for option in options if option not in (None, NoneType)]


def _hint(name: str, names: Sequence[str], model: type[BaseModel]) -> str:
    """What was meant by an unknown name: one of its own section, the path of one elsewhere, or what there is."""
    paths = list(_paths(model))
    elsewhere = {path.rpartition(".")[2] for path in paths}
    # A name of the same section may be farther off than one that must be sought elsewhere.
    for places, cutoff in ((names, 0.8), (elsewhere, 1.0), (names, 0.6), (elsewhere, 0.75)):
        if near := difflib.get_close_matches(name, places, n=1, cutoff=cutoff):
            if places is names:
                return f"did you mean {near[0]!r}?"
            meant = dict.fromkeys(path for path in paths if path.rpartition(".")[2] == near[0])
            return f"did you mean {' or '.join(map(repr, list(meant)[:3]))}?"
    return f"there are {', '.join(dict.fromkeys(names))}"


def _paths(kind: Any, before: str = "") -> Iterator[str]:
    """The path of every setting below a section or a table of sections, whose entries are called NAME."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name in kind.model_fields:
            yield before + name
            for inner in _inside(kind, name):
                yield from _paths(inner, f"{before}{name}.")
    elif get_origin(kind) is dict:
        for inner in _inside(kind, "NAME"):
            yield from _paths(inner, f"{before}NAME.")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
