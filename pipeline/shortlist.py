"""The most frequent words of each language (Sec. 4.2: 30,000).

A fold: counts of each shard, then their sum. Equal counts are ordered by codepoint (protocol trap 27). A word of
the text that is spelled like a special token is a word as any other (protocol trap 28).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import ShortlistConfig
from rnnsearch.pipeline.schemas import COUNTS, SHORTLIST
from rnnsearch.pipeline.sieve import column

_COUNTED = pa.schema([pa.field("target", pa.bool_(), nullable=False), *COUNTS])  # false: a word of the source
_MERGED_AT_ONCE = 64  # partials; bounds the memory of the merge


class Shortlists(NamedTuple):
    """The shortlists, and the counts of all words, most frequent first, in the same order."""

    source: pa.Table
    target: pa.Table
    source_counts: pa.Table
    target_counts: pa.Table


def count_words(pairs: pa.Table) -> pa.Table:
    """Partial step: how often each word of each side stands in a tokenised shard."""
    return pa.concat_tables(
        [_counted(column(pairs, "source"), False), _counted(column(pairs, "target"), True)]
    )


def choose_words(partials: Sequence[pa.Table], config: ShortlistConfig) -> Shortlists:
    """Merge: the counts of all shards, and the first `source_words` and `target_words` of them."""
    total = _COUNTED.empty_table()
    for group in _groups(partials):
        total = _summed(pa.concat_tables([total, *group]))
    source, target = (_ranked(total.filter(pc.equal(total["target"], side))) for side in (False, True))
    return Shortlists(
        _shortlist(source, config.source_words), _shortlist(target, config.target_words), source, target
    )


def _counted(sentences: pa.Array, target: bool) -> pa.Table:
    words = pc.split_pattern(sentences, " ").flatten()
    counts = pc.value_counts(words.filter(pc.not_equal(words, "")))
    word, count = counts.flatten()
    return pa.Table.from_arrays([pa.repeat(target, len(word)), word, count], schema=_COUNTED)


def _summed(counts: pa.Table) -> pa.Table:
    summed = counts.group_by(["target", "word"]).aggregate([("count", "sum")])
    return summed.rename_columns(["target", "word", "count"]).cast(_COUNTED)


def _ranked(counts: pa.Table) -> pa.Table:
    # Arrow compares strings by their UTF-8 bytes, which is the order of codepoints.
    order = pc.sort_indices(counts, [("count", "descending"), ("word", "ascending")])
    return counts.take(order).select(["word", "count"]).cast(COUNTS)


def _shortlist(counts: pa.Table, size: int) -> pa.Table:
    return counts.slice(0, size).select(["word"]).cast(SHORTLIST)


def _groups(partials: Sequence[pa.Table]) -> Iterator[Sequence[pa.Table]]:
    for start in range(0, len(partials), _MERGED_AT_ONCE):
        yield partials[start : start + _MERGED_AT_ONCE]
