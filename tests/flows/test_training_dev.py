"""What a training measures on dev: the same on any number of workers (trap 19), and nothing else changes by it."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from worker_threads import together

from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_data import Sides, dev_batches, sides
from rnnsearch.flows.training_dev import DevLoss, dev_bleu, dev_loss
from rnnsearch.flows.training_job import Ending, TrainingJob, Workers
from rnnsearch.model.attention import Alignment
from rnnsearch.model.config import NetworkConfig, SearchConfig, TrainConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Network
from rnnsearch.model.search import beam_search
from rnnsearch.model.step import Trainer
from rnnsearch.pipeline.bleu import bleu, statistics

WORDS = 20
COPIED = 11  # ids of the network that copies
TINY = NetworkConfig(units=6, embedding=5, alignment_units=4, maxout_units=3)


@pytest.fixture
def dev(tmp_path: Path, examples: Callable[..., list[Path]]) -> Sides:
    """Seven pairs, the target the source backwards."""
    return sides(pq.read_table(examples(tmp_path / "dev", 7, words=WORDS, seed=1, longest=15)[0]))


@pytest.fixture(scope="module")
def copying() -> Network:
    """A network that copies sentences of distinct words, by weights set by hand.

    Every decision has a margin that no rounding reaches: what a training has learned depends on the last bits of
    sums, and those on the processor. States are one-hot: an annotation holds its word and the word before it (`</s>`
    for the first), the decoder's state the word just said, and attention seeks the position whose word before is that.
    """
    k, sharp = COPIED, 10.0
    sizes = {"units": 2 * k, "embedding": k, "alignment_units": k, "maxout_units": k}
    network = Network(NetworkConfig(decoder_order="groundhog", **sizes), k, k)
    one = sharp * torch.eye(k)
    encoder, decoder, alignment, readout = (
        network.encoder.enc_f,
        network.dec,
        network.alignment,
        network.readout,
    )
    assert isinstance(alignment, Alignment)
    with torch.no_grad():
        for unit in (encoder, decoder):
            unit.b[2 * k :] = 20  # z = r = 1: every state is new
            unit.W[:k] = one
        encoder.U[k : 2 * k, :k] = one
        encoder.U[k, :k] = -2 * sharp  # in the place of `</s>`: there was no word before
        encoder.b[k] = sharp
        network.encoder.E_src.copy_(torch.eye(k))
        network.E_trg.copy_(torch.eye(k))
        network.bs[0] = sharp  # at the start the decoder has said `</s>`
        alignment.Wa[:, :k] = one
        alignment.Ua[:, k : 2 * k] = one
        alignment.ba.fill_(-1.5 * sharp)  # positive only where both are there
        alignment.va.fill_(2 * sharp)
        readout.Co[::2, :k] = sharp * one
        readout.output.copy_(torch.eye(k))
    return network


def _distinct(count: int, seed: int) -> Sides:
    """Sentences of one to seven distinct words; of every third the reference lacks the last word."""
    random = np.random.default_rng(seed)
    words = [random.permutation(np.arange(2, COPIED))[: random.integers(1, 8)] for _ in range(count)]
    source = [row.astype(np.int32) for row in words]
    return Sides(source, [row[: max(1, len(row) - (number % 3 == 0))] for number, row in enumerate(source)])


def test_the_copying_network_copies_with_a_margin_that_no_rounding_reaches(copying: Network) -> None:
    rows = _distinct(60, seed=2)
    found = beam_search(copying, [row.tolist() for row in rows.source], SearchConfig(beam=1))
    assert [best.ids for (best,) in found] == [(*row.tolist(), 0) for row in rows.source]
    assert max(best.cost for (best,) in found) < 1e-3


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_trap_19_dev_loss_of_seven_sentences_is_the_same_on_any_number_of_workers(
    dev: Sides, workers: int
) -> None:
    network = Network(TINY, WORDS, WORDS)
    initialize(network, 3)

    def measure(size: int) -> Sequence[DevLoss]:
        config = TrainConfig(batch=2)
        return together(size, lambda each: dev_loss(Trainer(network, config), dev, each))

    (alone,) = measure(1)
    assert measure(workers) == [alone] * workers
    assert alone.sentences == 7
    one_by_one = sum(
        network.loss(dev.batch(np.array([row])), "float32").item() for row in range(len(dev.target))
    )
    assert alone.loss == pytest.approx(one_by_one, rel=1e-5)


def test_every_dev_sentence_is_in_one_batch_that_fits(dev: Sides) -> None:
    cuts = dev_batches(dev, batch=3, cells=20)
    assert sorted(row for cut in cuts for row in cut) == list(range(7))
    for cut in cuts:
        longest = max(max(len(dev.source[row]), len(dev.target[row])) + 1 for row in cut)
        assert len(cut) == 1 or len(cut) * longest <= 20
        assert len(cut) <= 3


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_trap_19_dev_bleu_is_the_same_on_any_number_of_workers_and_each_sentence_is_searched_once(
    copying: Network,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = _distinct(130, seed=3)  # three groups
    searched: list[tuple[int, ...]] = []

    def noted(network: Network, sentences: Sequence[Sequence[int]], config: SearchConfig) -> object:
        searched.extend(tuple(sentence) for sentence in sentences)
        return beam_search(network, sentences, config)

    monkeypatch.setattr("rnnsearch.flows.training_dev.beam_search", noted)
    config = TrainConfig()
    found = together(workers, lambda each: dev_bleu(Trainer(deepcopy(copying), config), rows, each))
    assert found == [found[0]] * workers
    assert 50 < found[0] < 100
    assert sorted(searched) == sorted(tuple(row.tolist()) for row in rows.source)
    assert found[0] == dev_bleu(Trainer(deepcopy(copying), config), rows, Workers())


def test_dev_bleu_is_the_bleu_of_the_words_and_unk_never_matches(
    copying: Network,
) -> None:
    rows = _distinct(300, seed=3)
    some = Sides(
        rows.source, [np.where(row == 3, 1, row) for row in rows.target]
    )  # rare words in the references
    names = ["</s>", "[UNK]", "in", "the", "beginning", "was", "word", "and", "with", "God", "same"]
    rare = [f"rare-{number}" for number in range(len(some.target))]
    references = [
        " ".join(rare[number] if word == 1 else names[word] for word in row)
        for number, row in enumerate(some.target)
    ]
    network = deepcopy(copying)
    with torch.no_grad():
        for part in (network.E_trg, network.readout.output, network.readout.b_out):
            part[[1, 3]] = part[[3, 1]]  # it says [UNK] where it would say "the"
    greedy = SearchConfig(beam=1, width="narrowing", normalize=False, max_length_ratio=2)
    found = [best[0] for best in beam_search(network, [row.tolist() for row in some.source], greedy)]
    hypotheses = [" ".join(names[word] for word in best.ids if word) for best in found]
    assert any("[UNK]" in hypothesis for hypothesis in hypotheses)
    expected = bleu(statistics(hypotheses, references)).score
    assert 1 < expected < 100
    assert dev_bleu(Trainer(network, TrainConfig()), some, Workers()) == pytest.approx(expected, rel=1e-12)


def test_a_worker_whose_network_gives_no_numbers_leaves_none_waiting(dev: Sides) -> None:
    def measure(each: Workers) -> float | None:
        network = Network(TINY, WORDS, WORDS)
        initialize(network, 3)
        if each.rank == 0:
            network.b_emb_trg.data.fill_(torch.nan)
        return dev_bleu(Trainer(network, TrainConfig()), dev, each)

    assert together(2, measure) == [None, None]


def test_measuring_bleu_changes_not_a_bit_of_what_is_trained(
    tmp_path: Path, examples: Callable[..., list[Path]]
) -> None:
    job = TrainingJob(
        examples=examples(tmp_path / "examples", 100, words=WORDS),
        dev=examples(tmp_path / "dev", 7, words=WORDS, seed=1)[0],
        network=TINY,
        train=TrainConfig(updates=8, batch=8, evaluate_every=2, optimizer="adam", learning_rate=0.01),
        source_size=WORDS,
        target_size=WORDS,
        name="test",
        workdir=tmp_path / "measured",
    )
    made = []
    for name, sentences in (("measured", 5), ("off", 0)):
        each = replace(
            job,
            workdir=tmp_path / name,
            train=job.train.model_copy(update={"dev_bleu_sentences": sentences}),
        )
        each.workdir.mkdir()
        assert train_worker(each, Workers()) == Ending("finished", 8)
        parts = (
            "model/model",
            "model/best",
            "state/model",
            "state/optimizer",
        )  # the last holds the random state
        made.append([(each.finished / f"{part}.safetensors").read_bytes() for part in parts])
        rows = pq.read_table(each.finished / "curve.parquet").to_pylist()
        assert [row["dev_bleu"] is not None for row in rows] == [sentences > 0] * 4
        assert all(row["dev_loss_per_token"] is not None for row in rows)
    assert made[0] == made[1]
