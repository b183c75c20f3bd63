"""One update: traps 13 and 16 to 18, with workers that are threads of this process."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.flat import FlatParameters
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Lesson, Network
from rnnsearch.model.step import Trainer, TrainingError, Update

TINY = NetworkConfig(units=5, embedding=4, alignment_units=3, maxout_units=3)
EXACT: dict[str, Any] = {"precision": "float64"}


@dataclass
class Together:
    """Workers as threads; their sum goes over the ranks in order, so that all get the same bits."""

    size: int
    _parts: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._barrier = threading.Barrier(self.size, timeout=60)

    def sum_of(self, rank: int) -> Callable[[Tensor], None]:
        def add(tensor: Tensor) -> None:
            self._parts[rank] = tensor.clone()
            self._barrier.wait()
            tensor.copy_(torch.stack([self._parts[each] for each in range(self.size)]).sum(0))
            self._barrier.wait()

        return add

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        results: dict[int, Any] = {}

        def one(rank: int) -> None:
            try:
                results[rank] = work(rank)
            except BaseException as error:
                results[rank] = error
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[rank] for rank in range(self.size)]


class Slope(nn.Module):
    """Stands for a network: the gradient of its loss is the first source id of each sentence, or what is asked."""

    attends = False

    def __init__(self, gradient: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
        self.gradient = torch.tensor(gradient, dtype=torch.float64)

    def accumulate(self, batch: Batch, precision: str) -> Lesson:
        loss = (self.w * self.gradient).sum() * batch.target_TB.shape[1]
        loss.backward()  # type: ignore[no-untyped-call]
        return Lesson(loss.detach(), None)


def _batch(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    sides = []
    for side in (0, 1):
        rows = [[*pair[side], 0] for pair in pairs]
        longest = max(map(len, rows))
        sides.append(torch.tensor([row + [0] * (longest - len(row)) for row in rows]).T)
        sides.append(torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows]).T)
    return Batch(*sides)


def _pairs(lengths: list[int], seed: int = 3) -> list[tuple[list[int], list[int]]]:
    random = np.random.default_rng(seed)
    return [
        (random.integers(2, 11, length).tolist(), random.integers(2, 13, max(1, length - 1)).tolist())
        for length in lengths
    ]


def _trainer(sum_over_workers: Callable[[Tensor], None] | None = None, **config: Any) -> Trainer:
    network = Network(TINY, 11, 13)
    initialize(network, 1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3).add_(0.01)  # so that no gradient is zero
    return Trainer(network.double(), TrainConfig(**EXACT, **config), sum_over_workers)


def _sloped(
    gradient: list[float], sum_over_workers: Callable[[Tensor], None] | None, **config: Any
) -> Trainer:
    return Trainer(Slope(gradient), TrainConfig(**EXACT, **config), sum_over_workers)  # type: ignore[arg-type]


ONE = _batch([([2], [3])])
FOUR = _batch([([2], [3])] * 4)


def test_trap_13_the_reduction_decides_how_often_updates_are_clipped() -> None:
    clipped = {}
    for reduction in ("mean_per_sentence", "sum"):
        trainer = _sloped([0.5], None, reduction=reduction)
        done = trainer.update(FOUR)
        clipped[reduction] = (done.norm, done.clipped)
    assert clipped == {"mean_per_sentence": (0.5, False), "sum": (2.0, True)}


def test_a_norm_of_exactly_the_limit_counts_as_clipped_and_keeps_its_gradient() -> None:
    trainer = _sloped([0.6, 0.8], None)
    assert trainer.update(ONE).clipped
    torch.testing.assert_close(
        trainer.flat.named(trainer.optimizer.buffers["squared_gradient"])["w"],
        0.05 * torch.tensor([0.36, 0.64], dtype=torch.float64),
    )


def test_trap_15_the_accumulators_see_the_clipped_gradient() -> None:
    trainer = _sloped([3.0, 4.0], None)
    assert trainer.update(ONE).norm == pytest.approx(5)
    torch.testing.assert_close(
        trainer.flat.named(trainer.optimizer.buffers["squared_gradient"])["w"],
        0.05 * torch.tensor([0.36, 0.64], dtype=torch.float64),
    )


def test_trap_16_inf_on_one_worker_leaves_all_finite_and_identical_and_is_counted() -> None:
    together = Together(2)

    def poisoned(trainer: Trainer) -> Callable[[Batch, str], Lesson]:
        def accumulate(batch: Batch, precision: str) -> Lesson:
            lesson = Network.accumulate(trainer.network, batch, "float64")
            trainer.flat.named(trainer.flat.gradients_P)["Ws"][1, 2] = torch.inf
            return lesson

        return accumulate

    def work(rank: int) -> tuple[Trainer, list[Update]]:
        trainer = _trainer(together.sum_of(rank))
        updates = []
        for step in range(3):
            if step == 1 and rank == 1:
                trainer.network.accumulate = poisoned(trainer)  # type: ignore[method-assign,assignment]
            updates.append(trainer.update(_batch(_pairs([3, 2], seed=step))))
            vars(trainer.network).pop("accumulate", None)
        return trainer, updates

    (first, updates), (second, others) = together.run(work)
    assert [update.skipped for update in updates] == [False, True, False]
    assert updates == others or [u.skipped for u in others] == [False, True, False]
    assert (first.skipped, first.skipped_in_a_row) == (1, 0) == (second.skipped, second.skipped_in_a_row)
    assert torch.isfinite(first.flat.parameters_P).all()
    assert torch.equal(first.flat.parameters_P, second.flat.parameters_P)


def test_a_skipped_update_moves_neither_parameters_nor_optimiser() -> None:
    trainer = _sloped([1.0], None)
    trainer.update(ONE)
    before = trainer.snapshot(1, None, {})
    trainer.network.gradient.fill_(torch.nan)  # type: ignore[operator]
    assert trainer.update(ONE).skipped
    after = trainer.snapshot(2, None, {})
    assert torch.equal(before.parameters["w"], after.parameters["w"])
    for name, buffer in before.buffers.items():
        assert torch.equal(buffer["w"], after.buffers[name]["w"])
    assert after.facts["optimizer_steps"] == 1


def test_too_many_skipped_updates_in_a_row_stop_every_worker_with_a_clear_error() -> None:
    together = Together(2)

    def work(rank: int) -> str:
        trainer = _sloped([torch.inf if rank else 1.0], together.sum_of(rank), nonfinite_limit=3)
        trainer.update(ONE)
        trainer.update(ONE)
        with pytest.raises(TrainingError) as raised:
            trainer.update(ONE)
        return str(raised.value)

    first, second = together.run(work)
    assert first == second
    assert "not finite in 3 updates in a row" in first


@pytest.mark.parametrize("reduction", ["mean_per_sentence", "sum"])
@pytest.mark.parametrize(
    ("lengths", "cuts"),
    [
        ([2, 3] * 40, [13]),  # 80 = 13 + 67
        ([3] * 4 + [50] * 2, [4]),  # short ones here, long ones there
        ([5, 1, 9, 2, 2, 7], [1, 2, 4]),  # four workers
        ([4, 6], [1, 2, 2]),  # two of four have nothing
    ],
)
def test_trap_17_the_gradient_does_not_depend_on_how_a_batch_is_shared(
    lengths: list[int], cuts: list[int], reduction: str
) -> None:
    batches = [_pairs(lengths, seed) for seed in range(3)]
    alone = _trainer(reduction=reduction)
    norms = [alone.update(_batch(batch)).norm for batch in batches]
    edges = [0, *cuts, len(lengths)]
    together = Together(len(edges) - 1)

    def work(rank: int) -> tuple[Trainer, list[float], Tensor]:
        trainer = _trainer(together.sum_of(rank), reduction=reduction)
        found = []
        for step, batch in enumerate(batches):
            part = batch[edges[rank] : edges[rank + 1]]
            done = trainer.update(_batch(part) if part else None)
            assert done.sentences == len(batch)
            assert done.tokens == sum(len(target) + 1 for _, target in batch)
            found.append(done.norm)
            if step == 0:
                gradient = trainer.flat.gradients_P.clone()
        return trainer, found, gradient

    once = _trainer(reduction=reduction)
    once.update(_batch(batches[0]))
    for trainer, found, gradient in together.run(work):
        torch.testing.assert_close(gradient, once.flat.gradients_P, rtol=0, atol=1e-6)
        assert found == pytest.approx(norms, rel=1e-9)
        torch.testing.assert_close(trainer.flat.parameters_P, alone.flat.parameters_P, rtol=0, atol=1e-9)


def test_trap_18_opposite_gradients_do_not_move() -> None:
    together = Together(2)

    def work(rank: int) -> tuple[float, float]:
        trainer = _sloped([10.0 if rank else -10.0], together.sum_of(rank))
        return trainer.update(ONE).norm, trainer.network.w.item()  # type: ignore[operator]

    assert together.run(work) == [(0.0, 0.0), (0.0, 0.0)]


def test_trap_18_a_gradient_is_clipped_after_the_sum_and_not_on_each_worker() -> None:
    together = Together(2)

    def work(rank: int) -> tuple[float, Tensor]:
        trainer = _sloped([0.0, 8.0] if rank else [6.0, 0.0], together.sum_of(rank))
        norm = trainer.update(ONE).norm
        return norm, trainer.flat.named(trainer.optimizer.buffers["squared_gradient"])["w"].clone()

    for norm, accumulator in together.run(work):  # each clipped to 1 and then summed they would be equal
        assert norm == pytest.approx(5)
        torch.testing.assert_close(accumulator, 0.05 * torch.tensor([0.36, 0.64], dtype=torch.float64))


def test_one_workers_wish_to_stop_reaches_all_in_the_same_update() -> None:
    together = Together(3)

    def work(rank: int) -> list[bool]:
        trainer = _sloped([1.0], together.sum_of(rank))
        return [trainer.update(ONE, stop=rank == 2 and step == 1).stop for step in range(3)]

    assert together.run(work) == [[False, True, False]] * 3


def test_the_network_reads_and_fills_the_flat_buffers() -> None:
    network = Network(TINY, 11, 13)
    initialize(network, 1)
    expected = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    flat = FlatParameters(network)
    for name, view in flat.named(flat.parameters_P).items():
        assert torch.equal(view, expected[name])
    network.accumulate(_batch(_pairs([3, 4])))
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, flat.named(flat.gradients_P)[name])
    norm = sum(float(p.grad.double().square().sum()) for p in network.parameters() if p.grad is not None)
    assert flat.gradient_norm().item() == pytest.approx(norm**0.5, rel=1e-6)
    with torch.no_grad():
        flat.parameters_P.zero_()
    assert all(not parameter.any() for parameter in network.parameters())


def test_the_gradient_norm_is_the_same_for_any_number_of_threads() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(300_000))

    flat = FlatParameters(Large())
    flat.gradients_P.copy_(torch.randn(flat.gradients_P.shape, generator=torch.Generator().manual_seed(0)))
    threads, norms = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            norms.append(flat.gradient_norm().item())
    finally:
        torch.set_num_threads(threads)
    assert len(set(norms)) == 1


def test_a_snapshot_of_another_network_or_optimiser_is_refused() -> None:
    snapshot = _sloped([1.0, 2.0], None).snapshot(0, None, {})
    with pytest.raises(TrainingError, match="another network"):
        _sloped([1.0], None).restore(snapshot)
    with pytest.raises(TrainingError, match="optimiser"):
        _sloped([1.0, 2.0], None, optimizer="adam").restore(snapshot)
