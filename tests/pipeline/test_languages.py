import pytest
from pydantic import ValidationError
from sacremoses.corpus import NonbreakingPrefixes

from rnnsearch.pipeline.config import TokenizeConfig
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.languages import MOSES, moses_language, resolve, script, tokenizer_note
from rnnsearch.pipeline.tokenization import detokenize, tokenize


@pytest.mark.parametrize(
    ("code", "tag"),
    [
        ("EN", "en"),
        ("fr-FR", "fr-FR"),
        ("fr_fr", "fr-FR"),
        ("eng", "en"),
        ("fre", "fr"),
        ("ZH-hans", "zh-Hans"),
    ],
)
def test_a_code_has_one_spelling(code: str, tag: str) -> None:
    assert resolve(code) == tag
    assert TokenizeConfig(source_language=code).source_language == tag


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("english", "'english' is not a language code .* did you mean 'en'"),
        ("Français", "did you mean 'fr'"),
        ("zz", "'zz' is not a language code of BCP 47, such as en or pt-BR$"),
        ("", "'' is not a language code"),
        ("und", "not a language code"),
        ("frnch", "not a language code"),
        ("fr-", "not a language code"),
        (" fr", "not a language code"),
    ],
)
def test_what_is_no_code_is_refused_with_the_nearest(code: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        resolve(code)
    with pytest.raises(ValidationError, match="not a language code"):
        TokenizeConfig(target_language=code)


def test_a_region_and_a_script_change_no_rule() -> None:
    text = "L'eau d'ici, c'est aujourd'hui."
    for code in ("fr-FR", "fr-CA", "FR"):
        assert tokenize(text, resolve(code)) == tokenize(text, "fr")
        assert detokenize(tokenize(text, "fr"), resolve(code)) == text
    assert moses_language("zh-Hant-TW") == "zh"
    assert [script(code) for code in ("fr", "ru", "sr-Latn", "ja")] == ["Latn", "Cyrl", "Latn", "Jpan"]


def test_a_language_without_rules_is_told() -> None:
    assert tokenizer_note("fr-FR") == tokenizer_note("de") == ""
    assert "no rules for Swahili (sw)" in tokenizer_note("sw")
    assert "Japanese (ja) is written without spaces" in tokenizer_note("ja")


def test_the_languages_with_rules_are_those_of_sacremoses() -> None:
    assert frozenset(NonbreakingPrefixes().available_langs.values()) == MOSES
