"""Filters of training pairs: each a name and a mask over a shard, as users of OpusFilter know them.

A filter sees the clean text of both sides. One whose threshold is not set does not look at all.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from ftfy.fixes import fix_c1_controls

from rnnsearch.pipeline.config import FilterConfig, LanguagesConfig
from rnnsearch.pipeline.languages import moses_language, script
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.repairs import ENTITY, repair_mojibake
from rnnsearch.pipeline.schemas import words
from rnnsearch.pipeline.sieve import Mask, column
from rnnsearch.pipeline.slip import slipped_rows

FloatArray = npt.NDArray[np.float64]

HTML = rf"</?[A-Za-z][^<>]*>|{ENTITY}"
_PHRASE = 4  # words of the longest phrase whose repetition is looked for
_FEWEST_LETTERS = 8  # in all, for a script or a language to be judged by
_SCRIPTS = {
    "Arab": r"\p{Arabic}", "Armn": r"\p{Armenian}", "Beng": r"\p{Bengali}", "Cyrl": r"\p{Cyrillic}",
    "Deva": r"\p{Devanagari}", "Ethi": r"\p{Ethiopic}", "Geor": r"\p{Georgian}", "Grek": r"\p{Greek}",
    "Gujr": r"\p{Gujarati}", "Guru": r"\p{Gurmukhi}", "Hans": r"\p{Han}", "Hant": r"\p{Han}",
    "Hebr": r"\p{Hebrew}", "Jpan": r"\p{Han}\p{Hiragana}\p{Katakana}", "Khmr": r"\p{Khmer}",
    "Knda": r"\p{Kannada}", "Kore": r"\p{Hangul}\p{Han}", "Laoo": r"\p{Lao}", "Latn": r"\p{Latin}",
    "Mlym": r"\p{Malayalam}", "Mymr": r"\p{Myanmar}", "Orya": r"\p{Oriya}", "Sinh": r"\p{Sinhala}",
    "Taml": r"\p{Tamil}", "Telu": r"\p{Telugu}", "Thai": r"\p{Thai}",
}  # fmt: skip


class Identified(NamedTuple):
    """What language identification says of each pair."""

    wrong: Mask  # one side is of the other language
    swapped: Mask  # both are


def apply_filters(rows: pa.Table, config: FilterConfig, languages: LanguagesConfig) -> Mapping[str, Mask]:
    """The filters that are on, by the reason that they give, in their order."""
    sides = column(rows, "source"), column(rows, "target")
    return dict(_masks(rows, *sides, config, languages))


def _masks(
    rows: pa.Table, source: pa.Array, target: pa.Array, config: FilterConfig, languages: LanguagesConfig
) -> Iterator[tuple[str, Mask]]:
    counted = [_counts(side, r"[^ ]+") for side in (source, target)]
    lengths = [pc.utf8_length(side).to_numpy() for side in (source, target)]
    if config.min_words is not None:
        yield "too_few_words", np.minimum(*counted) < config.min_words
    if config.max_words is not None:
        yield "too_many_words", np.maximum(*counted) > config.max_words
    if config.max_characters is not None:
        yield "too_long", np.maximum(*lengths) > config.max_characters
    if config.max_word_characters is not None:
        longer = rf"[^ ]{{{min(config.max_word_characters, 999) + 1}}}"
        yield "long_word", _either(lambda side: pc.match_substring_regex(side, longer), source, target)
    if config.max_word_ratio is not None:
        yield "word_ratio", _ratio(*counted) > config.max_word_ratio
    if config.max_character_ratio is not None:
        yield "character_ratio", _ratio(*lengths) > config.max_character_ratio
    if config.identical:
        yield "identical", _mask(pc.equal(letters(source), letters(target)))
    if config.min_letters is not None:
        shares = [_share(_counts(side, r"[\p{L}\p{M}]"), _counts(side, "[^ ]")) for side in (source, target)]
        yield "few_letters", np.minimum(*shares) < config.min_letters
    if config.min_script is not None:
        shares = [_script_share(source, languages.source), _script_share(target, languages.target)]
        yield "wrong_script", np.minimum(*shares) < config.min_script
    if config.min_digits is not None:
        yield "digits_differ", digit_similarity(source, target) < config.min_digits
    if config.max_repeats is not None:
        most = config.max_repeats
        yield (
            "repeated",
            _either(lambda side: _per_row(side, lambda text: repeats(text) > most), source, target),
        )
    if config.html:
        yield "html", _either(lambda side: pc.match_substring_regex(side, HTML), source, target)
    if config.mojibake:
        yield "mojibake", _either(is_mojibake, source, target)
    if config.slipped:
        yield "slipped", slipped_rows(rows)
    if config.languages:
        found = identify(source, target, languages)
        yield "swapped", found.swapped
        yield "wrong_language", found.wrong


def digit_similarity(source: pa.Array, target: pa.Array) -> FloatArray:
    """How much the digits but 0 of both sides have in common, from 0 to 1; 1 where there are none."""
    found = np.ones(len(source))
    some = _either(lambda side: pc.match_substring_regex(side, r"\p{Nd}"), source, target)
    for row in np.flatnonzero(some).tolist():
        ours, theirs = (
            Counter(str(int(digit)) for digit in re.findall(r"\d", side[row].as_py()) if int(digit))
            for side in (source, target)
        )
        total = ours.total() + theirs.total()
        found[row] = 2 * (ours & theirs).total() / total if total else 1.0
    return found


def repeats(text: str) -> int:
    """How often a phrase of up to 4 words stands on end, at the most: 1 where none is said twice."""
    tokens, most = words(text), 1
    for size in range(1, min(_PHRASE, len(tokens) // 2) + 1):
        run = 0
        for before, after in zip(tokens, tokens[size:], strict=False):
            run = run + 1 if before == after else 0
            most = max(most, run // size + 1)
    return most


def is_mojibake(texts: pa.Array) -> pa.Array:
    """Which texts ftfy would repair: UTF-8 that was read as another encoding, and not cp1252's controls alone."""
    odd = pc.match_substring_regex(texts, "[^\x00-\x7f]")
    plain = [fix_c1_controls(text) for text in texts.filter(odd).to_pylist()]
    bad = [repair_mojibake(text) != text for text in plain]
    return pc.replace_with_mask(pa.repeat(False, len(texts)), odd, pa.array(bad, pa.bool_()))


def identify(source: pa.Array, target: pa.Array, languages: LanguagesConfig) -> Identified:
    """Which sides are of the other side's language; short ones are not judged."""
    ours, theirs = moses_language(languages.source), moses_language(languages.target)
    named = _identifier(ours, theirs)
    found = []
    for side in (source, target):
        judged = _counts(side, r"\p{L}") >= _FEWEST_LETTERS
        found.append(
            [named(text) if long else "" for text, long in zip(side.to_pylist(), judged, strict=True)]
        )
    first = np.array([language == theirs for language in found[0]], np.bool_)
    second = np.array([language == ours for language in found[1]], np.bool_)
    return Identified(first ^ second, first & second)


@cache
def _identifier(first: str, second: str) -> Callable[[str], str]:
    """Tells which of two languages a text is in. The library is an extra: `filter.languages` alone wants it."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages([first, second])
    return lambda text: str(identifier.classify(text)[0])


def _script_share(texts: pa.Array, language: str) -> FloatArray:
    """The share of letters in the script of the language; 1 where there are few letters, or the script is not known."""
    pattern = _SCRIPTS.get(script(language))
    if pattern is None:
        return np.ones(len(texts))
    every = _counts(texts, r"\p{L}")
    shares = _share(_counts(pc.replace_substring_regex(texts, r"\P{L}+", ""), f"[{pattern}]"), every)
    return np.where(every < _FEWEST_LETTERS, 1.0, shares)


def _counts(texts: pa.Array, pattern: str) -> npt.NDArray[np.int64]:
    return np.asarray(pc.count_substring_regex(texts, pattern).to_numpy(), np.int64)


def _ratio(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> FloatArray:
    ratio: FloatArray = np.maximum(first, second) / np.maximum(np.minimum(first, second), 1)
    return ratio


def _share(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> FloatArray:
    share: FloatArray = np.where(whole > 0, part / np.maximum(whole, 1), 1.0)
    return share


def _either(test: Callable[[pa.Array], pa.Array], source: pa.Array, target: pa.Array) -> Mask:
    return _mask(test(source)) | _mask(test(target))


def _per_row(texts: pa.Array, test: Callable[[str], bool]) -> pa.Array:
    return pa.array([test(text) for text in texts.to_pylist()], pa.bool_())


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
