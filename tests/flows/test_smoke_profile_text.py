"""The committed lines of the smoke profile: made by tests/smoke_text.py, varied, and dirty where they should be."""

import importlib.util
import unicodedata
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

PROFILES = Path(__file__).parents[2] / "flows" / "profiles"


@pytest.fixture(scope="module")
def smoke_text() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smoke_text", Path(__file__).parents[1] / "smoke_text.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(name: str) -> list[str]:
    return (PROFILES / name).read_bytes().decode().removesuffix("\n").split("\n")


def mended(text: str) -> str:
    """What any sound cleaning makes of these files' dirt."""
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl") else c for c in unicodedata.normalize("NFC", text)
    )
    return " ".join(text.replace("\ufeff", "").split())


def test_the_committed_files_are_what_the_generator_writes(smoke_text: ModuleType) -> None:
    for name, text in smoke_text.files().items():
        assert (PROFILES / name).read_bytes() == text.encode(), (
            f"run python tests/smoke_text.py: {name} differs"
        )


def test_sides_and_keys_are_aligned_and_keys_are_unique() -> None:
    keys = lines("smoke.key")
    assert len(keys) == len(set(keys)) == len(lines("smoke.en")) == len(lines("smoke.fr"))
    assert len(lines("smoke-other.en")) == len(lines("smoke-other.fr"))


def test_cleaning_leaves_the_grammar_s_pairs_and_nothing_else(smoke_text: ModuleType) -> None:
    pairs = [(mended(en), mended(fr)) for en, fr in zip(lines("smoke.en"), lines("smoke.fr"), strict=True)]
    whole = [pair for pair in pairs if all(pair)]
    assert len(pairs) - len(whole) == sum(dirt.why == "empty" for dirt in smoke_text.DIRTY) > 0
    assert len(whole) - len(set(whole)) == sum(dirt.why == "duplicate" for dirt in smoke_text.DIRTY) > 0
    assert set(whole) == set(
        smoke_text.unique(smoke_text.Grammar(smoke_text.SEED).sentences(), smoke_text.PAIRS)
    )


def test_dirt_of_every_kind_is_there() -> None:
    text = (PROFILES / "smoke.en").read_text() + (PROFILES / "smoke.fr").read_text()
    for sign in ("  ", "\t", "\x07", "\x1b", "\u2028", "\ufeff", "e\u0301"):
        assert sign in text


def test_lengths_run_from_three_words_to_twenty_five() -> None:
    for name in ("smoke.en", "smoke.fr"):
        lengths = Counter(len(line.split()) for line in map(mended, lines(name)) if line)
        assert min(lengths) in (3, 4)
        assert max(lengths) == 25
        assert len(lengths) > 18


@pytest.mark.parametrize(
    ("noun", "adjective", "plural", "expected"),
    [
        ("tree", "old", False, "le vieil arbre"),
        ("tree", "white", False, "l'arbre blanc"),
        ("island", "new", False, "la nouvelle île"),
        ("story", "red", False, "l'histoire rouge"),
        ("horse", "beautiful", True, "les beaux chevaux"),
        ("egg", "beautiful", False, "le bel œuf"),
        ("key", "white", True, "les clés blanches"),
    ],
)
def test_french_agrees_and_elides(
    smoke_text: ModuleType, noun: str, adjective: str, plural: bool, expected: str
) -> None:
    thing = next(each for each in smoke_text.NOUNS if each.en == noun)
    quality = next(each for each in smoke_text.ADJECTIVES if each.en == adjective)
    assert smoke_text.definite(smoke_text.described(thing, quality, plural).fr, thing, plural) == expected


def test_participles_agree_with_an_object_before_them(smoke_text: ModuleType) -> None:
    by_name = {noun.en: noun for noun in smoke_text.NOUNS}
    take = next(verb for verb in smoke_text.ACTIONS if verb.en == "take")
    forms = [
        smoke_text.participle(take, by_name[noun], plural)
        for noun in ("book", "key")
        for plural in (False, True)
    ]
    assert forms == ["pris", "pris", "prise", "prises"]
