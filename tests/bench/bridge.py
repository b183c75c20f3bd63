"""What Ray, checkpoints, feeding and logging cost a training, and what a second worker brings; on made-up pairs.

    python tests/bench/bridge.py [--size paper|small] [--updates 40] [--precision bfloat16]

Each size is trained by one worker of two threads and by two workers of one, on the same global batches. A training of
a few updates has one start and a checkpoint or two like a long one: the shares are those of a training as long as a
profile asks for, from the seconds that each part took here.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from corpus_size import write_pairs

from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.train import train_system
from rnnsearch.flows.training_job import TrainingJob
from rnnsearch.model.config import NetworkConfig, TrainConfig


class Size(NamedTuple):
    """A network, and the profile whose trainings of it are the long ones."""

    units: int
    embedding: int
    words: int
    updates: int  # of a training here
    profile: str
    system: str


SIZES = {
    "small": Size(256, 128, 8_000, 300, "demo", "rnnsearch"),
    "paper": Size(1000, 620, 30_000, 40, "wmt14", "rnnsearch-30"),
}
PLACEMENTS = ((1, 2), (2, 1))  # workers, threads of each
PAIRS = 12_800


def train(size: Size, train: TrainConfig, workers: int, threads: int, folder: Path) -> Mapping[str, Any]:
    """Train on Ray; return what was seen, with the seconds that passed around the workers' own loop as `ray`."""
    rows = write_pairs(folder / "pairs", PAIRS)
    n = size.units
    work = folder / f"{n}-{train.precision}-{workers}x{threads}"
    start = time.perf_counter()
    outcome = train_system(
        TrainingJob(
            examples=sorted((folder / "pairs").iterdir()),
            shard_rows=rows,
            dev=None,
            network=NetworkConfig(units=n, embedding=size.embedding, alignment_units=n, maxout_units=n // 2),
            train=train,
            source_size=size.words + 2,
            target_size=size.words + 2,
            workers=workers,
            threads=threads,
            name=work.name,
            workdir=work,
        )
    )
    wall = time.perf_counter() - start
    seconds = dict(outcome.observations["seconds"])
    return {**outcome.observations, "seconds": seconds | {"ray": wall - sum(seconds.values())}}


def shares(size: Size, config: TrainConfig, seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Each part's share of a training of the profile's length and intervals, from the seconds of one of `config`."""
    long = load_settings(size.profile).systems[size.system].train
    saves = -(-config.updates // config.checkpoint_every)
    parts = {
        name: seconds[name] / config.updates * long.updates for name in ("updates", "feeding", "logging")
    }
    parts["checkpoint"] = seconds["checkpoint"] / saves * (long.updates / long.checkpoint_every)
    parts["start"] = seconds["start"] + seconds["ray"]
    whole = sum(parts.values())
    return {name: spent / whole for name, spent in parts.items()}


def show(name: str, precision: Any, updates: int | None, folder: Path) -> None:
    """Print a line for each placement of one size, and the ratio of their speeds."""
    size = SIZES[name]
    count = updates or size.updates
    config = TrainConfig(updates=count, checkpoint_every=-(-count // 2), log_every=10, precision=precision)
    print(
        f"\n{name}: {size.units} units, {size.words:,} words, {precision}, {count} updates here; shares of a training "
        f"like {size.system} of {size.profile}"
    )
    rates: list[float] = []
    for workers, threads in PLACEMENTS:
        seen = train(size, config, workers, threads, folder)
        seconds, part = seen["seconds"], shares(size, config, seen["seconds"])
        rates.append(seen["tokens_per_second"])
        bridge = 1 - part["updates"]
        print(
            f"{workers} workers x {threads} threads, {seen['kernels']} kernels: {rates[-1]:,.0f} target tokens/s; "
            f"start {seconds['ray'] + seconds['start']:.1f} s"
        )
        print(
            f"  bridge {bridge:.2%} ("
            + ", ".join(f"{each} {part[each]:.2%}" for each in _BRIDGE)
            + "), updates "
            f"{part['updates']:.2%}"
        )
    print(f"  2 workers x 1 thread against 1 x 2: {rates[1] / rates[0]:.2f}")


_BRIDGE: Sequence[str] = ("start", "feeding", "checkpoint", "logging")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    chosen = parser.parse_args()
    cluster = Cluster(2)
    cluster.connect()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in [chosen.size] if chosen.size else SIZES:
                show(name, chosen.precision, chosen.updates, Path(folder))
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
