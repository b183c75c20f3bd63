"""What several tests of the model need: both kinds of kernels, small networks, and the paper's sums as loops."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.kernels.build import BuildError
from rnnsearch.model.kernels.compiled import CompiledKernels
from rnnsearch.model.network import Network


@pytest.fixture(params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test that asks for this runs on the plain and on the compiled kernels."""
    if request.param == "compiled":
        try:
            CompiledKernels()
        except BuildError as error:
            pytest.skip(f"nothing compiles here: {error}")
    monkeypatch.setenv("RNNSEARCH_KERNELS", request.param)
    return request.param


@pytest.fixture
def small_network() -> Callable[..., Network]:
    """Makes a float64 network of a few units with large random weights; settings as in NetworkConfig."""

    def make(seed: int = 0, source_size: int = 9, target_size: int = 8, **settings: Any) -> Network:
        sizes = {"units": 4, "embedding": 3, "alignment_units": 5, "maxout_units": 2}
        network = Network(NetworkConfig(**{**sizes, **settings}), source_size, target_size).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7)
        return network

    return make


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """Makes a batch of random words from source and target lengths, `</s>` counted; padding holds random words."""

    def make(
        source: list[int], target: list[int], source_size: int = 9, target_size: int = 8, seed: int = 1
    ) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        sides: list[Tensor] = []
        for lengths, size in ((torch.tensor(source), source_size), (torch.tensor(target), target_size)):
            positions = torch.arange(max(1, int(lengths.max())))[:, None]
            ids = torch.randint(1, size, (len(positions), len(lengths)), generator=generator)
            sides += [torch.where(positions == lengths - 1, 0, ids), positions < lengths]
        return Batch(*sides)

    return make


class PaperSums(NamedTuple):
    """One sentence pair by the paper's equations."""

    log_probs_T: Tensor
    alphas_TS: Tensor | None
    contexts_TH: Tensor
    states_TN: Tensor  # s_0 … s_T
    annotations_SH: Tensor


@pytest.fixture
def paper_sums() -> Callable[[Network, list[int], list[int]], PaperSums]:
    """Scores one unpadded sentence pair with App. A's equations, word by word, under autograd."""
    return _paper_sums


def _paper_sums(network: Network, source: list[int], target: list[int]) -> PaperSums:
    config, encoder, readout = network.config, network.encoder, network.readout
    zero_N = encoder.E_src.new_zeros(config.units)
    words = [encoder.E_src[word] + encoder.b_emb_src for word in source]
    forward = [zero_N]
    for x in words:
        forward.append(_next(encoder.enc_f, x, forward[-1]))
    backward = [zero_N]
    if encoder.enc_b is not None:
        for x in reversed(words):
            backward.append(_next(encoder.enc_b, x, backward[-1]))
        h = [torch.cat([f, b]) for f, b in zip(forward[1:], reversed(backward[1:]), strict=True)]
    else:
        h = forward[1:]
    summary = h[-1] if encoder.enc_b is None else backward[-1]
    state = torch.tanh(network.Ws @ summary + network.bs)
    states, log_probs, alphas, contexts = [state], [], [], []
    previous = encoder.E_src.new_zeros(config.embedding)
    for word in target:
        embedded = network.E_trg[word] + network.b_emb_trg
        if config.kind == "luong":
            state = _next(network.dec, previous, state)
        if config.kind == "rnnencdec":
            context = h[-1]
        else:
            energy = []
            for annotation in h:
                if config.kind == "luong":
                    energy.append(state @ (network.alignment.P @ annotation))
                else:
                    part = network.alignment
                    inner = part.Wa @ state + part.Ua @ annotation
                    energy.append(part.va @ torch.tanh(inner if part.ba is None else inner + part.ba))
            weights = [torch.exp(e) for e in energy]
            alpha = [w / sum(weights) for w in weights]
            context = sum(a * annotation for a, annotation in zip(alpha, h, strict=True))
            alphas.append(torch.stack(alpha))
        read = state
        if config.kind != "luong":
            late = config.decoder_order == "groundhog"
            state = _next(network.dec, embedded if late else previous, state, context)
            read = state if config.decoder_order == "main" else read
        pairs = readout.Uo @ read + readout.Vo @ previous + readout.Co @ context + readout.bo
        maxout = torch.stack([torch.max(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)])
        logits = readout.Wo @ maxout if readout.Wo1 is None else readout.Wo2 @ (readout.Wo1 @ maxout)
        logits = logits + readout.b_out
        log_probs.append(logits[word] - torch.log(sum(torch.exp(logit) for logit in logits)))
        contexts.append(context)
        states.append(state)
        previous = embedded
    return PaperSums(
        torch.stack(log_probs), torch.stack(alphas) if alphas else None, torch.stack(contexts),
        torch.stack(states), torch.stack(h),
    )  # fmt: skip


def _next(unit: torch.nn.Module, x: Tensor, state: Tensor, context: Tensor | None = None) -> Tensor:
    """App. A.1.1 and A.2.2, one gate after the other."""
    n = len(state)
    W, W_z, W_r = unit.W.split(n)
    U, U_z, U_r = unit.U.split(n)
    b = unit.b[:n]
    b_z, b_r = unit.b[n:].split(n) if len(unit.b) > n else (0.0, 0.0)
    c, c_z, c_r = (part @ context for part in unit.C.split(n)) if unit.C is not None else (0.0, 0.0, 0.0)
    z = torch.sigmoid(W_z @ x + U_z @ state + c_z + b_z)
    r = torch.sigmoid(W_r @ x + U_r @ state + c_r + b_r)
    candidate = torch.tanh(W @ x + U @ (r * state) + c + b)
    return (1 - z) * state + z * candidate
