"""Filters of training pairs: each a name and a mask over a shard, as users of OpusFilter know them.

A filter sees the clean text of both sides. One whose threshold is not set does not look at all.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from ftfy.fixes import fix_c1_controls

from rnnsearch.pipeline.config import FilterConfig, LanguagesConfig
from rnnsearch.pipeline.languages import moses_language, script
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.repairs import ENTITY, repair_mojibake
from rnnsearch.pipeline.sieve import Mask, column
from rnnsearch.pipeline.slip import slipped_rows

FloatArray = npt.NDArray[np.float64]

HTML = rf"</?[A-Za-z][^<>]*>|{ENTITY}"
# A byte that begins a character in UTF-8 and one that goes on with it, read as cp1252 or Latin-1; or any character of
# another script, whose encodings have other signs. Most text has neither and need not be looked at closely.
_SUSPECT = (
    "[\u00c2-\u00f4][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013\u2014\u2018-\u201e"
    "\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]|[\u00c2\u00c3] |[^\u0000-\u024f\u2000-\u21ff]"
)
_PHRASE = 4  # words of the longest phrase whose repetition is looked for
_FEWEST_LETTERS = 8  # in all, for a script or a language to be judged by
_FEWEST_PAIRS, _FEWEST_WORDS = 100, 4  # by which sides can be told apart: pairs of a shard, words of a side
_CLEAR = 0.5  # mean weight of a word
_SCRIPTS = {
    "Arab": r"\p{Arabic}", "Armn": r"\p{Armenian}", "Beng": r"\p{Bengali}", "Cyrl": r"\p{Cyrillic}",
    "Deva": r"\p{Devanagari}", "Ethi": r"\p{Ethiopic}", "Geor": r"\p{Georgian}", "Grek": r"\p{Greek}",
    "Gujr": r"\p{Gujarati}", "Guru": r"\p{Gurmukhi}", "Hans": r"\p{Han}", "Hant": r"\p{Han}",
    "Hebr": r"\p{Hebrew}", "Jpan": r"\p{Han}\p{Hiragana}\p{Katakana}", "Khmr": r"\p{Khmer}",
    "Knda": r"\p{Kannada}", "Kore": r"\p{Hangul}\p{Han}", "Laoo": r"\p{Lao}", "Latn": r"\p{Latin}",
    "Mlym": r"\p{Malayalam}", "Mymr": r"\p{Myanmar}", "Orya": r"\p{Oriya}", "Sinh": r"\p{Sinhala}",
    "Taml": r"\p{Tamil}", "Telu": r"\p{Telugu}", "Thai": r"\p{Thai}",
}  # fmt: skip


def apply_filters(rows: pa.Table, config: FilterConfig, languages: LanguagesConfig) -> Mapping[str, Mask]:
    """The filters that are on, by the reason that they give, in their order."""
    sides = column(rows, "source"), column(rows, "target")
    return dict(_masks(rows, *sides, config, languages))


def _masks(
    rows: pa.Table, source: pa.Array, target: pa.Array, config: FilterConfig, languages: LanguagesConfig
) -> Iterator[tuple[str, Mask]]:
    counted = [_words(side) for side in (source, target)]
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
        shares = [_share(_letters(side), _characters(side)) for side in (source, target)]
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
            _either(lambda side: repeated_phrases(side, most), source, target),
        )
    if config.html:
        yield "html", _either(lambda side: pc.match_substring_regex(side, HTML), source, target)
    if config.mojibake:
        yield "mojibake", _either(is_mojibake, source, target)
    if config.slipped:
        yield "slipped", slipped_rows(rows)
    if config.swapped:
        yield "swapped", swapped_sides(source, target)
    if config.languages:
        yield "wrong_language", wrong_language(source, target, languages)


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


def repeated_phrases(texts: pa.Array, most: int) -> pa.Array:
    """Which texts say a phrase of up to 4 words more than `most` times on end."""
    lists = pc.split_pattern(texts, " ")
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(texts)), sizes)
    word = np.asarray(lists.flatten().dictionary_encode().indices.to_numpy(), np.int64)
    found = np.zeros(len(texts), np.bool_)
    for size in range(1, _PHRASE + 1):
        again = (word[size:] == word[:-size]) & (owner[size:] == owner[:-size])
        total, run = np.concatenate([[0], np.cumsum(again)]), size * most
        found[owner[np.flatnonzero(total[run:] - total[:-run] == run)]] = True
    return pa.array(found)


def is_mojibake(texts: pa.Array) -> pa.Array:
    """Which texts ftfy would repair: UTF-8 that was read as another encoding, and not cp1252's controls alone."""
    odd = pc.match_substring_regex(texts, _SUSPECT)
    plain = [fix_c1_controls(text) for text in texts.filter(odd).to_pylist()]
    bad = [repair_mojibake(text) != text for text in plain]
    return pc.replace_with_mask(pa.repeat(False, len(texts)), odd, pa.array(bad, pa.bool_()))


def swapped_sides(source: pa.Array, target: pa.Array) -> Mask:
    """Which pairs have changed their sides: their words stand on the other side in the other pairs.

    The weight of a word is the logarithm of how often it stands on the source side to how often on the target side.
    A few pairs say nothing, and so do sides of few words.
    """
    lists = [pc.split_pattern(pc.utf8_lower(side), " ") for side in (source, target)]
    if len(source) < _FEWEST_PAIRS:
        return np.zeros(len(source), np.bool_)
    words = pa.concat_arrays([some.flatten() for some in lists]).dictionary_encode()
    codes = words.indices.to_numpy()
    first = len(lists[0].flatten())
    counts = [np.bincount(part, minlength=len(words.dictionary)) for part in (codes[:first], codes[first:])]
    weights = np.log(counts[0] + 1.0) - np.log(counts[1] + 1.0)
    means, sizes = [], []
    for some, part in zip(lists, (codes[:first], codes[first:]), strict=True):
        size = np.asarray(pc.list_value_length(some).to_numpy(zero_copy_only=False), np.int64)
        owner = np.repeat(np.arange(len(size)), size)
        means.append(np.bincount(owner, weights[part], minlength=len(size)) / np.maximum(size, 1))
        sizes.append(size)
    long_enough = np.minimum(*sizes) >= _FEWEST_WORDS
    swapped: Mask = (means[0] < -_CLEAR) & (means[1] > _CLEAR) & long_enough
    return swapped


def wrong_language(source: pa.Array, target: pa.Array, languages: LanguagesConfig) -> Mask:
    """Which pairs have a side of the other side's language; short sides are not judged."""
    ours, theirs = moses_language(languages.source), moses_language(languages.target)
    named, found = _identifier(ours, theirs), np.zeros(len(source), np.bool_)
    for side, other in ((source, theirs), (target, ours)):
        judged = _letters(side, "") >= _FEWEST_LETTERS
        texts = zip(side.to_pylist(), judged, strict=True)
        found |= np.array([long and named(text) == other for text, long in texts], np.bool_)
    return found


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
    every = pc.replace_substring_regex(texts, r"\P{L}+", "")
    mine = pc.replace_substring_regex(every, f"[^{pattern}]+", "")
    every, mine = (np.asarray(pc.utf8_length(some).to_numpy(), np.int64) for some in (every, mine))
    shares = _share(mine, every)
    return np.where(every < _FEWEST_LETTERS, 1.0, shares)


def _words(texts: pa.Array) -> npt.NDArray[np.int64]:
    """What stands between spaces; clean text has one between two words and none outside."""
    spaces = np.asarray(pc.count_substring(texts, " ").to_numpy(), np.int64)
    return np.where(_mask(pc.equal(texts, "")), 0, spaces + 1)


def _letters(texts: pa.Array, also: str = r"\p{M}") -> npt.NDArray[np.int64]:
    """Letters, and what `also` names."""
    kept = pc.replace_substring_regex(texts, rf"[^\p{{L}}{also}]+", "")
    return np.asarray(pc.utf8_length(kept).to_numpy(), np.int64)


def _characters(texts: pa.Array) -> npt.NDArray[np.int64]:
    """All but spaces."""
    lengths, spaces = pc.utf8_length(texts), pc.count_substring(texts, " ")
    return np.asarray(pc.subtract(lengths, spaces).to_numpy(), np.int64)


def _ratio(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> FloatArray:
    ratio: FloatArray = np.maximum(first, second) / np.maximum(np.minimum(first, second), 1)
    return ratio


def _share(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> FloatArray:
    share: FloatArray = np.where(whole > 0, part / np.maximum(whole, 1), 1.0)
    return share


def _either(test: Callable[[pa.Array], pa.Array], source: pa.Array, target: pa.Array) -> Mask:
    return _mask(test(source)) | _mask(test(target))


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
