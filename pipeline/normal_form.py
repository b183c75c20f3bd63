"""The normal form by which two sentences are compared: typography does not matter.

Entities are unescaped, also twice escaped ones; NFKC and case folding follow; everything but letters, marks and
digits parts words and is dropped. So `l'été`, `l’ÉTÉ`, `l&apos;été` and the tokens `l ' été` are one text. The
scripts that write no spaces (Han, kana, Thai, Lao, Khmer, Burmese) are read character by character.
"""

import html
import re
import unicodedata
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_CHARACTERS_PER_WORD = 2  # of a script without spaces: `你好世界` is about as long as `hello world`
# What parts words: all but letters, marks and digits; letters that are written as apostrophes; and a mark that stands
# alone, as NFKC leaves of `´`.
_APOSTROPHES = r"\x{2B9}-\x{2BF}\x{2C8}\x{2CA}\x{2CB}\x{2EE}\x{A78C}"
_PARTING = rf"(?:(?:^|[^\p{{L}}\p{{M}}\p{{N}}])\p{{M}}+|[^\p{{L}}\p{{M}}\p{{N}}]|[{_APOSTROPHES}])+"
_ENTITY = r"&(?:#?\w+;)"
_MOST_UNESCAPED = 3  # times: `&amp;amp;quot;` is the most that was seen

# The characters whose case folding is not their lower case (ß, ς, ŉ, Cherokee …), as a class of RE2.
_FOLDED = re.compile(
    "[{}]".format(
        "".join(
            character
            for character in map(chr, range(0x80, 0x1_0000))
            if not "\ud800" <= character <= "\udfff" and character.lower() != character.casefold()
        )
    )
)


class NormalForms(NamedTuple):
    """The normal forms of some sentences."""

    letters: pa.Array  # string: letters, marks and digits, nothing between them
    spaced: (
        pa.Array
    )  # string: the same in words joined by U+0020; a character of a spaceless script is a word
    words: pa.Array  # int32: the length in words, where two characters of a spaceless script count as one


def normal_forms(texts: pa.Array) -> NormalForms:
    """The normal form of each sentence (no nulls)."""
    folded = _folded(texts)
    apart = pc.replace_substring_regex(folded, rf"([{_SPACELESS}]\p{{M}}*)", r" \1 ")
    spaced = pc.utf8_trim(pc.replace_substring_regex(apart, _PARTING, " "), characters=" ")
    every = pc.count_substring_regex(spaced, r"[^ ]+")
    characters = pc.count_substring_regex(spaced, rf"[{_SPACELESS}]\p{{M}}*")
    whole = pc.divide(pc.add(characters, _CHARACTERS_PER_WORD - 1), _CHARACTERS_PER_WORD)
    words = pc.add(pc.subtract(every, characters), whole).cast(pa.int32())
    return NormalForms(pc.replace_substring(spaced, " ", ""), spaced, words)


def letters(texts: pa.Array) -> pa.Array:
    """The normal form of each sentence without spaces: equal where two sentences are the same text."""
    return pc.replace_substring_regex(_folded(texts), _PARTING, "")


def _folded(texts: pa.Array) -> pa.Array:
    """Entities unescaped, NFKC, case folded."""
    escaped = pc.match_substring_regex(texts, _ENTITY)
    if pc.any(escaped).as_py():
        unescaped = [_unescaped(text) for text in texts.filter(escaped).to_pylist()]
        texts = pc.replace_with_mask(texts, escaped, pa.array(unescaped, pa.string()))
    lower = pc.utf8_lower(pc.utf8_normalize(texts, form="NFKC"))
    odd = pc.match_substring_regex(lower, _FOLDED.pattern)
    if pc.any(odd).as_py():
        folded = [text.casefold() for text in lower.filter(odd).to_pylist()]
        lower = pc.replace_with_mask(lower, odd, pa.array(folded, pa.string()))
    return pc.utf8_normalize(lower, form="NFKC")


def _unescaped(text: str) -> str:
    for _ in range(_MOST_UNESCAPED):
        plain = html.unescape(text)
        if plain == text:
            break
        text = plain
    return unicodedata.normalize("NFC", text)
