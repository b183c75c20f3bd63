"""Profiles and overrides: what is read, what is refused, and what a refusal says."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from rnnsearch.flows.settings import (
    PROFILES,
    Settings,
    SettingsError,
    SystemConfig,
    apply_overrides,
    find_profile,
    load_settings,
)
from rnnsearch.model.config import GROUNDHOG, SearchConfig, TrainConfig
from rnnsearch.pipeline.config import Budget

SHIPPED = sorted(path.stem for path in PROFILES.glob("*.toml"))

MINE = """
title = "Mine"
[sources.text]
url = "texts/pairs.zip"
mirrors = ["https://example.org/pairs.zip", "elsewhere/pairs.zip"]
[corpora.plain]
source = "text"
format = { format = "plain", source = "a.en", target = "a.fr" }
[holdout]
corpus = "plain"
dev = 2
test = 2
[systems.base]
[systems.longer]
continues = "base"
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of a user's own, in a folder of its own."""
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


def _refusal(*overrides: str, profile: str = "smoke") -> str:
    with pytest.raises(SettingsError) as refused:
        load_settings(profile, overrides)
    return str(refused.value)


class Number(NamedTuple):
    """A numeric setting: the section that declares it, its name and bounds, and how a value of it is written."""

    section: type[BaseModel]
    name: str
    kind: type
    bounds: Mapping[str, float]
    in_tuple: bool
    or_text: bool  # a name may stand there instead

    def refuses(self, value: object) -> bool:
        """Whether a value is refused for what it is; other settings may be missing."""
        try:
            self.section.model_validate({self.name: [value] if self.in_tuple else value})
        except ValidationError as error:
            return any(problem["loc"][0] == self.name for problem in error.errors())
        return False


def _inner(annotation: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Every type inside an annotation, with the metadata next to it."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        for found, more in _inner(inner):
            yield found, [*metadata, *more]
    elif get_args(annotation) and get_origin(annotation) is not Literal:
        for each in get_args(annotation):
            yield from _inner(each)
    else:
        yield annotation, ()


def _sections(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield root
    for field in root.model_fields.values():
        for kind, _ in _inner(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _sections(kind)


def _bounds(metadata: Sequence[Any]) -> dict[str, float]:
    single = [each for item in metadata for each in getattr(item, "metadata", [item])]
    return {
        name: getattr(each, name)
        for each in single
        for name in ("gt", "ge", "lt", "le")
        if hasattr(each, name)
    }


def _numbers() -> Iterator[Number]:
    for section in dict.fromkeys(_sections(Settings)):
        for name, field in section.model_fields.items():
            kinds = list(_inner(field.annotation))
            or_text = any(kind is str for kind, _ in kinds)
            for kind, metadata in kinds:
                if kind in (int, float):
                    bounds = _bounds([*field.metadata, *metadata])
                    yield Number(section, name, kind, bounds, "tuple" in str(field.annotation), or_text)


NUMBERS = [pytest.param(number, id=f"{number.section.__name__}.{number.name}") for number in _numbers()]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_finite_of_its_type_and_within_its_bounds(number: Number) -> None:
    for value in (math.inf, -math.inf, math.nan, True, *([] if number.or_text else ["3"]), 10**19, -(10**19)):
        assert number.refuses(value), value
    if number.kind is int:
        assert number.refuses(3.0)
    low = number.bounds.get("ge", number.bounds.get("gt"))
    assert low is not None, "state a lower bound"
    assert number.refuses(low - 1)
    assert number.refuses(low) == ("gt" in number.bounds)
    high = number.bounds.get("le", number.bounds.get("lt"))
    if high is not None:
        assert number.refuses(high + max(1, abs(high) * 1e-9) if number.kind is float else high + 1)
        assert number.refuses(high) == ("lt" in number.bounds)


def test_every_section_is_searched_for_numbers() -> None:
    names = {f"{param.values[0].section.__name__}.{param.values[0].name}" for param in NUMBERS}
    assert {"TrainConfig.clip_norm", "SearchConfig.retry_beam", "SweepConfig.beams", "Budget.share"} <= names
    assert {"EvaluateConfig.length_bins", "SourceConfig.size", "PlacementConfig.train_workers"} <= names


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("language_model.order", "1"),  # KenLM reads models of 2 to 6 words
        ("language_model.order", "7"),
        ("evaluate.seed", "-1"),  # NumPy
        ("systems.rnnsearch.train.updates", "1000000000"),  # the names of checkpoints have nine digits
        ("evaluate.length_bins", "[]"),
        ("systems.rnnsearch.train.learning_rate", "inf"),
        ("systems.rnnsearch.train.clip_norm", "nan"),
        ("holdout.seed", "true"),
        ("search.normalize", "1"),
        ("title", "7"),
    ],
)
def test_what_a_library_cannot_take_is_refused_by_the_profile(key: str, value: str) -> None:
    assert f"{key}: input should " in _refusal(f"{key}={value}") or f"{key}: tuple should" in _refusal(
        f"{key}={value}"
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_is_valid_and_says_what_it_is(name: str) -> None:
    settings = load_settings(name)
    assert settings.title
    assert settings.about
    assert all(corpus.licence or corpus.declared_pairs for corpus in settings.corpora.values())


def test_the_shipped_profiles_are_the_three_that_the_help_names() -> None:
    assert SHIPPED == ["demo", "smoke", "wmt14"]


@pytest.mark.parametrize(
    ("override", "where", "near"),
    [
        ("serch.beam=3", "serch", "search"),
        ("search.beem=3", "search.beem", "beam"),
        ("systems.rnnsearch.train.updats=3", "systems.rnnsearch.train.updats", "updates"),
        ("systems.rnnsearch.network.unit=3", "systems.rnnsearch.network.unit", "units"),
        ("select.budget.pear=3", "select.budget.pear", "pairs"),
        ("select.per_corpus.lines.word=3", "select.per_corpus.lines.word", "words"),
        ("sources.lines-en.urll=x", "sources.lines-en.urll", "url"),
        ("corpora.lines.sorce=x", "corpora.lines.sorce", "source"),
        ("corpora.lines.format.sorce=x", "corpora.lines.format.sorce", "source"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_valid_one_at_any_depth(
    override: str, where: str, near: str
) -> None:
    message = _refusal(override)
    assert f"{where} is not a setting; did you mean {near!r}?" in message
    assert "smoke" in message


def test_an_unknown_key_that_is_near_to_nothing_is_refused_with_the_keys_that_there_are() -> None:
    assert "quux is not a setting; there are title, about, sources, corpora, " in _refusal("quux=3")
    assert "rnnsearch.train.zzz is not a setting; there are seed, " in _refusal(
        "systems.rnnsearch.train.zzz=3"
    )


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("train.adadelta_roh=0.9", "'systems.NAME.train'"),
        ("network.units=3", "'systems.NAME.network'"),
        ("beem=3", "'search.beam'"),
        ("systems.rnnsearch.units=3", "'systems.NAME.network.units'"),
        ("pool_share=0.5", "'language_model.pool_share'"),
        ("search.clip_norm=1", "'systems.NAME.train.clip_norm'"),
    ],
)
def test_a_key_of_another_section_is_refused_with_its_whole_path(override: str, meant: str) -> None:
    assert f"is not a setting; did you mean {meant}" in _refusal(override)


def test_a_corpus_may_bear_the_name_of_a_format(profile: Path) -> None:
    message = _refusal("corpora.plain.format.sorce=x", profile=str(profile))
    assert "corpora.plain.format.sorce is not a setting; did you mean 'source'?" in message


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("search.beam", "'search.beam' is not of the form section.key=value"),
        ("=3", "'=3' is not of the form"),
        ("search..beam=3", "not of the form"),
        ("title.short=x", "'title' is a value, not a section"),
        ("search.beam=many", "search.beam: input should be a valid integer"),
        ("search.beam=many", "found 'many'"),
        ("search.beam=0", "search.beam: input should be greater than 0, found 0"),
        (
            "systems.rnnsearch.network.kind=cnn",
            "input should be 'rnnsearch', 'rnnencdec' or 'luong', found 'cnn'",
        ),
        ("holdout.corpus=news", "holdout names 'news', which is not among lines, other"),
        ('corpora.lines.source="news"', "corpora.lines.source names 'news', which is not among lines-en"),
        ("search.preset=grounthog", "search.preset is one of plain, groundhog, not 'grounthog'"),
        ("external.moses={ source='m', tokens=true }", "external.moses.source names 'm', which is not among"),
        (
            "external.rnnsearch={ source='lines-fr', tokens=true }",
            "the name of one of our systems; give it another",
        ),
        ("external.moses={ source='lines-fr' }", "external.moses.tokens: field required"),
        ("alignment={}", "there are no links; set alignment.gold, alignment.backward or both"),
        ("alignment.backward=x", "alignment.backward names 'x', which is not among lines-en"),
        (
            "alignment.backward={ network = { kind = 'rnnencdec' } }",
            "alignment: alignment.backward looks at no source word; give it another network.kind",
        ),
        ("alignment.backward={ continues = 'rnnsearch' }", "alignment.backward continues no system"),
        (
            "alignment.backward={ max_word = 3 }",
            "alignment.backward.max_word is not a setting; did you mean 'max_words'?",
        ),
        (
            "systems.backward={}",
            "the name 'backward' is that of the other direction; give the system another",
        ),
        ("sweep.systems=['luong']", "sweep.systems names 'luong', which is not among rnnencdec, rnnsearch"),
        ("sweep.beams=[4, 2]", "sweep.beams: beams must ascend"),
        ("sweep.beams=[0, 2]", "sweep.beams.0: input should be greater than 0, found 0"),
        ("sweep.beam=[2]", "sweep.beam is not a setting; did you mean 'beams'?"),
        ("select.per_corpus={news={words=3}}", "select"),
        ("systems.rnnsearch.continues=none", "systems.rnnsearch.continues names 'none'"),
        ("sources.lines-en.url=gopher://x/y", "has the scheme gopher; known are"),
        ("sources.lines-en.sha256=abc", "64 hexadecimal digits"),
        ("select.budget.share=0.5", "a budget is in words, in pairs or a share, not two of them"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_found_and_what_would_do(override: str, says: str) -> None:
    assert says in _refusal(override)


def test_all_faults_of_a_profile_are_said_at_once() -> None:
    message = _refusal("search.beam=0", "shortlist.source_words=none", "evaluat.seed=1")
    assert [line.strip().partition(" ")[0] for line in message.splitlines()[1:]] == [
        "shortlist.source_words:",
        "search.beam:",
        "evaluat",
    ]


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("search.beam=7", 7),
        ("search.beam = 7 ", 7),
        ("search.normalize=false", False),
        ("search.max_length_ratio=2.5", 2.5),
        ("search.max_length_ratio=1e1", 10.0),
        ("search.precision=float64", "float64"),  # no TOML: a plain string
        ('search.precision="float64"', "float64"),
        ("search.beam=0x10", 16),
    ],
)
def test_the_value_of_an_override_is_toml_or_else_a_plain_string(override: str, found: object) -> None:
    key = override.partition("=")[0].strip().partition(".")[2]
    assert getattr(load_settings("smoke", [override]).search, key) == found


def test_an_override_may_give_a_whole_section_a_list_or_a_new_system() -> None:
    settings = load_settings(
        "smoke",
        [
            "select={ budget = { share = 0.25 } }",
            "evaluate.length_bins=[5, 10]",
            "systems.third.max_words=9",
            'systems.fourth={ train = { updates = 3 }, row = "RNNsearch-50" }',
        ],
    )
    assert settings.select is not None
    assert settings.select.budget == Budget(share=0.25)
    assert settings.evaluate.length_bins == (5, 10)
    assert settings.systems["third"] == SystemConfig(max_words=9)
    assert settings.systems["fourth"].train == TrainConfig(updates=3)


def test_overrides_apply_in_order_and_a_later_one_wins() -> None:
    settings = load_settings("smoke", ["search={ beam = 9, normalize = false }", "search.beam=4"])
    assert (settings.search.beam, settings.search.normalize) == (4, False)


def test_a_value_with_an_equals_sign_stays_whole() -> None:
    assert load_settings("smoke", ["title=a=b"]).title == "a=b"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"systems.longer.network.units": "7"}, "systems.longer continues base but its network differs"),
        ({"systems.base.network.kind": "rnnencdec"}, "systems.longer continues base but its network differs"),
        ({"systems.longer.continues": "longer"}, "longer → longer"),
        ({"systems.base.continues": "longer"}, "base → longer → base"),
    ],
)
def test_a_training_cannot_continue_another_network_or_itself(
    profile: Path, changes: Mapping[str, str], says: str
) -> None:
    assert says in _refusal(*(f"{key}={value}" for key, value in changes.items()), profile=str(profile))


def test_a_training_may_continue_another_of_an_equal_network_with_other_settings(profile: Path) -> None:
    changes = [
        "systems.base.network.units=7",
        "systems.longer.network.units=7",
        "systems.longer.train.seed=3",
    ]
    assert load_settings(str(profile), changes).systems["longer"].continues == "base"


def test_relative_sources_and_mirrors_are_meant_from_the_folder_of_the_profile(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    expected = (tmp_path / "texts" / "pairs.zip").as_uri()
    for name in (str(profile), "../mine.toml"):
        source = load_settings(name).sources["text"]
        assert source.url == expected
        assert source.mirrors == (
            "https://example.org/pairs.zip",
            (tmp_path / "elsewhere" / "pairs.zip").as_uri(),
        )


def test_the_texts_of_the_smoke_profile_are_there() -> None:
    for source in load_settings("smoke").sources.values():
        assert Path(source.url.removeprefix("file://")).is_file()


def test_a_profile_moved_with_its_texts_gives_the_same_stages_elsewhere(tmp_path: Path) -> None:
    for path in PROFILES.glob("smoke*"):
        shutil.copy(path, tmp_path)
    here, there = load_settings("smoke"), load_settings(str(tmp_path / "smoke.toml"))
    assert there.model_copy(update={"sources": here.sources}) == here
    assert there.sources != here.sources


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smokee", "there is no profile 'smokee'; did you mean 'smoke'?; shipped: demo, smoke, wmt14"),
        ("", "there is no profile ''; shipped"),
        ("nowhere/mine.toml", "there is no profile nowhere/mine.toml; `rnnsearch init` writes one"),
        ("mine.toml", "there is no profile mine.toml"),
    ],
)
def test_an_unknown_profile_is_refused_with_those_that_there_are(name: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        find_profile(name)
    assert says in str(refused.value)


@pytest.mark.parametrize("content", [b"title = ", b"\xff\xfe", b"title = 1\ntitle = 2"])
def test_a_profile_that_is_no_toml_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    assert f"{path} is not a TOML file" in _refusal(profile=str(path))


def test_a_profile_without_systems_names_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    message = _refusal(profile=str(path))
    for missing in ("title", "sources", "corpora", "holdout", "systems"):
        assert f"{missing}: field required" in message


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {}),
        (["beam=3"], {"beam": 3}),
        (["beam=3", "beam=4", "unknown=forbid"], {"beam": 4, "unknown": "forbid"}),
    ],
)
def test_overrides_change_the_keys_that_they_name_and_no_other(
    overrides: list[str], expected: Mapping[str, Any]
) -> None:
    before = SearchConfig(beam=5, width="narrowing")
    assert apply_overrides(before, overrides, "the search") == before.model_copy(update=expected)
    assert before == SearchConfig(beam=5, width="narrowing")


def test_a_bad_override_of_one_section_names_the_section() -> None:
    with pytest.raises(SettingsError, match=r"the search cannot be used:\n  beem is not a setting.*'beam'"):
        apply_overrides(SearchConfig(), ["beem=3"], "the search")


def test_a_preset_of_the_search_stands_for_its_settings_and_single_keys_change_them() -> None:
    released = load_settings("wmt14").search
    assert released == GROUNDHOG
    assert (released.beam, released.width, released.normalize) == (10, "narrowing", False)  # protocol 4
    assert (released.min_length_ratio, released.max_length_ratio) == (0.5, 3.0)
    assert (released.keep_unfinished, released.retry_unknown, released.retry_beam) == (False, True, 500)
    assert load_settings("wmt14", ["search.beam=4"]).search == GROUNDHOG.model_copy(update={"beam": 4})
    assert load_settings("wmt14", ["search.preset=plain"]).search == SearchConfig()


@pytest.mark.parametrize(
    "override",
    [
        "sources.lines-en.url='https://me:hunter2@host/file'",
        "sources.lines-en='https://me:hunter2@host/file'",  # a string where a section belongs
        "sources.lines-en.mirrors='https://me:hunter2@host/file'",
        "sources.lines-en.size='https://host/file?token=hunter2'",
        "sources.lines-en.url='ftp://me:hunter2@host/file'",
        "sources.lines-en.url='https://host/file?x=1&X-Amz-Signature=hunter2'",
        "sources.lines-en.url:https://me:hunter2@host/file",
        "title=['https://me:hunter2@host/file?sig=hunter2']",
    ],
)
def test_no_refusal_repeats_a_secret_of_an_address(override: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings("smoke", [override])
    assert "hunter2" not in str(caught.value)
