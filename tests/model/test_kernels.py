import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.kernels import Kernels, Precision, bfloat16, build, choice, kernels_for
from rnnsearch.model.kernels.bfloat16 import KernelsError
from rnnsearch.model.kernels.build import BuildError
from rnnsearch.model.kernels.compiled import CompiledKernels
from rnnsearch.model.network import Network

CPU = torch.device("cpu")
PLAIN = Kernels()


@pytest.fixture
def compiled() -> Kernels:
    try:
        return CompiledKernels()
    except BuildError as error:
        pytest.skip(f"nothing compiles here: {error}")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of kernels, and a process that has not chosen yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RNNSEARCH_KERNELS", raising=False)
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    for made in (choice._plain, choice._compiled, choice._best, bfloat16._on_cpu):
        made.cache_clear()


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64
    ).to(dtype)


@pytest.mark.parametrize("rows", [1, 16, 97, 200])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 65), (64, 64), (1500, 40), (33, 130)])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)])
@pytest.mark.parametrize("add", [False, True])
def test_compiled_products_equal_plain_ones(
    compiled: Kernels, rows: int, inputs: int, outputs: int, precision: str, tolerance: float, add: bool
) -> None:
    left, matrix = draw(rows, 2 * inputs)[:, inputs:], draw(outputs, inputs)  # rows that are not contiguous
    before, scale = draw(rows, outputs + 3), inputs**0.5
    for given in (matrix, matrix.t().contiguous().t()):
        ours = before.clone()
        compiled.multiply(left, compiled.factor(given, precision), ours[:, 3:], add=add)
        exact = left.double() @ matrix.double().t() + (before[:, 3:] if add else 0)
        assert (ours[:, 3:] - exact).abs().max() < tolerance * scale * 5
        assert torch.equal(ours[:, :3], before[:, :3])
    ours = draw(inputs, outputs)
    expected = left.double().t() @ before[:, 3:].double() + (ours if add else 0)
    compiled.outer(left, before[:, 3:], ours, precision, add=add)
    assert (ours - expected).abs().max() < tolerance * max(rows, 16) ** 0.5 * 5


@pytest.fixture
def without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A processor that has no products of bfloat16."""
    monkeypatch.setenv(bfloat16.VARIABLE, "rounded")
    _forget()
    yield
    monkeypatch.undo()
    _forget()


@pytest.mark.parametrize("kernels", [Kernels, CompiledKernels])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (97, 33, 130), (16, 1500, 40)])
@pytest.mark.parametrize("add", [False, True])
def test_without_bfloat16_a_product_is_the_float32_product_of_rounded_operands(
    without_bfloat16: None,
    compiled: Kernels,
    kernels: type[Kernels],
    rows: int,
    inputs: int,
    outputs: int,
    add: bool,
) -> None:
    made = kernels()
    left, matrix, before = draw(rows, inputs), draw(outputs, inputs), draw(rows, outputs)
    exact = left.bfloat16().double() @ matrix.bfloat16().double().t()
    for given in (left, left.t().contiguous().t()):
        ours = before.clone()
        made.multiply(given, made.factor(matrix, "bfloat16"), ours, add=add)
        assert ours.dtype == torch.float32
        torch.testing.assert_close(
            ours.double(), exact + before.double() * add, rtol=1e-5, atol=1e-5 * inputs**0.5
        )
    ours = draw(inputs, outputs)
    made.outer(left, draw(rows, outputs), ours, "bfloat16")
    exact = left.bfloat16().double().t() @ draw(rows, outputs).bfloat16().double()
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5 * rows**0.5)


def test_how_bfloat16_is_multiplied_is_chosen_by_name_or_by_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("native", "rounded"):
        monkeypatch.setenv(bfloat16.VARIABLE, name)
        _forget()
        assert bfloat16.products_on(CPU) == name
        assert bfloat16.products_on(torch.device("cuda")) == "native"
    monkeypatch.setenv(bfloat16.VARIABLE, "fast")
    _forget()
    with pytest.raises(KernelsError, match="native or rounded"):
        bfloat16.products_on(CPU)
    monkeypatch.delenv(bfloat16.VARIABLE)
    _forget()
    assert bfloat16.products_on(CPU) in ("native", "rounded")
    _forget()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_product_of_nothing_is_nothing_and_one_that_does_not_fit_is_refused(
    compiled: Kernels, precision: Precision
) -> None:
    factor = compiled.factor(draw(5, 3), precision)
    none = torch.empty(0, 5)
    compiled.multiply(torch.empty(0, 3), factor, none)
    empty = torch.full((2, 5), 7.0)
    compiled.multiply(torch.empty(2, 0), compiled.factor(torch.empty(5, 0), precision), empty)
    assert empty.eq(0).all()
    for rows, out in ((draw(2, 4), (2, 5)), (draw(2, 3), (2, 4)), (draw(2, 3), (1, 5))):
        with pytest.raises(ValueError, match="does not fit"):
            compiled.multiply(rows, factor, torch.empty(out))


def test_bfloat16_products_are_summed_in_float32(compiled: Kernels) -> None:
    ones = torch.ones(1, 4096)  # a bfloat16 sum of ones stops at 256
    out = torch.empty(1, 1)
    compiled.multiply(ones, compiled.factor(ones, "bfloat16"), out)
    assert out.item() == 4096


def test_products_do_not_depend_on_the_number_of_threads(compiled: Kernels) -> None:
    left, matrix, threads = draw(300, 700), draw(130, 700), torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            out, gradient = torch.empty(300, 130), torch.empty(300, 130)
            compiled.multiply(left, compiled.factor(matrix, "float32"), out)
            compiled.outer(left.t().contiguous(), matrix.t().contiguous(), gradient, "float32")
            results.append((out, gradient))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_not_a_bit_of_loss_or_gradients_depends_on_the_number_of_threads(
    compiled: Kernels, monkeypatch: pytest.MonkeyPatch, make_batch: Callable[..., Batch], precision: Precision
) -> None:
    monkeypatch.setenv("RNNSEARCH_KERNELS", "compiled")
    network = Network(NetworkConfig(units=130, embedding=40, alignment_units=70, maxout_units=60), 300, 900)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(draw(*parameter.shape) * 0.1)
    batch = make_batch([9, 4, 7] * 30, [5, 8, 2] * 30, source_size=300, target_size=900)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            loss = network.loss(batch, precision)
            results.append((loss.detach(), *torch.autograd.grad(loss, list(network.parameters()))))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("n", [1, 15, 70])
def test_compiled_gates_equal_plain_ones_forwards_and_backwards(
    compiled: Kernels, dtype: torch.dtype, tolerance: float, n: int
) -> None:
    mask = torch.tensor([True, False, True])
    gates, state, grad = (
        draw(3, 3 * n, dtype=dtype) * 3,
        draw(3, n, dtype=dtype),
        draw(3, n, dtype=dtype, seed=9),
    )
    results = []
    for kernels in (PLAIN, compiled):
        ours, reset, moved, back = (
            gates.clone(),
            torch.empty_like(state),
            torch.empty_like(state),
            grad.clone(),
        )
        to_gates = torch.empty_like(gates)
        kernels.reset(ours, state, reset)
        kernels.update(ours, state, mask, moved)
        kernels.update_backward(ours, state, mask, back, to_gates)
        kernels.reset_backward(ours, state, grad, back, to_gates)
        results.append((ours, reset, moved, back, to_gates))
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.float64, 1e-13)])
def test_compiled_attention_equals_plain_attention_forwards_and_backwards(
    compiled: Kernels, dtype: torch.dtype, tolerance: float
) -> None:
    keys, annotations = (
        draw(7, 3, 33, dtype=dtype).transpose(0, 1),
        draw(7, 3, 50, dtype=dtype).transpose(0, 1),
    )
    mask = torch.arange(7) < torch.tensor([7, 1, 4])[:, None]
    va, query, to_context = draw(33, dtype=dtype), draw(3, 33, dtype=dtype), draw(3, 50, dtype=dtype)
    results = []
    for kernels in (PLAIN, compiled):
        attention = kernels.attention(keys, annotations, mask, va)
        alphas, context, to_query = keys.new_empty(3, 7), keys.new_empty(3, 50), keys.new_empty(3, 33)
        to_keys, to_va = keys.new_ones(3, 7, 33), keys.new_ones(3, 33)
        attention.forward(query, alphas, context)
        attention.backward(query, alphas, to_context, to_query, to_keys, to_va)
        results.append((alphas, context, to_query, to_keys, to_va))
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance)


def attend(
    kernels: Kernels, keys: Tensor, annotations: Tensor, mask: Tensor, va: Tensor, query: Tensor
) -> Tensor:
    alphas, context = keys.new_empty(keys.shape[:2]), keys.new_empty(len(keys), annotations.shape[2])
    kernels.attention(keys, annotations, mask, va).forward(query, alphas, context)
    return context


def test_attention_in_bfloat16_is_that_of_rounded_keys_and_annotations(compiled: Kernels) -> None:
    keys, annotations, va, query = draw(3, 7, 33), draw(3, 7, 50), draw(33), draw(3, 33)
    mask = torch.arange(7) < torch.tensor([7, 1, 4])[:, None]
    results = []
    for precision, kept in (
        ("bfloat16", (keys, annotations)),
        ("float32", (keys.bfloat16().float(), annotations.bfloat16().float())),
    ):
        attention = compiled.attention(*kept, mask, va, precision)
        alphas, context, gradients = (
            keys.new_empty(3, 7),
            keys.new_empty(3, 50),
            [keys.new_zeros(3, 33), torch.zeros_like(keys), keys.new_zeros(3, 33)],
        )
        attention.forward(query, alphas, context)
        attention.backward(query, alphas, context, *gradients)
        results.append((alphas, context, *gradients))
    for rounded, same in zip(*results, strict=True):
        torch.testing.assert_close(rounded, same, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(results[0][1], attend(compiled, keys, annotations, mask, va, query), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_compiled_cross_entropy_equals_the_plain_one(
    compiled: Kernels, dtype: torch.dtype, tolerance: float
) -> None:
    logits, bias, words = (
        draw(5, 1001, dtype=dtype) * 8,
        draw(1001, dtype=dtype),
        torch.tensor([0, 1000, 3, 3, 77]),
    )
    results = []
    for kernels in (PLAIN, compiled):
        ours, nll = logits.clone(), logits.new_empty(5)
        kernels.cross_entropy(ours, bias, words, nll, gradient=True)
        results.append((nll, ours))
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-6, 0.3, 3.0, 20.0, 1e4, float("inf"), float("nan")])
def test_the_gates_of_extreme_inputs_are_right(compiled: Kernels, value: float) -> None:
    row = torch.tensor([[value, -value]])
    gates, state, out = torch.cat([row, row, row], dim=1), torch.ones(1, 2), torch.empty(1, 2)
    compiled.reset(gates, state, out)
    compiled.update(gates, state, torch.tensor([True]), out)
    torch.testing.assert_close(gates[:, :2], row.tanh(), rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(gates[:, 2:4], row.sigmoid(), rtol=1e-6, atol=1e-30, equal_nan=True)


# ---------------------------------------------------------------------- which ones run


def test_without_a_compiler_the_plain_kernels_run_and_the_log_says_so(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level(logging.WARNING):
        assert kernels_for(CPU).name == "plain"
        kernels_for(CPU)
    assert len(caplog.records) == 1
    assert "no-such-compiler" in caplog.text
    monkeypatch.setenv("RNNSEARCH_KERNELS", "compiled")
    with pytest.raises(BuildError, match="install g"):
        kernels_for(CPU)


def test_a_compiler_that_refuses_is_quoted(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match="refused"):
        build.load()


def test_a_build_killed_halfway_is_no_lock_and_no_harm(compiled: Kernels, fresh: Path) -> None:
    folder = fresh / "rnnsearch" / "kernels"
    left = folder / "build-killed"
    left.mkdir(parents=True)
    (left / "kernels.so").write_bytes(b"half")
    assert kernels_for(CPU).name == "compiled"
    assert len(list(folder.glob("*.so"))) == 1


def test_trap_24_twenty_batches_of_all_lengths_compile_once(
    compiled: Kernels,
    fresh: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_network: Callable[..., Network],
    make_batch: Callable[..., Batch],
) -> None:
    compilations = []
    compile_ = build._compile
    monkeypatch.setattr(build, "_compile", lambda target: compilations.append(target) or compile_(target))
    network = small_network()
    for length in range(1, 21):
        network.loss(make_batch([length, 2], [21 - length, 3])).backward()
    assert len(compilations) == 1


def test_a_wish_that_is_not_known_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RNNSEARCH_KERNELS", "quick")
    with pytest.raises(KernelsError, match="plain or compiled"):
        kernels_for(CPU)
