"""Normalisation of both sides, the same for training, dev, test and for what a user translates.

Damaged text is repaired first, if asked for (repairs.py). Then, in this order:

1. Typographic quotes become straight ones, if asked for (`straight_quotes`).
2. Control characters, line and paragraph separators (categories Cc, Zl, Zp: tab, a lone carriage return,
   U+0085, U+2028 …) become spaces. Characters that show nothing and only steer layout (byte order mark, soft
   hyphen, zero-width space, word joiner, marks of writing direction) are removed.
3. Unicode NFC; after step 2, which may bring a letter and its accent together.
4. Every run of spaces of any kind becomes one U+0020, except a run of no-break spaces only (U+00A0, U+202F,
   U+2007), which becomes one U+00A0: French writes `10 000` and `« mot »` with it. Outer spaces go.

What to do with a no-break space between tokens is the tokeniser's business (tokenization.py).
"""

import re
import unicodedata
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import CleanConfig, FilterConfig, LanguagesConfig
from rnnsearch.pipeline.filters import apply_filters
from rnnsearch.pipeline.repairs import repaired
from rnnsearch.pipeline.schemas import PAIRS
from rnnsearch.pipeline.sieve import Mask, column, sieve

# RE2. Characters below U+0300 are NFC whatever stands beside them, and so are the common punctuation and
# currency signs; a text of such characters with single U+0020 inside is normal already. Almost all text is.
_SAFE = r"[!-~\x{A1}-\x{AC}\x{AE}-\x{2FF}\x{2010}-\x{2027}\x{2030}-\x{205E}\x{20A0}-\x{20BF}]+"
_NORMAL = rf"^(?:{_SAFE}(?: {_SAFE})*)?$"

_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]+")
_CONTROL = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029]")
_SPACES = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_NO_BREAK = frozenset("\u00a0\u202f\u2007")
_QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}


class Cleaned(NamedTuple):
    """Normalised pairs, and the dropped ones with their reasons: `empty_source`, `empty_target`, the filters'."""

    kept: pa.Table
    dropped: pa.Table


class Normalized(NamedTuple):
    """The same rows, both sides normalised."""

    kept: pa.Table


def clean_shard(
    pairs: pa.Table, config: CleanConfig, filters: FilterConfig, languages: LanguagesConfig
) -> Cleaned:
    """Normalise training pairs, drop those with an empty side, and those to which a filter applies."""
    rows = normalized_rows(pairs, config)
    empty = {f"empty_{side}": _empty(column(rows, side)) for side in ("source", "target")}
    return Cleaned(*sieve(rows, {**empty, **apply_filters(rows, filters, languages)}))


def normalize_shard(pairs: pa.Table, config: CleanConfig) -> Normalized:
    """Normalise dev or test pairs. No row goes: line n of another system's output stays line n of the test set."""
    return Normalized(normalized_rows(pairs, config))


def normalize(text: str, config: CleanConfig) -> str:
    """One sentence, as `clean_shard` would normalise it."""
    return str(normalized(pa.array([text], pa.string()), config)[0].as_py())


def normalized(texts: pa.Array, config: CleanConfig) -> pa.Array:
    """A column of sentences (no nulls), normalised."""
    texts = repaired(texts, config)
    if not config.normalize:
        return pc.utf8_trim(texts, characters=" ")
    if config.straight_quotes:
        for curly, straight in _QUOTES.items():
            texts = pc.replace_substring(texts, curly, straight)
    odd = pc.invert(pc.match_substring_regex(texts, _NORMAL))
    changed = [_normalize(text) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(changed, pa.string()))


def normalized_rows(pairs: pa.Table, config: CleanConfig) -> pa.Table:
    """The same pairs, both sides normalised."""
    source, target = (normalized(column(pairs, side), config) for side in ("source", "target"))
    return pa.Table.from_arrays([pairs["corpus"], pairs["line"], pairs["key"], source, target], schema=PAIRS)


def _empty(texts: pa.Array) -> Mask:
    return np.asarray(pc.equal(texts, "").to_numpy(zero_copy_only=False), dtype=np.bool_)


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", _CONTROL.sub(" ", text)))
    return _SPACES.sub(_space, text).strip(" \u00a0")


def _space(run: re.Match[str]) -> str:
    return "\u00a0" if _NO_BREAK.issuperset(run[0]) else " "
