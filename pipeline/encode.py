"""Words to ids, the length filter, and each example's place in the order of training.

Ids: `</s>` 0, `[UNK]` 1, the word of rank r (from 0) r + 2. The examples do not contain `</s>`.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import EncodeConfig
from rnnsearch.pipeline.schemas import EXAMPLES, SPECIALS, UNK_ID, words
from rnnsearch.pipeline.sieve import column, sieve

ORDER = [("order", "ascending"), ("corpus", "ascending"), ("line", "ascending")]


class Encoded(NamedTuple):
    """Examples, sorted by (order, corpus, line), and the dropped pairs.

    Reasons: `empty_source`, `empty_target`, `too_long`.
    """

    kept: pa.Table
    dropped: pa.Table


def encode_shard(pairs: pa.Table, source: pa.Table, target: pa.Table, config: EncodeConfig) -> Encoded:
    """The examples of tokenised pairs, by the shortlists `source` and `target`.

    A pair is too long if either side has more than `max_words` words, `</s>` not counted: 50 are kept, 51 are
    not (protocol trap 29).
    """
    ids = [_ids(column(pairs, "source"), source), _ids(column(pairs, "target"), target)]
    lengths = [_lengths(side) for side in ids]
    corpus, line = column(pairs, "corpus"), column(pairs, "line")
    rows = pa.Table.from_arrays([corpus, line, order(corpus, line, config.seed), *ids], schema=EXAMPLES)
    sieved = sieve(
        rows,
        {
            "empty_source": lengths[0] == 0,
            "empty_target": lengths[1] == 0,
            "too_long": np.maximum(*lengths) > config.max_words,
        },
    )
    return Encoded(in_order(sieved.kept), sieved.dropped)


def in_order(examples: pa.Table) -> pa.Table:
    """The rows sorted by (order, corpus, line)."""
    plain = examples.set_column(0, "corpus", column(examples, "corpus").cast(pa.string()))
    return examples.take(pc.sort_indices(plain, ORDER))


def order(corpus: pa.DictionaryArray, line: pa.Array, seed: int) -> pa.Array:
    """A 64-bit hash of each (corpus, line): sorting by it shuffles, once and for all (App. B.2).

    Within a corpus no two lines have the same hash, since each step of the mixing can be undone.
    """
    names = corpus.dictionary.to_pylist()
    keys = [blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest() for name in names]
    key = np.frombuffer(b"".join(keys), dtype="<u8").astype(np.uint64)
    codes = corpus.indices.to_numpy()
    start = key[codes] if len(codes) else np.zeros(0, np.uint64)
    return pa.array(
        _mixed(start + line.to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)), pa.uint64()
    )


def index(shortlist: pa.Table) -> dict[str, int]:
    """The id of each word of a shortlist."""
    return {word: rank + len(SPECIALS) for rank, word in enumerate(shortlist["word"].to_pylist())}


def ids(sentence: str, index: Mapping[str, int]) -> list[int]:
    """The ids of a tokenised sentence, without `</s>`."""
    return [index.get(word, UNK_ID) for word in words(sentence)]


def _ids(sentences: pa.Array, shortlist: pa.Table) -> pa.ListArray:
    split = pc.split_pattern(sentences, " ")
    empty = pc.equal(sentences, "")
    rank = pc.index_in(split.flatten(), value_set=column(shortlist, "word"))
    found = pc.fill_null(pc.add(rank, len(SPECIALS)), UNK_ID).cast(pa.int32())
    lengths = pc.if_else(empty, 0, pc.list_value_length(split)).to_numpy()
    if pc.any(empty).as_py():  # an empty text splits into one empty word
        found = found.filter(pc.invert(empty.take(pc.list_parent_indices(split))))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), found, type=EXAMPLES.field("source").type)


def _lengths(lists: pa.ListArray) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = np.diff(lists.offsets.to_numpy())
    return lengths


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    # The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
