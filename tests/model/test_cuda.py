"""The same code on a GPU gives the numbers of a processor; skipped where there is no GPU."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import SearchConfig, TrainConfig
from rnnsearch.model.network import Network
from rnnsearch.model.search import beam_search
from rnnsearch.model.step import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: torch sees none")

KINDS = pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])


def _on_gpu(batch: Batch) -> Batch:
    return Batch(*(part.cuda() for part in batch))


@KINDS
def test_loss_and_gradients_are_those_of_a_processor(
    small_network: Callable[..., Network], make_batch: Callable[..., Batch], kind: str
) -> None:
    ours, theirs = small_network(kind=kind), small_network(kind=kind).cuda()
    batch = make_batch([5, 3, 7], [4, 6, 2])
    loss, other = ours.loss(batch), theirs.loss(_on_gpu(batch))
    loss.backward()
    other.backward()
    torch.testing.assert_close(other.cpu(), loss, rtol=1e-9, atol=1e-9)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            theirs.get_parameter(name).grad.cpu(), parameter.grad, rtol=1e-8, atol=1e-9
        )


@KINDS
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_updates_are_those_of_a_processor_within_the_precision(
    small_network: Callable[..., Network],
    make_batch: Callable[..., Batch],
    kind: str,
    precision: str,
    tolerance: float,
) -> None:
    config = TrainConfig.model_validate({"precision": precision})
    ours = Trainer(small_network(kind=kind).float(), config)
    theirs = Trainer(small_network(kind=kind).float().cuda(), config)
    for seed in range(5):
        batch = make_batch([5, 3, 7], [4, 6, 2], seed=seed)
        done, other = ours.update(batch), theirs.update(_on_gpu(batch))
        assert other.loss == pytest.approx(done.loss, rel=tolerance)
        assert (other.tokens, other.sentences, other.skipped) == (done.tokens, done.sentences, done.skipped)


@KINDS
def test_the_search_finds_what_it_finds_on_a_processor(
    small_network: Callable[..., Network], kind: str
) -> None:
    network = small_network(kind=kind)
    sentences, config = [[2, 3, 4], [5], [6, 7, 2, 3, 4]], SearchConfig(beam=4, precision="float64")
    found, other = (beam_search(each, sentences, config) for each in (network, deepcopy(network).cuda()))
    assert [each[0].ids for each in other] == [each[0].ids for each in found]
