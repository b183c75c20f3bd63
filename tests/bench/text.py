"""How fast the text stages are, each on one processor, and the tokeniser beside sacremoses itself.

    python tests/bench/text.py [SOURCE TARGET] [--rows 4096]

SOURCE and TARGET are two files of one sentence a line, perhaps gzipped; without them the smoke profile's.
 Prints pairs per second of processor time.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from sacremoses import MosesTokenizer

from rnnsearch.flows.settings import PROFILES
from rnnsearch.pipeline import batches, clean, duplicates, encode, leakage, order, shortlist, tokenization
from rnnsearch.pipeline.config import (
    CleanConfig,
    DuplicatesConfig,
    EncodeConfig,
    FilterConfig,
    LanguagesConfig,
    LeakageConfig,
    PlainFormat,
    ShortlistConfig,
    TokenizeConfig,
)
from rnnsearch.pipeline.formats.reader import read_pairs

T = TypeVar("T")


def measured(name: str, rows: int, work: Callable[[], T]) -> T:
    start = time.process_time()
    result = work()
    print(f"{name:32}{rows / (time.process_time() - start):12,.0f} pairs/s")
    return result


def sacremoses_alone(shards: Sequence[pa.Table]) -> None:
    for side, language in (("source", "en"), ("target", "fr")):
        moses = MosesTokenizer(language)
        for shard in shards:
            for text in shard[side].to_pylist():
                moses.tokenize(text, escape=False, return_str=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, nargs="?", default=PROFILES / "smoke.en")
    parser.add_argument("target", type=Path, nargs="?", default=PROFILES / "smoke.fr")
    parser.add_argument("--rows", type=int, default=4096, help="rows of a shard")
    given = parser.parse_args()

    def read() -> list[pa.Table]:
        sides = [given.source, given.target]
        return [each.pairs for each in read_pairs(sides, "text", PlainFormat(), given.rows)]

    raw = read()
    rows = sum(shard.num_rows for shard in raw)
    measured("read", rows, read)

    cleaned = partial(
        clean.clean_shard,
        config=CleanConfig(),
        filters=FilterConfig(),
        languages=LanguagesConfig(source="en", target="fr"),
    )
    kept = [part.kept for part in measured("clean", rows, lambda: [cleaned(s) for s in raw])]
    hashes = measured(
        "hash pairs", rows, lambda: [duplicates.pair_hashes(shard, DuplicatesConfig()) for shard in kept]
    )
    repeats = measured(
        "find duplicates", rows, lambda: duplicates.find_duplicates(hashes, DuplicatesConfig())
    ).rows
    held_out = leakage.gather_sentences([leakage.evaluation_sentences(kept[-1])]).sentences
    gate = partial(leakage.gate_shard, sentences=held_out, config=LeakageConfig(action="report"))
    gated = measured("gate", rows, lambda: [gate(s, r).kept for s, r in zip(kept, repeats, strict=True)])

    tokenize = partial(tokenization.tokenize_shard, config=TokenizeConfig())
    tokens = measured("tokenize, first time", rows, lambda: [tokenize(shard).pairs for shard in gated])
    measured("tokenize, once warm", rows, lambda: [tokenize(shard) for shard in gated])
    measured("sacremoses alone", rows, partial(sacremoses_alone, gated))

    counts = measured("count words", rows, lambda: [shortlist.count_words(shard) for shard in tokens])
    lists = shortlist.choose_words(counts, ShortlistConfig())
    ids = partial(encode.encode_shard, source=lists.source, target=lists.target, config=EncodeConfig())
    encoded = measured("encode", rows, lambda: [ids(shard).kept for shard in tokens])
    ordered = measured("order", rows, lambda: pa.concat_tables(list(order.ordered(encoded, 0, 4, 4))))
    lengths = [np.diff(ordered[side].combine_chunks().offsets.to_numpy()) for side in ("source", "target")]
    measured("cut into batches", rows, lambda: list(batches.batches(*lengths)))


if __name__ == "__main__":
    main()
