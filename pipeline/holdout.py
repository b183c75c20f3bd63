"""Dev and test, and everything that must leave training because of them (DESIGN 5).

A corpus that brings no dev and test of its own gives some of its rows: those whose keys have the smallest
seeded hashes. The keys, not the rows, are chosen, so a verse leaves training in every version of it.
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
from rnnsearch.pipeline.sieve import Mask, column, sieve

_CANDIDATES = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("hash", pa.uint64(), nullable=False)]
)
_CHOSEN = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("split", pa.string(), nullable=False)]
)
HELD_OUT = "held_out"


class Chosen(NamedTuple):
    """The chosen keys: `key` and `split` (`dev` or `test`), in the order of their hashes, dev first."""

    keys: pa.Table


class HeldOut(NamedTuple):
    """A shard taken apart; the four together have each of its rows once."""

    train: pa.Table
    dev: pa.Table
    test: pa.Table
    dropped: pa.Table


def candidate_keys(pairs: pa.Table, config: HoldoutConfig) -> pa.Table:
    """Partial step: the `dev + test` keys of `config.corpus` here that have the smallest hashes, each once.

    A row counts only if neither side is empty after normalisation, so that none is lost later.
    """
    mine = pairs.filter(pa.array(_in(pairs, _donors(config))))
    usable = pc.and_(_present(column(mine, "source")), _present(column(mine, "target")))
    keys = _keys(mine).filter(usable).unique().to_pylist()
    hashes = [key_hash(key, config.seed) for key in keys]
    columns = [pa.array(keys, pa.string()), pa.array(hashes, pa.uint64())]
    return _smallest(pa.Table.from_arrays(columns, schema=_CANDIDATES), config)


def choose_keys(partials: Sequence[pa.Table], config: HoldoutConfig) -> Chosen:
    """Merge: the smallest hashes of all are dev, the next ones test. Raises TextError if keys are too few."""
    wanted = config.dev + config.test
    if config.corpus is None or not wanted:
        return Chosen(_CHOSEN.empty_table())
    candidates = _smallest(pa.concat_tables([_CANDIDATES.empty_table(), *partials]), config)
    if candidates.num_rows < wanted:
        raise TextError(
            f"holdout wants {wanted:,} keys ({config.dev:,} dev, {config.test:,} test) of corpus "
            f"{config.corpus!r}, which has {candidates.num_rows:,} with text on both sides; "
            "ask for fewer, or name dev_corpora"
        )
    columns = [
        column(candidates, "key"),
        pa.array(["dev"] * config.dev + ["test"] * config.test, pa.string()),
    ]
    return Chosen(pa.Table.from_arrays(columns, schema=_CHOSEN))


def hold_out(pairs: pa.Table, config: HoldoutConfig, keys: pa.Table) -> HeldOut:
    """Send each row to train, dev or test; other corpora's rows with a chosen key are dropped: `held_out`."""
    donor = _in(pairs, _donors(config))
    dev = _in(pairs, config.dev_corpora) | (donor & _keyed(pairs, keys, "dev"))
    test = _in(pairs, config.test_corpora) | (donor & _keyed(pairs, keys, "test"))
    lost = (_keyed(pairs, keys, "dev") | _keyed(pairs, keys, "test")) & ~dev & ~test
    train, out = sieve(pairs.filter(pa.array(~dev & ~test)), {HELD_OUT: lost[~dev & ~test]})
    return HeldOut(train, pairs.filter(pa.array(dev)), pairs.filter(pa.array(test)), out)


def key_hash(key: str, seed: int) -> int:
    """A 64-bit hash that depends on nothing but its arguments."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, key=str(seed).encode()).digest(), "big")


def _smallest(candidates: pa.Table, config: HoldoutConfig) -> pa.Table:
    unique = candidates.group_by("key").aggregate([("hash", "min")]).rename_columns(["key", "hash"])
    order = pc.sort_indices(unique, [("hash", "ascending"), ("key", "ascending")])[: config.dev + config.test]
    return unique.take(order).cast(_CANDIDATES)


def _present(texts: pa.Array) -> pa.Array:
    return pc.not_equal(normalized(texts, CleanConfig()), "")


def _donors(config: HoldoutConfig) -> list[str]:
    return [] if config.corpus is None else [config.corpus]


def _in(pairs: pa.Table, corpora: Sequence[str]) -> Mask:
    return _among(column(pairs, "corpus").cast(pa.string()), pa.array(corpora, pa.string()))


def _keyed(pairs: pa.Table, keys: pa.Table, split: str) -> Mask:
    return _among(_keys(pairs), column(keys.filter(pc.equal(keys["split"], split)), "key"))


def _keys(pairs: pa.Table) -> pa.Array:
    """The key of each row; a row without one has its place, `corpus:line`, which no other row shares."""
    corpus = column(pairs, "corpus").cast(pa.string())
    place = pc.binary_join_element_wise(corpus, column(pairs, "line").cast(pa.string()), ":")
    return pc.coalesce(column(pairs, "key"), place)


def _among(values: pa.Array, chosen: pa.Array) -> Mask:
    found = pc.is_in(values, value_set=chosen, skip_nulls=True)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)
