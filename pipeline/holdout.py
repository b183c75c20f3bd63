"""Dev and test, and everything that must leave training because of them (architecture 5).

A corpus that brings no dev and test of its own gives some of its texts. Rows that carry keys are chosen by key: those
whose keys have the smallest seeded hashes, so a verse leaves training in every version of it. Rows without keys are
chosen by their source text in its normal form. A chosen text is held out once, as its first row; every other row of
any corpus that shares a side with it is dropped, and no two chosen rows share a side. So no sentence of dev or test
stands in training, or in the other of the two, however often the corpus repeats it.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.clean import normalized
from rnnsearch.pipeline.config import CleanConfig, HoldoutConfig
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.sieve import Cause, Mask, column, places, sieve

_CANDIDATES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # of a row without a key: its source in normal form
        pa.field("keyed", pa.bool_(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),  # of `key`, seeded
        pa.field("line", pa.int64(), nullable=False),  # the first row with this key
        pa.field("target", pa.string(), nullable=False),  # in normal form; "" of a row with a key
        pa.field("complete", pa.bool_(), nullable=False),  # false: the last row of a shard that had more
    ]
)
_CHOSEN = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("keyed", pa.bool_(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ],
    metadata={"schema": "held-out-keys", "version": "2"},
)
HELD_OUT = "held_out"
_SPARE, _LEAST_KEPT = (
    4,
    1_000,
)  # rows a shard keeps for each one that is wanted, and beside them: some share a side


class Chosen(NamedTuple):
    """The chosen keys and texts, with their `split` (`dev` or `test`), in the order of their hashes, dev first."""

    keys: pa.Table


class HeldOut(NamedTuple):
    """A shard taken apart; the four together have each of its rows once."""

    train: pa.Table
    dev: pa.Table
    test: pa.Table
    dropped: pa.Table


def candidate_keys(pairs: pa.Table, config: HoldoutConfig) -> pa.Table:
    """Partial step: the keys and source texts of `config.corpus` here that have the smallest hashes, each once.

    A row counts only if neither side is empty after normalisation, so that none is lost later, and without a key only
    if both sides have a letter or a digit.
    """
    mine = pairs.filter(pa.array(_in(pairs, _donors(config))))
    mine = mine.filter(pc.and_(_present(column(mine, "source")), _present(column(mine, "target"))))
    given = _keys(mine)
    keyed = pc.is_valid(given)
    keys = pc.coalesce(given, letters(column(mine, "source")))
    targets = pc.if_else(keyed, "", letters(column(mine, "target")))
    known = keys.unique().to_pylist()
    hashes = pa.array([key_hash(key, config.seed) for key in known], pa.uint64())
    columns = [
        keys,
        keyed,
        hashes.take(pc.index_in(keys, value_set=pa.array(known, pa.string()))),
        column(mine, "line"),
        targets,
        pa.repeat(True, mine.num_rows),
    ]
    comparable = pc.or_(keyed, pc.and_(pc.not_equal(keys, ""), pc.not_equal(targets, "")))
    candidates = _owned(pa.Table.from_arrays(columns, schema=_CANDIDATES).filter(comparable))
    most = _LEAST_KEPT + _SPARE * (config.dev + config.test)
    if candidates.num_rows <= most:
        return candidates
    complete = pa.array([True] * (most - 1) + [False], pa.bool_())
    return candidates.slice(0, most).set_column(5, _CANDIDATES.field("complete"), complete)


def choose_keys(partials: Sequence[pa.Table], config: HoldoutConfig) -> Chosen:
    """Merge: the smallest hashes of all are dev, the next ones test. Raises TextError if keys are too few."""
    wanted = config.dev + config.test
    if config.corpus is None or not wanted:
        return Chosen(_CHOSEN.empty_table())
    joined = pa.concat_tables([_CANDIDATES.empty_table(), *partials])
    # A truncated shard says nothing beyond its last row: rows with larger hashes cannot be ranked.
    bound = pc.min(joined.filter(pc.invert(joined["complete"]))["hash"])
    if bound.is_valid:
        joined = joined.filter(pc.less(joined["hash"], bound))
    candidates = _first_rows(_owned(joined)).slice(0, wanted)
    if candidates.num_rows < wanted:
        raise TextError(
            f"holdout wants {wanted:,} keys or texts ({config.dev:,} dev, {config.test:,} test) of corpus "
            f"{config.corpus!r}, where {candidates.num_rows:,} have text on both sides and share no side; "
            "ask for fewer, or name dev_corpora"
        )
    split = pa.array(["dev"] * config.dev + ["test"] * config.test, pa.string())
    columns = [*(column(candidates, name) for name in ("key", "keyed", "line", "target")), split]
    return Chosen(pa.Table.from_arrays(columns, schema=_CHOSEN))


def hold_out(pairs: pa.Table, config: HoldoutConfig, keys: pa.Table) -> HeldOut:
    """Send each row to train, dev or test.

    Dropped as `held_out`: other corpora's rows with a chosen key, and all other rows with a side of a chosen text.
    Their partner is the chosen row.
    """
    donor = _in(pairs, _donors(config))
    by_key = keys.filter(keys["keyed"])
    texts = keys.filter(pc.invert(keys["keyed"]))
    chosen = {
        split: donor & (_keyed(pairs, _of(by_key, split)) | _at(pairs, _of(texts, split)))
        for split in ("dev", "test")
    }
    dev = _in(pairs, config.dev_corpora) | chosen["dev"]
    test = _in(pairs, config.test_corpora) | chosen["test"]
    rest = pa.array(~dev & ~test)
    lines = pc.coalesce(_line_of(_keys(pairs), by_key, "key"), *_lines_of_sides(pairs, texts)).filter(rest)
    lost = np.asarray(lines.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    partners = places(pa.repeat(config.corpus or "", len(lines)), lines)
    train, out = sieve(pairs.filter(rest), {HELD_OUT: Cause(lost, partners)})
    return HeldOut(train, pairs.filter(pa.array(dev)), pairs.filter(pa.array(test)), out)


def key_hash(key: str, seed: int) -> int:
    """A 64-bit hash that depends on nothing but its arguments."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, key=str(seed).encode()).digest(), "big")


def _owned(candidates: pa.Table) -> pa.Table:
    """Keep the rows whose key has the smallest hash among all keys with the same target; ties by key, then line.

    So a row that a part of the corpus loses here is lost in the whole corpus too.
    """
    ranked = candidates.sort_by([("hash", "ascending"), ("key", "ascending"), ("line", "ascending")])
    keys, keyed = _spelled(ranked), column(ranked, "keyed")
    owners = keys.take(pa.array(_first_of(column(ranked, "target"))))
    both = pc.binary_join_element_wise(keys, column(ranked, "target"), "\n")
    firsts = pa.array(_first_of(both) == np.arange(ranked.num_rows))
    return ranked.filter(pc.and_(pc.or_(pc.equal(owners, keys), keyed), firsts))


def _first_rows(candidates: pa.Table) -> pa.Table:
    """The first row of each key."""
    return candidates.filter(pa.array(_first_of(_spelled(candidates)) == np.arange(candidates.num_rows)))


def _spelled(candidates: pa.Table) -> pa.Array:
    """The keys such that none is spelled like a text."""
    return pc.binary_join_element_wise(
        column(candidates, "keyed").cast(pa.string()), column(candidates, "key"), ":"
    )


def _first_of(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each value the position at which it stands first."""
    codes = values.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return np.asarray(first[codes], np.int64)


def _present(texts: pa.Array) -> pa.Array:
    return pc.not_equal(normalized(texts, CleanConfig()), "")


def _donors(config: HoldoutConfig) -> list[str]:
    return [] if config.corpus is None else [config.corpus]


def _in(pairs: pa.Table, corpora: Sequence[str]) -> Mask:
    return _among(column(pairs, "corpus").cast(pa.string()), pa.array(corpora, pa.string()))


def _of(keys: pa.Table, split: str) -> pa.Table:
    return keys.filter(pc.equal(keys["split"], split))


def _keyed(pairs: pa.Table, keys: pa.Table) -> Mask:
    return _among(_keys(pairs), column(keys, "key"))


def _at(pairs: pa.Table, texts: pa.Table) -> Mask:
    """The first row of each chosen text. Meant for rows of the corpus that gave it."""
    unkeyed = np.asarray(pc.is_null(_keys(pairs)).to_numpy(zero_copy_only=False), np.bool_)
    return unkeyed & _among(column(pairs, "line"), column(texts, "line"))


def _lines_of_sides(pairs: pa.Table, texts: pa.Table) -> list[pa.Array]:
    """For each side the line of the chosen text that each row shares it with, null where none; [] without texts."""
    if not texts.num_rows:
        return []
    sides = (("source", "key"), ("target", "target"))
    return [_line_of(letters(column(pairs, side)), texts, name) for side, name in sides]


def _line_of(values: pa.Array, chosen: pa.Table, name: str) -> pa.Array:
    """The line of the chosen row that has each value in column `name`; null where none has, or the value is null."""
    found = pc.index_in(values, value_set=column(chosen, name), skip_nulls=True)
    return column(chosen, "line").take(found)


def _keys(pairs: pa.Table) -> pa.Array:
    """The key of each row without outer spaces, null where it has none."""
    keys = pc.utf8_trim(column(pairs, "key"), characters=" \t\r\n\ufeff")
    return pc.if_else(pc.equal(keys, ""), None, keys)


def _among(values: pa.Array, chosen: pa.Array) -> Mask:
    found = pc.is_in(values, value_set=chosen, skip_nulls=True)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)
