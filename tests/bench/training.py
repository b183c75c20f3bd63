"""How fast a training step is, beside a plain PyTorch loop: same batches, same run, one update of each in turn.

    python tests/bench/training.py [--size paper|small] [--updates 6] [--kernels plain]

Prints target tokens per second, the ratio to the plain loop, GFLOP/s against what this machine's matrix products
reach, and peak memory.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.kernels import kernels_for
from rnnsearch.model.kernels.bfloat16 import products_on
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer

SENTENCES = 80
LONGEST = 10.0  # seconds for one measurement of a product


class Size(NamedTuple):
    units: int
    embedding: int
    words: int


SIZES = {"paper": Size(1000, 620, 30_000), "small": Size(256, 128, 8_000)}
SYSTEMS = ("loop", "float32", "bfloat16")


class PlainLoop(nn.Module):
    """What one would write first: a loop over time under autograd, with U_a h hoisted out of it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        n, m = size.units, size.embedding

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * 0.01)

        self.E_src, self.E_trg = weight(size.words, m), weight(size.words, m)
        self.W = nn.ParameterList([weight(3 * n, m) for _ in range(3)])
        self.b = nn.ParameterList([nn.Parameter(torch.zeros(3 * n)) for _ in range(3)])
        self.U_gates = nn.ParameterList([weight(2 * n, n) for _ in range(3)])
        self.U = nn.ParameterList([weight(n, n) for _ in range(3)])
        self.C = weight(3 * n, 2 * n)
        self.Ws, self.Wa, self.Ua, self.va = weight(n, n), weight(n, n), weight(n, 2 * n), weight(n)
        self.Uo, self.Vo, self.Co = weight(n, n), weight(n, m), weight(n, 2 * n)
        self.Wo, self.b_out = weight(size.words, n // 2), nn.Parameter(torch.zeros(size.words))

    def step(self, unit: int, x: Tensor, state: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        candidate, gates = (functional.linear(x, self.W[unit], self.b[unit]) + extra).tensor_split(
            [len(self.U[0])], 1
        )
        update, reset = (gates + functional.linear(state, self.U_gates[unit])).sigmoid().chunk(2, dim=1)
        return state + update * ((candidate + functional.linear(reset * state, self.U[unit])).tanh() - state)

    def loss(self, batch: Batch) -> Tensor:
        embedded = functional.embedding(batch.source_SB, self.E_src)
        directions = []
        for unit, order in ((0, range(len(embedded))), (1, range(len(embedded) - 1, -1, -1))):
            state, states = embedded.new_zeros(SENTENCES, len(self.U[0])), [embedded] * len(embedded)
            for j in order:
                mask = batch.source_mask_SB[j, :, None]
                states[j] = state = torch.where(mask, self.step(unit, embedded[j], state), state)
            directions.append(torch.stack(states))
        annotations = torch.cat(directions, dim=2)
        keys = functional.linear(annotations, self.Ua)
        state = functional.linear(directions[1][0], self.Ws).tanh()
        previous = torch.zeros(SENTENCES, self.E_trg.shape[1])
        loss = torch.zeros(())
        for i, word in enumerate(batch.target_TB):
            scores = (functional.linear(state, self.Wa) + keys).tanh() @ self.va
            alphas = scores.masked_fill(~batch.source_mask_SB, -torch.inf).softmax(dim=0)
            context = (alphas[..., None] * annotations).sum(0)
            pairs = functional.linear(state, self.Uo) + functional.linear(previous, self.Vo)
            pairs = pairs + functional.linear(context, self.Co)
            logits = functional.linear(pairs.view(SENTENCES, -1, 2).amax(2), self.Wo, self.b_out)
            nll = functional.cross_entropy(logits, word, reduction="none")
            loss = loss + torch.where(batch.target_mask_TB[i], nll, 0.0).sum()
            state = self.step(2, previous, state, functional.linear(context, self.C))
            previous = functional.embedding(word, self.E_trg)
        return loss


def batches(size: Size, count: int) -> list[Batch]:
    """Batches as training has them: sentences of about 25 words, sorted by the longer side."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(18, 31, (SENTENCES * count,), generator=generator)
    target = (source + torch.randint(-3, 4, source.shape, generator=generator)).clamp(1, 50)
    order = torch.maximum(source, target).argsort(stable=True).view(count, SENTENCES)
    made = []
    for rows in order[torch.randperm(count, generator=generator)]:
        sides = []
        for lengths in (source[rows], target[rows]):
            mask = torch.arange(int(lengths.max()) + 1)[:, None] <= lengths
            ids = torch.randint(2, size.words, mask.shape, generator=generator)
            sides += [torch.where(torch.arange(len(mask))[:, None] == lengths, 0, ids), mask]
        made.append(Batch(*sides))
    return made


def flops(size: Size, batch: Batch) -> float:
    """Multiplications and additions of the products of one update, padding left out: thrice the forward pass."""
    n, m, words = size
    source, target = int(batch.source_mask_SB.sum()), int(batch.target_mask_TB.sum())
    per_source = 2 * (3 * m * n + 3 * n * n) + 2 * n * n
    per_target = 3 * m * n + 3 * n * n + 6 * n * n + n * n + n * (n + m + 2 * n) + n // 2 * words
    return 3 * 2.0 * (source * per_source + target * per_target)


def best_product(dtype: torch.dtype) -> float:
    """GFLOP/s of the faster of torch's product and the kernels', on a large square."""
    side = 2048
    left, right = torch.randn(2, side, side).to(dtype)
    kernels = kernels_for(torch.device("cpu"))
    precision = "bfloat16" if dtype == torch.bfloat16 else "float32"
    rows, matrix, out = torch.randn(3, side, side)
    factor = kernels.factor(matrix, precision)
    seconds = []
    ways = [lambda: kernels.multiply(rows, factor, out)]
    if not factor.rounds:  # without products of bfloat16, torch's takes minutes
        ways.append(lambda: left @ right)
    for work in ways:
        began = time.perf_counter()
        for _ in range(6):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
            if time.perf_counter() - began > LONGEST:
                break
    return 2e-9 * side**3 / min(seconds)


def step(system: str, size: Size) -> Callable[[Batch], float]:
    """Return a function that makes one update and returns its loss."""
    if system != "loop":
        n = size.units
        config = NetworkConfig(units=n, embedding=size.embedding, alignment_units=n, maxout_units=n // 2)
        network = Network(config, size.words, size.words)
        initialize(network, seed=0)
        trainer = Trainer(network, TrainConfig(precision=system))
        return lambda batch: trainer.update(batch).loss
    loop = PlainLoop(size)
    optimizer = torch.optim.Adadelta(loop.parameters(), lr=1.0, rho=0.95, eps=1e-6)

    def update(batch: Batch) -> float:
        optimizer.zero_grad()
        loss = loop.loss(batch)
        (loss / SENTENCES).backward()
        nn.utils.clip_grad_norm_(loop.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return update


def measure(name: str, updates: int) -> None:
    size = SIZES[name]
    made = batches(size, updates)
    updaters = {system: step(system, size) for system in SYSTEMS}
    seconds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for update in updaters.values():
        update(made[0])
    for batch in made:
        for system, update in updaters.items():
            start = time.perf_counter()
            update(batch)
            seconds[system].append(time.perf_counter() - start)
    tokens = [int(batch.target_mask_TB.sum()) for batch in made]
    work = [flops(size, batch) for batch in made]
    print(
        f"\n{name}: {size.units} units, {size.embedding} dimensions, {size.words} words, {SENTENCES} sentences"
    )
    print(f"{'':10}{'tokens/s':>10}{'ratio':>8}{'GFLOP/s':>9}")
    for system in SYSTEMS:
        rates = [count / spent for count, spent in zip(tokens, seconds[system], strict=True)]
        ratios = [loop / ours for loop, ours in zip(seconds["loop"], seconds[system], strict=True)]
        done = (
            statistics.median(flop / spent for flop, spent in zip(work, seconds[system], strict=True)) / 1e9
        )
        print(f"{system:10}{statistics.median(rates):10.0f}{statistics.median(ratios):8.2f}{done:9.0f}")


def peak(name: str, system: str) -> None:
    """Print the peak memory of two updates in a process of their own."""
    size = SIZES[name]
    update = step(system, size)
    for batch in batches(size, 2):
        update(batch)
    status = Path("/proc/self/status").read_text(
        encoding="utf-8"
    )  # the peak of getrusage is inherited from the parent
    print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--kernels", choices=("plain", "compiled"))
    parser.add_argument("--peak", choices=SYSTEMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.kernels:
        os.environ["RNNSEARCH_KERNELS"] = chosen.kernels
    if chosen.peak:
        peak(chosen.size, chosen.peak)
        return
    print(f"{torch.get_num_threads()} threads, {kernels_for(torch.device('cpu')).name} kernels")
    float32, bfloat16 = best_product(torch.float32), best_product(torch.bfloat16)
    native = products_on(torch.device("cpu")) == "native"
    told = "" if native else " (no bfloat16 here: float32 products of rounded operands)"
    print(f"products here: {float32:.0f} GFLOP/s in float32, {bfloat16:.0f} in bfloat16{told}")
    for name in [chosen.size] if chosen.size else SIZES:
        measure(name, chosen.updates)
        for system in SYSTEMS:
            command = [sys.executable, __file__, "--size", name, "--peak", system]
            megabytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            print(f"peak memory of {system}: {megabytes} MB")


if __name__ == "__main__":
    main()
