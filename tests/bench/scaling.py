"""Where two workers of one thread lose against one worker of two: the parts of an update, on made-up pairs.

    python tests/bench/scaling.py [--size paper|small] [--updates 20] [--precision bfloat16]

Processes that meet over gloo, without Ray, make the same updates on the same global batches. Each update has four parts
that follow one another: a worker's own gradients; the wait until the other has its own; the sum of both; the norm and
the optimiser, which every worker repeats for all parameters. A third line is one worker of the two with the machine to
itself: what its gradients cost more beside the other is what the two take from one another.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from bridge import PAIRS, SIZES, Size
from corpus_size import write_pairs

from rnnsearch.flows.training_data import Examples, ahead, shared_batches
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer

PARTS = ("gradients", "wait", "sum", "optimiser")
WARM = 3  # updates before the measured ones


class Place(NamedTuple):
    """A process: which share of each global batch it takes, with how many threads, and whether others are there."""

    rank: int
    world: int  # shares that a global batch is cut into
    threads: int
    alone: bool  # no other process: nothing is waited for, and what is summed is its own


def parts_of(place: Place, size: Size, config: TrainConfig, folder: Path) -> Mapping[str, float]:
    """Train in this process; return the mean seconds of each part of an update."""
    torch.set_num_threads(place.threads)
    if not place.alone:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=place.rank, world_size=2)
    n, words = size.units, size.words + 2
    network = Network(
        NetworkConfig(units=n, embedding=size.embedding, alignment_units=n, maxout_units=n // 2), words, words
    )
    initialize(network, config.seed)
    times: list[float] = []

    def sum_over_workers(tensor: torch.Tensor) -> None:
        times.append(time.perf_counter())
        if not place.alone:
            dist.barrier()
        times.append(time.perf_counter())
        if not place.alone:
            dist.all_reduce(tensor)
        times.append(time.perf_counter())

    trainer = Trainer(network, config, sum_over_workers)
    spent = dict.fromkeys(PARTS, 0.0)
    batches = shared_batches(
        Examples(sorted((folder / "pairs").iterdir())),
        0,
        WARM + config.updates,
        batch=config.batch,
        window_batches=config.window_batches,
        rank=place.rank,
        world=place.world,
    )
    with ahead(batches) as feed:
        for update, shared in enumerate(feed):
            times[:] = [time.perf_counter()]
            trainer.update(shared.batch)
            times.append(time.perf_counter())
            if update >= WARM:
                for name, start, end in zip(PARTS, times, times[1:], strict=False):
                    spent[name] += (end - start) / config.updates
    if not place.alone:
        dist.destroy_process_group()
    return spent


def measure(places: Sequence[Place], size: Size, config: TrainConfig, folder: Path) -> Mapping[str, float]:
    """Milliseconds of each part of an update, the mean over the processes at `places`."""
    (folder / "meeting").unlink(missing_ok=True)
    with ProcessPoolExecutor(len(places), multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(parts_of, place, size, config, folder) for place in places]
        found = [each.result() for each in waiting]
    return {name: 1000 * sum(each[name] for each in found) / len(found) for name in PARTS}


def show(name: str, precision: Any, updates: int | None, folder: Path) -> None:
    """Print the parts at one size, and what each adds to the time of an update."""
    size = SIZES[name]
    config = TrainConfig(updates=updates or size.updates // 2, precision=precision)
    print(
        f"\n{name}: {size.units} units, {size.words:,} words, {precision}; ms of an update, {config.updates} updates"
    )
    placements = {
        "1 worker x 2 threads": [Place(0, 1, 2, alone=True)],
        "2 workers x 1 thread": [Place(rank, 2, 1, alone=False) for rank in (0, 1)],
        "one of the two alone": [Place(0, 2, 1, alone=True)],
    }
    seen = {title: measure(places, size, config, folder) for title, places in placements.items()}
    for title, parts in seen.items():
        print(
            f"  {title}: {sum(parts.values()):8.1f} = "
            + " + ".join(f"{parts[each]:.1f} {each}" for each in PARTS)
        )
    one, two, alone = seen.values()
    whole = sum(two.values())
    print(f"  ratio {sum(one.values()) / whole:.2f}; the rest, in shares of the two workers' time:")
    losses = {
        "smaller batches and products of one thread": alone["gradients"] - one["gradients"],
        "what the two take from one another": two["gradients"] - alone["gradients"],
        "wait for the slower one": two["wait"],
        "sum of the gradients": two["sum"] - one["sum"],
        "optimiser with one thread, repeated by each": two["optimiser"] - one["optimiser"],
    }
    for title, lost in losses.items():
        print(f"    {lost / whole:6.1%} {title}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder) / "pairs", PAIRS)
        for name in [chosen.size] if chosen.size else SIZES:
            show(name, chosen.precision, chosen.updates, Path(folder))


if __name__ == "__main__":
    main()
