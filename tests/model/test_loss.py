import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from rnnsearch.model import loss
from rnnsearch.model.kernels import kernels_for
from rnnsearch.model.loss import word_loss

CPU = torch.device("cpu")

PEAK = """
from pathlib import Path
import torch
from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.network import Network


def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


network = Network(NetworkConfig(units=8, embedding=8, alignment_units=1000, maxout_units=8), 100, 30_000)
length, sentences = 51, 32
words, mask = torch.ones(length, sentences, dtype=torch.int64), torch.ones(length, sentences, dtype=torch.bool)
network.loss(Batch(words[:2], mask[:2], words[:2], mask[:2])).backward()
before = peak()
network.loss(Batch(words, mask, words, mask)).backward()
print(peak() - before)
"""


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("words", [1, 5, 12])
def test_the_loss_of_chunks_is_that_of_all_words_together(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "CHUNK", 5)
    generator = torch.Generator().manual_seed(0)
    values = [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((words, 3), (7, 3), (7,))
    ]
    chosen = torch.randint(7, (words,), generator=generator)
    result = word_loss(kernels_for(CPU), "float64", *values, chosen)
    plain = functional.cross_entropy(values[0] @ values[1].t() + values[2], chosen, reduction="none")
    torch.testing.assert_close(result.nll_R, plain.detach())
    torch.testing.assert_close(result.total, plain.sum())
    ours, theirs = (torch.autograd.grad(3 * total, values) for total in (result.total, plain.sum()))
    for gradient, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.usefixtures("kernels")
def test_a_frozen_output_matrix_still_passes_the_gradient_on() -> None:
    features = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    output, bias = torch.eye(4, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    word_loss(kernels_for(CPU), "float64", features, output, bias, torch.tensor([0, 1])).total.backward()
    expected = torch.softmax(features.detach() @ output.t(), dim=1)[:, :3] - torch.eye(2, 3)
    torch.testing.assert_close(features.grad, expected)


@pytest.mark.usefixtures("kernels")
def test_huge_logits_give_numbers() -> None:
    features, output = torch.tensor([[1.0]]), torch.tensor([[1e4], [-1e4], [9.999e3]])
    result = word_loss(kernels_for(CPU), "float32", features, output, torch.zeros(3), torch.tensor([2]))
    assert result.total.item() == pytest.approx(1.3133, abs=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.usefixtures("kernels")
def test_trap_23_neither_all_logits_nor_all_tanhs_exist_at_once() -> None:
    printed = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    all_logits, all_tanhs = 32 * 51 * 30_000 * 4, 32 * 51 * 51 * 1000 * 4  # 196 MB and 333 MB
    assert int(printed) * 1024 < 150e6 < min(all_logits, all_tanhs)
