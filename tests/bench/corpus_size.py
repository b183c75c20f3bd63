"""How a training grows with its corpus: resident memory and time to the first update, on made-up pairs.

    python tests/bench/corpus_size.py [--pairs 5000000] [--folder /tmp/pairs]

Each size is trained by a process of its own for two windows and a bit. Memory and start must not grow with the
corpus: a worker reads its rows by position.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rnnsearch.pipeline.schemas import EXAMPLES

ROWS_PER_SHARD, ROW_GROUP, WORDS = 25_600, 1_600, 8_000
TRAINING = """
import json, resource, sys, time
begin = time.perf_counter()
from pathlib import Path
from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_job import TrainingJob, Workers
from rnnsearch.model.config import NetworkConfig, TrainConfig
imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
folder, rows, work = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
start = time.perf_counter()
train_worker(
    TrainingJob(
        examples=sorted(folder.iterdir()), shard_rows=rows, dev=None, name="bench", workdir=work,
        network=NetworkConfig(units=32, embedding=32, alignment_units=32, maxout_units=32),
        train=TrainConfig(updates=42, log_every=1), source_size=8_000, target_size=8_000,
    ),
    Workers(),
)
seen = json.loads((work / "finished" / "observations.json").read_text())["seconds"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"start": seen["start"], "feeding": seen["feeding"], "imported": imported, "peak": peak}))
"""


def write_pairs(folder: Path, pairs: int) -> list[int]:
    """Shards of pairs of 5 to 30 words a side; return the rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows = [min(ROWS_PER_SHARD, pairs - first) for first in range(0, pairs, ROWS_PER_SHARD)]
    for number, count in enumerate(rows):
        path = folder / f"shard-{number:05d}.parquet"
        if not path.exists():
            pq.write_table(_shard(random, count), path, row_group_size=ROW_GROUP, compression="zstd")
    return rows


def _shard(random: np.random.Generator, count: int) -> pa.Table:
    columns = {
        "corpus": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["made-up"]),
        "line": np.arange(count),
        "order": np.arange(count, dtype=np.uint64),
    }
    for side in ("source", "target"):
        lengths = random.integers(5, 31, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids = random.integers(2, WORDS, offsets[-1]).astype(np.int32)
        columns[side] = pa.ListArray.from_arrays(offsets, ids)
    return pa.table(columns).cast(EXAMPLES)


def main() -> None:
    """Print a line for a small corpus and one for the large one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for pairs in (5_000, arguments.pairs):
            rows = write_pairs(folder / str(pairs), pairs)
            work = Path(temporary) / f"work-{pairs}"
            work.mkdir()
            command = [sys.executable, "-c", TRAINING, str(folder / str(pairs)), json.dumps(rows), str(work)]
            seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"{pairs:>9,} pairs in {len(rows)} shards: start {seen['start']:.2f} s, "
                f"feeding 42 updates {seen['feeding']:.2f} s, "
                f"memory {seen['imported'] / 1024:.0f} MiB after imports, {seen['peak'] / 1024:.0f} MiB at most"
            )


if __name__ == "__main__":
    main()
