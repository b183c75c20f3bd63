"""Moses tokenisation, by sacremoses; no lowercasing.

Tokens are separated by U+0020 alone (PAPER trap 26). A no-break space between two digits belongs to the
number and stays inside its token (`10 000` is one token, as `10,000` is); any other one parts words, as Moses
takes it.
"""

from functools import cache
from typing import NamedTuple

import pyarrow as pa
from sacremoses import MosesDetokenizer, MosesTokenizer

from rnnsearch.pipeline.config import TokenizeConfig
from rnnsearch.pipeline.schemas import PAIRS
from rnnsearch.pipeline.sieve import column


class Tokenized(NamedTuple):
    """The same rows, both sides tokens joined by U+0020."""

    pairs: pa.Table


class Tokenizer:
    """Moses rules of one language."""

    def __init__(self, language: str) -> None:
        """Compile the rules of `language`, such as `fr`."""
        self._moses = MosesTokenizer(language)

    def __call__(self, text: str, escape: bool) -> str:
        """The tokens of `text`, joined by U+0020; with `escape`, `'` is `&apos;` and so on."""
        return str(self._moses.tokenize(text, escape=escape, return_str=True))


class Detokenizer:
    """Puts the tokens of one language together again."""

    def __init__(self, language: str) -> None:
        """Choose the rules of `language`, such as `fr`."""
        self._moses = MosesDetokenizer(language)

    def __call__(self, tokens: str) -> str:
        """The text of the tokens in `tokens`."""
        return str(self._moses.detokenize(tokens.split(" ")))


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


def tokenize_shard(pairs: pa.Table, config: TokenizeConfig) -> Tokenized:
    """Tokenise both sides of clean pairs; nothing is dropped."""
    if config.pretokenized:
        return Tokenized(pairs)
    sides = [
        pa.array(
            [tokenize(text, language, config.escape) for text in column(pairs, side).to_pylist()], pa.string()
        )
        for side, language in (("source", config.source_language), ("target", config.target_language))
    ]
    return Tokenized(
        pa.Table.from_arrays([pairs["corpus"], pairs["line"], pairs["key"], *sides], schema=PAIRS)
    )
