"""Duplicates and leaks leave the training data (DESIGN 5).

A training pair leaks if its source is a dev or test source, or its target a dev or test target. Sentences
are compared by their letters, marks and digits alone, in lower case, so that spaces, punctuation, capitals
and the shape of quotes hide nothing. Very short sentences ("Amen.", "Yes.") stand in every text and give
nothing away: those of fewer than `minimum_words` words are no leak.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import LeakageConfig
from rnnsearch.pipeline.errors import LeakageError
from rnnsearch.pipeline.sieve import Mask, column, dropped, first_reason, sieve

_SENTENCES = pa.schema(
    [
        pa.field("side", pa.string(), nullable=False),  # source or target
        pa.field("text", pa.string(), nullable=False),  # as `letters` leaves it
        pa.field("words", pa.int32(), nullable=False),
    ]
)
_WORD = r"[\p{L}\p{M}\p{N}]+"
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_SIDES = ("source", "target")
_EXAMPLES_SHOWN = 3


class EvaluationSentences(NamedTuple):
    """The dev and test sentences, each side's once, sorted: `side`, `text`, `words`."""

    sentences: pa.Table


class Gated(NamedTuple):
    """What may be trained on, what was dropped, and all leaks, whether dropped or not."""

    kept: pa.Table
    dropped: pa.Table
    leaks: pa.Table


def evaluation_sentences(pairs: pa.Table) -> pa.Table:
    """Partial step, over dev and test: both sides, reduced to letters."""
    parts = [_SENTENCES.empty_table()]
    for side in _SIDES:
        texts = column(pairs, side)
        columns = [pa.repeat(side, len(texts)), letters(texts), pc.count_substring_regex(texts, _WORD)]
        parts.append(pa.Table.from_arrays(columns, schema=_SENTENCES))
    return _unique(pa.concat_tables(parts))


def gather_sentences(partials: Sequence[pa.Table]) -> EvaluationSentences:
    """Merge: each sentence once, in an order that does not depend on the partials."""
    return EvaluationSentences(_unique(pa.concat_tables([_SENTENCES.empty_table(), *partials])))


def gate_shard(pairs: pa.Table, duplicates: pa.Table, sentences: pa.Table, config: LeakageConfig) -> Gated:
    """Drop the rows in `duplicates` (column `row`), then those that leak.

    Reasons: `duplicate`, `leaked_source`, `leaked_target`. With `report` leaks are kept; with `stop` they
    raise LeakageError. `leaks` tells them in each case, and no duplicates among them.
    """
    again = np.zeros(pairs.num_rows, dtype=np.bool_)
    again[duplicates["row"].to_numpy()] = True
    leaking = {
        f"leaked_{side}": _leaks(column(pairs, side), side, sentences, config) & ~again for side in _SIDES
    }
    leaks = dropped(pairs, list(leaking), first_reason(pairs.num_rows, list(leaking.values())))
    if config.action == "stop" and leaks.num_rows:
        raise LeakageError(_complaint(leaks))
    reasons = {"duplicate": again, **(leaking if config.action == "drop" else {})}
    return Gated(*sieve(pairs, reasons), leaks)


def letters(texts: pa.Array) -> pa.Array:
    """The letters, marks and digits of each text, in lower case, nothing between them."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), _NO_WORD, "")


def _leaks(texts: pa.Array, side: str, sentences: pa.Table, config: LeakageConfig) -> Mask:
    long_enough = pc.greater_equal(sentences["words"], config.minimum_words)
    known = sentences.filter(pc.and_(pc.equal(sentences["side"], side), long_enough))["text"]
    found = pc.is_in(letters(texts), value_set=known.combine_chunks())
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _unique(sentences: pa.Table) -> pa.Table:
    # Two spellings of one text may have different numbers of words; the larger number decides.
    unique = sentences.group_by(["side", "text"]).aggregate([("words", "max")])
    named = unique.rename_columns(["side", "text", "words"])
    return named.sort_by([("side", "ascending"), ("text", "ascending")]).cast(_SENTENCES)


def _complaint(leaks: pa.Table) -> str:
    counts = pc.value_counts(column(leaks, "reason").cast(pa.string())).to_pylist()
    first = [f"{row['corpus']} line {row['line']}" for row in leaks.slice(0, _EXAMPLES_SHOWN).to_pylist()]
    return (
        f"{leaks.num_rows:,} training pairs of this shard are dev or test sentences ("
        + ", ".join(f"{count['values']}: {count['counts']:,}" for count in counts)
        + f"), the first at {'; '.join(first)}; set leakage.action to drop, or take them out of the corpus"
    )
