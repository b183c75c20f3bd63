"""Language codes: validation by BCP 47, and the languages with tokeniser rules."""

import re

import langcodes

from rnnsearch.pipeline.errors import TextError

# The languages for which Moses, as sacremoses has it, holds rules or abbreviations of their own.
_MOSES = """as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml
mni mr nl or pa pl pt ro ru sk sl sv ta tdt te yue zh"""
MOSES = frozenset(re.findall(r"\w+", _MOSES))
SPACELESS = frozenset(("zh", "yue", "ja", "th", "lo", "km", "my"))  # their writing does not part words


def resolve(code: str) -> str:
    """The canonical form of a language code: `en` of `EN` and `eng`, `fr-FR` of `fr_fr`.

    Raises TextError for what is not a code of a language, with the code that is nearest.
    """
    tag = langcodes.standardize_tag(code) if langcodes.tag_is_valid(code) else "und"
    if moses_language(tag) != "und":
        return tag
    raise TextError(f"{code!r} is not a language code of BCP 47, such as en or pt-BR{_nearest(code)}")


def moses_language(code: str) -> str:
    """The language whose Moses rules a text in `code`, as `resolve` writes it, gets: without script and region."""
    return code.partition("-")[0]


def script(code: str) -> str:
    """The script that the language is mostly written in, such as `Latn`."""
    return langcodes.Language.get(code).maximize().script or ""


def tokenizer_note(code: str) -> str:
    """A warning about tokenising this language, or "" if Moses has rules for it."""
    language, name = moses_language(code), langcodes.Language.get(code).display_name()
    if language in SPACELESS:
        return (
            f"{name} ({code}) is written without spaces, and Moses parts no words in it; "
            "tokenise it beforehand and set tokenize.pretokenized"
        )
    if language not in MOSES:
        return f"Moses has no rules for {name} ({code}): its text gets the general rules and English abbreviations"
    return ""


def _nearest(code: str) -> str:
    """The language that is named so, or whose code begins so."""
    try:
        return f"; did you mean {langcodes.find(code).to_tag()!r}?"
    except LookupError:
        pass
    for start in (code[:3].lower(), code[:2].lower()):
        if re.fullmatch("[a-z]{2,3}", start) and langcodes.tag_is_valid(start):
            tag = langcodes.standardize_tag(start)
            return f"; did you mean {tag!r} ({langcodes.Language.get(tag).display_name()})?"
    return ""
