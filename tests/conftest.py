"""What tests of several folders share."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rnnsearch.pipeline.schemas import EXAMPLES

ExamplesMaker = Callable[..., list[Path]]


@pytest.fixture(scope="session")
def examples() -> ExamplesMaker:
    """Writes shards of made-up examples: the target is the source backwards, a little shorter."""

    def make(
        folder: Path, rows: int, *, shards: int = 1, words: int = 20, longest: int = 9, seed: int = 0
    ) -> list[Path]:
        random = np.random.default_rng(seed)
        source = [
            random.integers(2, words, random.integers(1, longest + 1)).astype(np.int32) for _ in range(rows)
        ]
        target = [row[::-1][: max(1, len(row) - random.integers(0, 3))] for row in source]
        columns = {
            "corpus": pa.array(["made-up"] * rows).dictionary_encode(),
            "line": range(rows),
            "order": pa.array(range(rows), pa.uint64()),
            "source": source,
            "target": target,
        }
        table = pa.table(columns).cast(EXAMPLES)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"shard-{shard:05d}.parquet" for shard in range(shards)]
        each = -(-rows // shards)
        for shard, path in enumerate(paths):
            pq.write_table(table.slice(shard * each, each), path, row_group_size=64)
        return paths

    return make


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster of four processors, whatever the machine has; started once for all tests that need one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",  # whatever `ray start` left on this machine
        num_cpus=4,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=100 * 1024**2,
    )
    yield
    ray.shutdown()
