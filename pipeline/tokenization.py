"""Moses tokenisation: its rules as sacremoses holds them (regular expressions, abbreviations); no lowercasing.

Two things are ours. A token is separated by U+0020 alone (protocol trap 26): a no-break space between two digits
belongs to the number and stays inside its token (`10 000` is one token, as `10,000` is), and any other one parts
words, as Moses takes it. And almost every rule looks no further than the next space, so what the rules make of a
stretch between two spaces is remembered: the same tokens as from sacremoses, several times faster.
"""

import re
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sacremoses import MosesDetokenizer, MosesTokenizer

from rnnsearch.pipeline.config import TokenizeConfig
from rnnsearch.pipeline.languages import moses_language
from rnnsearch.pipeline.schemas import PAIRS, words
from rnnsearch.pipeline.sieve import column

_PARTING = re.compile(r"(?<!\d)\u00a0|\u00a0(?!\d)")  # the no-break spaces that are not inside a number
_SPACES = re.compile(r"[^\S\u00a0]+")
_STAND_IN = "\ufdd0"  # a noncharacter: holds the place of U+00A0 where sacremoses would split
_REMEMBERED = 150_000_000  # bytes of remembered stretches and their tokens, nearly: see `_size`
_AT_EDGES = ("'", ",")  # the rules for these differ at either end of a text,
_LINKED = "' '"  # and here one reaches over a space
_DOT = "\ufdd1"  # another noncharacter: a dot among several. Moses writes a word instead, which text may have
_MULTIDOT = re.compile(r"\.{2,}"), lambda dots: f" {_DOT * len(dots[0])} "
_ESCAPES = (  # in the order of Moses: & first
    ("&", "&amp;"),
    ("|", "&#124;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    ("'", "&apos;"),
    ('"', "&quot;"),
    ("[", "&#91;"),
    ("]", "&#93;"),
)

# An apostrophe that stands apart from the letters that it joins: `d ' action`, `l ’ homme`, `don ’ t`. Moses joins only
# what its own rules part, at a straight apostrophe.
_ELIDED = "[cdjlmnstCDJLMNST]|(?i:qu|jusqu|lorsqu|puisqu|quoiqu|presqu|quelqu|aujourd|entr)"
_PARTED = {
    "fr": (re.compile(rf"(?<![^ ])({_ELIDED}) ?('|’|&apos;) (?=\w)"), r"\1\2"),
    "it": (re.compile(r"(?<![^ ])([^\W\d_]*[cdglmnstvCDGLMNSTV]) ?(’) (?=\w)"), r"\1\2"),
    "en": (re.compile(r"(?<=\w) (’) ?(s|t|m|d|re|ve|ll)(?![^ ])", re.IGNORECASE), r"\1\2"),
}


class Tokenized(NamedTuple):
    """The same rows, both sides tokens joined by U+0020."""

    pairs: pa.Table


class Tokenizer:
    """Moses rules of one language."""

    def __init__(self, language: str) -> None:
        """Take the rules of `language`, such as `fr` or `fr-CA`, from sacremoses."""
        language = moses_language(language)
        self._moses = MosesTokenizer(language)
        self._apostrophe = {
            "en": self._moses.ENGLISH_SPECIFIC_APOSTROPHE,
            "fr": self._moses.FR_IT_SPECIFIC_APOSTROPHE,
            "it": self._moses.FR_IT_SPECIFIC_APOSTROPHE,
        }.get(language, [self._moses.NON_SPECIFIC_APOSTROPHE])
        self._numeric = frozenset(self._moses.NUMERIC_ONLY_PREFIXES)
        self._abbreviations = frozenset(self._moses.NONBREAKING_PREFIXES) - self._numeric
        self._alpha = frozenset(self._moses.IsAlpha)
        self._alnum = frozenset(self._moses.IsAlnum)
        self._lower = frozenset(self._moses.IsLower)
        self._parts: dict[str, list[str]] = {}
        self._held = 0  # bytes, nearly

    def __call__(self, text: str, escape: bool) -> str:
        """The tokens of `text`, joined by U+0020; with `escape`, `'` is written `&apos;` and so on."""
        text = separated(text)
        if text[:1] in _AT_EDGES or text[-1:] in _AT_EDGES or _LINKED in text:
            tokens = self._spaced(text)
        else:
            tokens = [token for stretch in words(text) for token in self._remembered(stretch)]
        tokens = self._periods(tokens)
        if tokens and tokens[-1].endswith(".'"):
            tokens[-1:] = [token for token in (tokens[-1][:-2], ".", "'") if token]
        result = " ".join(tokens).replace(_DOT, ".")
        if escape:
            for character, entity in _ESCAPES:
                result = result.replace(character, entity)
        return result

    def _remembered(self, stretch: str) -> list[str]:
        parts = self._parts.get(stretch)
        if parts is None:
            word = self._alnum.issuperset(stretch)
            parts = [stretch] if word else self._spaced(f" {stretch} ")
            size = _size(stretch, parts)
            if self._held + size > _REMEMBERED:
                self._parts.clear()
                self._held = 0
            if size <= _REMEMBERED:
                self._parts[stretch] = parts
                self._held += size
        return parts

    def _spaced(self, text: str) -> list[str]:
        """The tokens of `text` before periods are looked at."""
        moses = self._moses
        rules = [moses.PAD_NOT_ISALNUM]
        if ".." in text:
            rules.append(_MULTIDOT)
        if "," in text:
            rules += (moses.COMMA_SEPARATE_1, moses.COMMA_SEPARATE_2, moses.COMMA_SEPARATE_3)
        if "'" in text:
            rules += self._apostrophe
        for pattern, replacement in rules:
            text = pattern.sub(replacement, text)
        return [token for token in text.split(" ") if token]

    def _periods(self, tokens: list[str]) -> list[str]:
        """Part the period from each token, unless the token is an abbreviation or its sentence goes on."""
        result = []
        for token, following in zip(tokens, [*tokens[1:], ""], strict=False):
            word = token[:-1]
            if token[-1] != "." or not word or self._keeps_period(word, following):
                result.append(token)
            else:
                result += (word, ".")
        return result

    def _keeps_period(self, word: str, following: str) -> bool:
        return (
            ("." in word and not self._alpha.isdisjoint(word))
            or word in self._abbreviations
            or following[:1] in self._lower
            or (word in self._numeric and "0" <= following[:1] <= "9")
        )


class Detokenizer:
    """Puts the tokens of one language together again."""

    def __init__(self, language: str) -> None:
        """Take the rules of `language`, such as `fr` or `fr-CA`, from sacremoses."""
        language = moses_language(language)
        self._moses = MosesDetokenizer(language)
        self._parted = _PARTED.get(language)

    def __call__(self, tokens: str) -> str:
        """The text of these tokens, joined by U+0020. Escaped ones (`&apos;`) are read as well."""
        if self._parted is not None:
            pattern, joined = self._parted
            tokens = pattern.sub(joined, tokens)
        held = tokens.replace("\u00a0", _STAND_IN).split(" ")
        return str(self._moses.detokenize(held)).replace(_STAND_IN, "\u00a0")


def _size(stretch: str, parts: list[str]) -> int:
    """Bytes that a remembered stretch takes, at most by half more: objects, and four bytes a character."""
    return 250 + 60 * len(parts) + 8 * len(stretch)


@cache
def tokenizer(language: str) -> Tokenizer:
    """The tokeniser of `language`, made once per process."""
    return Tokenizer(language)


@cache
def detokenizer(language: str) -> Detokenizer:
    """The detokeniser of `language`, made once per process."""
    return Detokenizer(language)


def tokenize(text: str, language: str, escape: bool = False) -> str:
    """The tokens of a clean text, joined by U+0020."""
    return tokenizer(language)(text, escape)


def detokenize(tokens: str, language: str) -> str:
    """The text that these tokens, joined by U+0020, came from, as far as it can be known."""
    return detokenizer(language)(tokens)


def separated(text: str) -> str:
    """The text with single U+0020 between words, and no other space but U+00A0 inside numbers."""
    if text.isascii() or "\u00a0" not in text:
        return " ".join(text.split())
    return _SPACES.sub(" ", _PARTING.sub(" ", text)).strip(" ")


def tokenize_shard(pairs: pa.Table, config: TokenizeConfig) -> Tokenized:
    """Tokenise both sides of clean pairs; nothing is dropped."""
    corpora = column(pairs, "corpus").cast(pa.string())
    names = corpora.unique().to_pylist()
    sides = []
    for side, language in (("source", config.source_language), ("target", config.target_language)):
        texts = column(pairs, side)
        tokens = texts
        for name in names:
            mine = pc.equal(corpora, name)
            made = [_tokens(text, language, config, name) for text in texts.filter(mine).to_pylist()]
            tokens = pc.replace_with_mask(tokens, mine, pa.array(made, pa.string()))
        sides.append(tokens)
    columns = [pairs["corpus"], pairs["line"], pairs["key"], *sides]
    return Tokenized(pa.Table.from_arrays(columns, schema=PAIRS))


def _tokens(text: str, language: str, config: TokenizeConfig, corpus: str) -> str:
    return separated(text) if config.given(corpus) else tokenize(text, language, config.escape)
