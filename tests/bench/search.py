"""How fast the search is, beside a plain beam of one sentence at a time: same sentences, same run.

    python tests/bench/search.py [--sentences 200] [--plain 20] [--beam 12] [--exact 3] [--kernels plain]

Paper's size, random weights, sentences of about 25 words, two threads. Prints sentences and output tokens per second,
their ratio to the plain beam, and peak memory; then how many outputs are the plain beam's, in float64 and in float32.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from rnnsearch.model.config import NetworkConfig, SearchConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.kernels import kernels_for
from rnnsearch.model.network import Network
from rnnsearch.model.search import EOS, Hypothesis, beam_search

WORDS = 30_002
THREADS = 2
LENGTH_RATIO = 2.0  # random weights never end a sentence: 2 x source length is when all stop


class Found(NamedTuple):
    ids: tuple[int, ...]
    cost: float


@torch.inference_mode()
def plain_beam(network: Network, sentence: Sequence[int], beam: int) -> Found:
    """What one would write first: one sentence, its hypotheses as a batch, U_a h hoisted out of the loop."""
    source = torch.tensor([*sentence, EOS])
    n, alignment, unit, readout = network.config.units, network.alignment, network.dec, network.readout
    embedded = functional.embedding(source, network.encoder.E_src) + network.encoder.b_emb_src

    def step(unit, x, state, extra=0.0):  # type: ignore[no-untyped-def]
        candidate, gates = (functional.linear(x, unit.W, unit.bias) + extra).tensor_split([n], dim=1)
        update, reset = (gates + functional.linear(state, unit.U[n:])).sigmoid().chunk(2, dim=1)
        return state + update * ((candidate + functional.linear(reset * state, unit.U[:n])).tanh() - state)

    directions = []
    for one, order in (
        (network.encoder.enc_f, range(len(source))),
        (network.encoder.enc_b, range(len(source) - 1, -1, -1)),
    ):
        state, states = embedded.new_zeros(1, n), [embedded] * len(source)
        for j in order:
            states[j] = state = step(one, embedded[j : j + 1], state)
        directions.append(torch.cat(states))
    annotations = torch.cat(directions, dim=1)
    keys = functional.linear(annotations, alignment.Ua, alignment.ba)
    state = functional.linear(directions[1][:1], network.Ws, network.bs).tanh()
    previous = embedded.new_zeros(1, embedded.shape[1])
    costs, words, done = torch.zeros(1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.int64), []
    limit = int(LENGTH_RATIO * len(source))
    for i in range(1, limit + 1):
        query = functional.linear(state, alignment.Wa)
        alphas = ((keys + query[:, None]).tanh() @ alignment.va).softmax(dim=1)
        context = alphas @ annotations
        pairs = functional.linear(state, readout.Uo, readout.bo) + functional.linear(previous, readout.Vo)
        features = (pairs + functional.linear(context, readout.Co)).view(len(state), -1, 2).amax(dim=2)
        log_p = functional.linear(features, readout.Wo, readout.b_out).log_softmax(dim=1)
        total = (costs[:, None] - log_p).flatten()
        costs, best = total.topk(min(beam, len(total)), largest=False)
        parents, chosen = best // WORDS, best % WORDS
        state = step(unit, previous, state, functional.linear(context, unit.C))[parents]
        words = torch.cat([words[parents], chosen[:, None]], dim=1)
        ended = chosen == EOS
        done += [
            (cost / i, Found(tuple(ids), cost))
            for cost, ids in zip(costs[ended].tolist(), words[ended].tolist(), strict=True)
        ]
        costs, words, state, chosen = costs[~ended], words[~ended], state[~ended], chosen[~ended]
        if not len(costs) or (done and min(done)[0] <= costs.min().item() / limit):
            break
        previous = functional.embedding(chosen, network.E_trg) + network.b_emb_trg
    if done:
        return min(done)[1]
    return Found(tuple(words[0].tolist()), costs[0].item())


def make(beam: int, count: int) -> tuple[Network, list[list[int]], SearchConfig]:
    """The network at the paper's size and the sentences, 15 to 35 words long."""
    network = Network(NetworkConfig(), WORDS, WORDS)
    initialize(network, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        # As they are, all words are equally likely to five digits, and every beam is one tie.
        for weights in (network.readout.output, network.E_trg, network.alignment.va):
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.3)
    lengths = torch.randint(15, 36, (count,), generator=generator).tolist()
    sentences = [torch.randint(2, WORDS, (length,), generator=generator).tolist() for length in lengths]
    return network, sentences, SearchConfig(beam=beam, max_length_ratio=LENGTH_RATIO)


def compare(name: str, found: Sequence[Hypothesis], expected: Sequence[Found]) -> None:
    """Say how many outputs are equal, and what the others are."""
    other = [(one, plain) for one, plain in zip(found, expected, strict=True) if one.ids != plain.ids]
    ties = [abs(one.key - plain.cost / len(plain.ids)) <= 1e-4 for one, plain in other]
    print(
        f"{name:<10} {len(expected) - len(other)} of {len(expected)} outputs are the plain beam's, "
        f"{sum(ties)} differ by a tie within 1e-4, {len(other) - sum(ties)} otherwise"
    )


def measure(system: str, beam: int, count: int) -> None:
    """Print tokens per second of one system; run in a process of its own, for its memory."""
    network, sentences, config = make(beam, count)
    if system == "plain":
        began = time.perf_counter()
        lengths = [len(plain_beam(network, sentence, beam).ids) for sentence in sentences]
    else:
        config = config.model_copy(update={"precision": system})
        beam_search(network, sentences[:1], config)  # compiles and starts threads
        began = time.perf_counter()
        lengths = [len(one[0].ids) for one in beam_search(network, sentences, config)]
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(count / seconds, sum(lengths) / seconds, peak, kernels_for(torch.device("cpu")).name)


def main() -> None:
    """Measure each system in its own process, then compare their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--plain", type=int, default=20, help="sentences that the plain beam gets")
    parser.add_argument("--beam", type=int, default=12)
    parser.add_argument("--exact", type=int, default=3, help="sentences whose outputs are compared")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    if options.system:
        measure(options.system, options.beam, options.sentences)
        return
    os.environ["RNNSEARCH_KERNELS"] = options.kernels
    speeds = {}
    for system, count in (
        ("plain", options.plain),
        ("float32", options.sentences),
        ("bfloat16", options.sentences),
    ):
        command = [
            sys.executable,
            __file__,
            "--system",
            system,
            "--beam",
            str(options.beam),
            "--sentences",
            str(count),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        sentences, tokens, peak, kernels = done.stdout.split()
        speeds[system] = float(tokens)
        print(
            f"{system:<10} {float(sentences):6.2f} sentences/s {speeds[system]:8.1f} tokens/s "
            f"{speeds[system] / speeds['plain']:6.2f} x {float(peak):5.2f} GiB  {count} sentences"
            + (f", {kernels} kernels" if system != "plain" else ""),
            flush=True,
        )
    if options.exact:
        network, inputs, config = make(options.beam, options.exact)
        expected = [plain_beam(network, sentence, options.beam) for sentence in inputs]
        for precision in ("float32", "bfloat16"):
            config = config.model_copy(update={"precision": precision})
            compare(precision, [one[0] for one in beam_search(network, inputs, config)], expected)
        network.double()
        expected = [plain_beam(network, sentence, options.beam) for sentence in inputs]
        compare("float64", [one[0] for one in beam_search(network, inputs, config)], expected)


if __name__ == "__main__":
    main()
