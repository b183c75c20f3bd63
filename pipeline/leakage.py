"""Duplicates and leaks leave the training data (architecture 5).

A training pair leaks if its source is a dev or test source, or its target a dev or test target, in the normal form of
`normal_form.py`: spaces, punctuation, capitals, entities and the shape of quotes hide nothing. A dev pair that shares
a side with the test set leaves dev in the same way. Very short sentences ("Amen.", "Yes.") stand in every text and
give nothing away: those of fewer than `minimum_words` words are no leak.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import LeakageConfig
from rnnsearch.pipeline.duplicates import DUPLICATE, REASONS
from rnnsearch.pipeline.errors import LeakageError
from rnnsearch.pipeline.normal_form import letters, normal_forms
from rnnsearch.pipeline.sieve import Cause, Mask, column, dropped, places, sieve

_SENTENCES = pa.schema(
    [
        pa.field("side", pa.string(), nullable=False),  # source or target
        pa.field("text", pa.string(), nullable=False),  # as `letters` leaves it
        pa.field("spaced", pa.string(), nullable=False),  # the same in words
        pa.field("words", pa.int32(), nullable=False),
        pa.field("corpus", pa.string(), nullable=False),  # of its first place, by corpus and line
        pa.field("line", pa.int64(), nullable=False),
    ]
)
_SIDES = ("source", "target")
_EXAMPLES_SHOWN = 3


class EvaluationSentences(NamedTuple):
    """Dev or test sentences, each side's once, sorted: `side`, `text`, `spaced`, `words`, and the first place."""

    sentences: pa.Table


class Apart(NamedTuple):
    """The dev pairs to use, and those that are empty or stand in the test set."""

    kept: pa.Table
    dropped: pa.Table


class Gated(NamedTuple):
    """What may be trained on, what was dropped, and all leaks, whether dropped or not."""

    kept: pa.Table
    dropped: pa.Table
    leaks: pa.Table


def evaluation_sentences(pairs: pa.Table) -> pa.Table:
    """Partial step, over dev and test: both sides in their normal form, with their places."""
    parts = [_SENTENCES.empty_table()]
    place = [column(pairs, "corpus").cast(pa.string()), column(pairs, "line")]
    for side in _SIDES:
        columns = [pa.repeat(side, pairs.num_rows), *normal_forms(column(pairs, side)), *place]
        parts.append(pa.Table.from_arrays(columns, schema=_SENTENCES))
    return _unique(pa.concat_tables(parts))


def gather_sentences(partials: Sequence[pa.Table]) -> EvaluationSentences:
    """Merge: each sentence once, in an order that does not depend on the partials."""
    return EvaluationSentences(_unique(pa.concat_tables([_SENTENCES.empty_table(), *partials])))


def gate_shard(pairs: pa.Table, duplicates: pa.Table, sentences: pa.Table, config: LeakageConfig) -> Gated:
    """Drop the rows in `duplicates` (columns `row`, `reason`, `partner`), then those that leak.

    Reasons: those of `duplicates`, `leaked_source`, `leaked_target`, whose partner is a dev or test row of that side.
    With `report` leaks are kept; with `stop` they raise LeakageError. `leaks` tells them in each case, and no
    duplicates among them.
    """
    given = np.full(pairs.num_rows, -1, np.int64)  # the position of each row in `duplicates`
    given[duplicates["row"].to_numpy()] = np.arange(duplicates.num_rows)
    at = pa.array(given, mask=given < 0)
    why = column(duplicates, "reason").take(at)
    again = {reason: Cause(_mask(pc.equal(why, reason).fill_null(fill_value=False))) for reason in REASONS}
    again[DUPLICATE] = again[DUPLICATE]._replace(partner=column(duplicates, "partner").take(at))
    leaking = {
        f"leaked_{side}": _leaks(column(pairs, side), side, sentences, config, among=given < 0)
        for side in _SIDES
    }
    leaks = dropped(pairs, leaking)
    if config.action == "stop" and leaks.num_rows:
        raise LeakageError(_complaint(leaks, "training pairs", "dev or test sentences"))
    reasons = {**again, **(leaking if config.action == "drop" else {})}
    return Gated(*sieve(pairs, reasons), leaks)


def gate_dev(pairs: pa.Table, sentences: pa.Table, config: LeakageConfig) -> Apart:
    """Drop the dev pairs that have an empty side, then those that share a side with the test `sentences`.

    Reasons: `empty_source`, `empty_target`, `test_source`, `test_target`; the partner of the last two is a test row.
    With `report` shared sides are kept; with `stop` they raise LeakageError.
    """
    reasons = {f"empty_{side}": _mask(pc.equal(column(pairs, side), "")) for side in _SIDES}
    shared = {f"test_{side}": _leaks(column(pairs, side), side, sentences, config) for side in _SIDES}
    if config.action == "stop" and any(cause.mask.any() for cause in shared.values()):
        found = dropped(pairs, shared)
        raise LeakageError(_complaint(found, "dev pairs", "test sentences"))
    return Apart(*sieve(pairs, {**reasons, **(shared if config.action == "drop" else {})}))


def _leaks(
    texts: pa.Array, side: str, sentences: pa.Table, config: LeakageConfig, among: Mask | None = None
) -> Cause:
    """Which texts (`among` these, if given) stand in `sentences`, and the first place of each there."""
    long_enough = pc.greater_equal(sentences["words"], config.minimum_words)
    known = sentences.filter(pc.and_(pc.equal(sentences["side"], side), long_enough))
    found = pc.index_in(letters(texts), value_set=column(known, "text"))
    mask = _mask(found.is_valid())
    partner = places(column(known, "corpus"), column(known, "line")).take(found)
    return Cause(mask if among is None else mask & among, partner)


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _unique(sentences: pa.Table) -> pa.Table:
    # Two spellings of one text may have different numbers of words; the one with more decides.
    spelled = _firsts(sentences, [("words", "descending"), ("spaced", "ascending")])
    placed = _firsts(
        sentences, [("corpus", "ascending"), ("line", "ascending")]
    )  # the same texts, in this order
    columns = [
        (spelled if name in ("side", "text", "spaced", "words") else placed)[name]
        for name in _SENTENCES.names
    ]
    return pa.Table.from_arrays(columns, schema=_SENTENCES)


def _firsts(sentences: pa.Table, by: list[tuple[str, str]]) -> pa.Table:
    """The first row of each text of each side, ranked `by` columns; sorted by side and text."""
    ranked = sentences.sort_by([("side", "ascending"), ("text", "ascending"), *by])
    both = pc.binary_join_element_wise(column(ranked, "side"), column(ranked, "text"), " ")
    first = np.ones(ranked.num_rows, np.bool_)
    first[1:] = _mask(pc.not_equal(both[1:], both[:-1]))
    return ranked.filter(pa.array(first))


def _complaint(leaks: pa.Table, what: str, which: str) -> str:
    counts = pc.value_counts(column(leaks, "reason").cast(pa.string())).to_pylist()
    first = [f"{row['corpus']} line {row['line']}" for row in leaks.slice(0, _EXAMPLES_SHOWN).to_pylist()]
    return (
        f"{leaks.num_rows:,} {what} of this shard are {which} ("
        + ", ".join(f"{count['values']}: {count['counts']:,}" for count in counts)
        + f"), the first at {'; '.join(first)}; set leakage.action to drop, or take them out of the corpus"
    )
