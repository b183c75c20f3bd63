"""How much of the test set stands in the training data: a fold over the pairs that were trained on.

The gate takes copies out, unless it is told to report only, and leaves short sentences in. What is left is counted
here, by the normal form of `normal_form.py`: exact copies, and near copies, which differ from a test sentence in one
word, changed, missing or added. Near copies are found by hashes of each sentence without one of its words, all of a
shard at once.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import LeakageConfig
from rnnsearch.pipeline.normal_form import normal_forms
from rnnsearch.pipeline.sieve import Mask, column

Hashes = npt.NDArray[np.uint64]

OVERLAP = pa.schema(
    [
        pa.field("side", pa.string(), nullable=False),  # source or target
        pa.field(
            "text", pa.string(), nullable=False
        ),  # of the test sentence, as `normal_form.letters` leaves it
        pa.field("words", pa.int32(), nullable=False),
        pa.field("near", pa.bool_(), nullable=False),  # false: the very text
        pa.field("pairs", pa.int64(), nullable=False),  # training pairs
        pa.field("corpus", pa.string(), nullable=False),  # the first of them, by corpus and line
        pa.field("line", pa.int64(), nullable=False),
    ],
    metadata={"schema": "overlap", "version": "1"},
)
_SIDES = ("source", "target")
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_MODULUS = 1 << 64


class Overlap(NamedTuple):
    """The test sentences that stand in training as they are or nearly: OVERLAP, a row for each kind, sorted."""

    overlap: pa.Table


class _Sentences(NamedTuple):
    """Sentences as hashes of their words: sentence k has `words[ends[k]:ends[k + 1]]`."""

    words: Hashes
    ends: npt.NDArray[np.int64]
    whole: Hashes  # of each sentence
    without: Hashes  # of the sentence of each word, that word left out


def find_overlap(pairs: pa.Table, sentences: pa.Table, config: LeakageConfig) -> pa.Table:
    """Partial step: the test `sentences` that stand in a shard of training pairs, and how often.

    Near copies are looked for among sentences of `near_copy_words` words or more; with 0 they are not.
    """
    parts = [OVERLAP.empty_table()]
    for side in _SIDES:
        tests = sentences.filter(
            pc.and_(pc.equal(sentences["side"], side), pc.not_equal(sentences["text"], ""))
        )
        forms = normal_forms(column(pairs, side))
        found = pc.index_in(forms.letters, value_set=column(tests, "text"))
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        exact = found.drop_null().to_numpy()
        parts.append(_counted(pairs, tests, side, rows, exact.astype(np.int64), near=False))
        if config.near_copy_words:
            rows, near = _near(forms.spaced, column(tests, "spaced"), config.near_copy_words)
            fresh = exact_of(rows, found) != near
            parts.append(_counted(pairs, tests, side, rows[fresh], near[fresh], near=True))
    return pa.concat_tables(parts)


def sum_overlap(partials: Sequence[pa.Table]) -> Overlap:
    """Merge: the counts of all shards."""
    rows = pa.concat_tables([OVERLAP.empty_table(), *partials]).sort_by(
        [(name, "ascending") for name in ("side", "text", "near", "corpus", "line")]
    )
    summed = rows.group_by(["side", "text", "words", "near"], use_threads=False).aggregate(
        [("pairs", "sum"), ("corpus", "first"), ("line", "first")]
    )
    return Overlap(summed.rename_columns(OVERLAP.names).cast(OVERLAP))


def in_training(texts: pa.Array, overlap: pa.Table, side: str) -> Mask:
    """Which of these test sentences stand in training as they are, in the normal form."""
    exact = overlap.filter(pc.and_(pc.equal(overlap["side"], side), pc.invert(overlap["near"])))
    found = pc.is_in(normal_forms(texts).letters, value_set=column(exact, "text"))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def exact_of(rows: npt.NDArray[np.int64], found: pa.Array) -> npt.NDArray[np.int64]:
    """The test sentence that each of the `rows` is a copy of, -1 where it is none."""
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)[rows]


def _near(
    texts: pa.Array, tests: pa.Array, least: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(row, test sentence) of all near copies, each once, by row."""
    ours, theirs = _hashed(texts, least), _hashed(tests, least)
    kinds = (  # what is equal in two sentences that differ in one word
        (
            _placed(ours),
            _owners(ours),
            _placed(theirs),
            _owners(theirs),
        ),  # changed: the others, and its place
        (ours.whole, _all(ours), theirs.without, _owners(theirs)),  # missing here
        (ours.without, _owners(ours), theirs.whole, _all(theirs)),  # added here
    )
    found = [np.zeros((0, 2), np.int64)]
    for left, rows, right, others in kinds:
        order = np.argsort(right, kind="stable")
        ranked = right[order]
        first, last = np.searchsorted(ranked, left, "left"), np.searchsorted(ranked, left, "right")
        for position in np.flatnonzero(last > first).tolist():
            hit = others[order[first[position] : last[position]]]
            found.append(np.stack([np.full(len(hit), rows[position]), hit], axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _hashed(texts: pa.Array, least: int) -> _Sentences:
    """The hashes of sentences; those of fewer than `least` words count as empty."""
    lists = pc.split_pattern(texts, " ")
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    long_enough = sizes >= max(2, least)
    kept = lists.filter(pa.array(long_enough)).flatten().dictionary_encode()
    known = np.array([_word_hash(word) for word in kept.dictionary.to_pylist()], np.uint64)
    words = known[kept.indices.to_numpy()] if len(kept) else np.zeros(0, np.uint64)
    ends = np.concatenate([[0], np.cumsum(np.where(long_enough, sizes, 0))])
    owner = np.repeat(np.arange(len(texts)), np.diff(ends))
    place = np.arange(len(words)) - ends[:-1][owner]
    powers = _powers(_BASE, int(sizes.max(initial=0)) + 1)
    terms = words * powers[place]
    total = np.concatenate([[np.uint64(0)], np.cumsum(terms, dtype=np.uint64)])
    whole = total[ends[1:]] - total[ends[:-1]]
    before = total[:-1] - total[ends[:-1]][owner]
    after = total[ends[1:]][owner] - total[1:]
    without = before + after * np.uint64(pow(_BASE, -1, _MODULUS))
    return _Sentences(words, ends, _sized(whole, np.diff(ends)), _sized(without, np.diff(ends)[owner] - 1))


def _placed(sentences: _Sentences) -> Hashes:
    """The hash of a sentence without a word, together with the place of that word."""
    owner = _owners(sentences)
    place = (np.arange(len(sentences.words)) - sentences.ends[:-1][owner]).astype(np.uint64)
    return sentences.without ^ (place + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)


def _sized(hashes: Hashes, sizes: npt.NDArray[np.int64]) -> Hashes:
    """Hashes that differ where the numbers of words differ."""
    return hashes ^ sizes.astype(np.uint64) * np.uint64(0xA0761D6478BD642F)


def _owners(sentences: _Sentences) -> npt.NDArray[np.int64]:
    """The sentence of each word."""
    return np.repeat(np.arange(len(sentences.whole)), np.diff(sentences.ends))


def _all(sentences: _Sentences) -> npt.NDArray[np.int64]:
    return np.arange(len(sentences.whole))


def _powers(base: int, count: int) -> Hashes:
    powers, value = [], 1
    for _ in range(count):
        powers.append(value)
        value = value * base % _MODULUS
    return np.array(powers, np.uint64)


def _word_hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")


def _counted(
    pairs: pa.Table,
    tests: pa.Table,
    side: str,
    rows: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
    *,
    near: bool,
) -> pa.Table:
    """OVERLAP of the matches (row of `pairs`, row of `tests`), rows ascending."""
    known, first, counts = np.unique(found, return_index=True, return_counts=True)
    taken, at = tests.take(pa.array(known)), pairs.take(pa.array(rows[first]))
    columns = [
        pa.repeat(side, len(known)),
        column(taken, "text"),
        column(taken, "words"),
        pa.repeat(near, len(known)),
        pa.array(counts.astype(np.int64)),
        column(at, "corpus").cast(pa.string()),
        column(at, "line"),
    ]
    return pa.Table.from_arrays(columns, schema=OVERLAP)
