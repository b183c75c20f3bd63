import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.network import Network

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "model_cases.json").read_text())["cases"]
LUONG = json.loads((GOLDEN / "luong_case.json").read_text())["case"]
KINDS = {"search": "rnnsearch", "encdec": "rnnencdec", "luong": "luong"}
ORDERS = ("appendix", "main", "groundhog")
SYSTEMS = [
    {"kind": kind, "decoder_order": order, "output_rank": rank, "biases": biases}
    for kind, order, rank, biases in itertools.product(
        ("rnnsearch", "rnnencdec", "luong"), ORDERS, (None, 3), ("all", "groundhog")
    )
    if kind != "luong" or order == "appendix"  # dot attention has one order
]
SYSTEM_IDS = ["-".join(map(str, system.values())) for system in SYSTEMS]


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def golden_values(network: Network, table: dict[str, Any]) -> dict[str, Tensor]:
    """The golden tensors by our names: the three gates of a unit lie one below the other."""
    values = {}
    for name, parameter in network.named_parameters():
        *parts, leaf = name.split(".")
        if {"enc_f", "enc_b", "dec"} & set(parts):
            rows = [row for gate in ("", "z", "r") for row in table[f"{parts[-1]}.{leaf}{gate}"]]
        else:
            rows = table[leaf]
        values[name] = torch.tensor(rows, dtype=torch.float64)
        assert values[name].shape == parameter.shape
    return values


def golden_network(kind: str, params: dict[str, Any], rank: int | None, order: str = "appendix") -> Network:
    config = NetworkConfig(
        kind=KINDS[kind],
        decoder_order=order,
        units=len(params["Ws"]),
        embedding=len(params["b_emb_src"]),
        alignment_units=len(params.get("va", [0])),
        maxout_units=len(params["bo"]) // 2,
        output_rank=rank,
    )
    network = Network(config, len(params["E_src"]), len(params["E_trg"])).double()
    network.load_state_dict(golden_values(network, params))
    return network


def golden_batch(case: dict[str, Any]) -> Batch:
    x, x_mask, y, y_mask = (torch.tensor(case[name]).t() for name in ("x", "x_mask", "y", "y_mask"))
    return Batch(x, x_mask > 0, y, y_mask > 0)


def case_id(case: dict[str, Any]) -> str:
    return f"{case['kind']}-{case['decoder_order']}-{case['output_rank']}"


# ---------------------------------------------------------------------- golden numbers


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_number_of_a_golden_model_is_met(case: dict[str, Any]) -> None:
    network = golden_network(case["kind"], case["params"], case["output_rank"], case["decoder_order"])
    scores = network.scores(golden_batch(case))
    met = {
        "logp": scores.log_probs_TB.t(),
        "alpha": None if scores.alphas_TBS is None else scores.alphas_TBS.transpose(0, 1),
        "context": scores.contexts_TBH.transpose(0, 1),
        "states": scores.states_TBN.transpose(0, 1),
        "annotations": scores.annotations_SBH.transpose(0, 1),
    }
    for name, ours in met.items():
        if case[name] is None:
            assert ours is None
        else:
            close(ours, torch.tensor(case[name], dtype=torch.float64), 1e-9)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_gradient_of_a_golden_model_is_met(case: dict[str, Any]) -> None:
    network = golden_network(case["kind"], case["params"], case["output_rank"], case["decoder_order"])
    batch = golden_batch(case)
    loss = network.loss(batch)
    assert loss.item() == pytest.approx(sum(case["nll"]), abs=1e-9)
    (loss / len(case["nll"])).backward()
    for name, value in golden_values(network, case["grad_mean_per_sentence"]).items():
        close(network.get_parameter(name).grad, value, 1e-6)


@pytest.mark.usefixtures("kernels")
def test_dot_attention_meets_its_golden_numbers_and_gradients() -> None:
    network = golden_network("luong", LUONG["params"], None)
    losses = []
    for sentence in LUONG["sentences"]:
        x, y = (torch.tensor(sentence[side])[:, None] for side in ("x", "y"))
        batch = Batch(x, torch.ones_like(x, dtype=torch.bool), y, torch.ones_like(y, dtype=torch.bool))
        scores = network.scores(batch)
        for name, ours in (
            ("logp", scores.log_probs_TB),
            ("alpha", scores.alphas_TBS),
            ("context", scores.contexts_TBH),
            ("annotations", scores.annotations_SBH),
        ):
            golden = torch.tensor(sentence[name], dtype=torch.float64)
            close(ours[:, 0], golden, 1e-9)
        golden = torch.tensor(sentence["states"], dtype=torch.float64)
        close(scores.states_TBN[-len(golden) :, 0], golden, 1e-9)
        losses.append(network.loss(batch))
    mean = torch.stack(losses).mean()
    assert mean.item() == pytest.approx(LUONG["mean_nll"], abs=1e-9)
    mean.backward()
    for name, value in golden_values(network, LUONG["grad_mean_per_sentence"]).items():
        close(network.get_parameter(name).grad, value, 1e-6)


# ---------------------------------------------------------------------- the paper's sums


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("system", SYSTEMS, ids=SYSTEM_IDS)
def test_a_padded_batch_equals_the_papers_sums_and_their_gradients(
    system: dict[str, Any],
    small_network: Callable[..., Network],
    make_batch: Callable[..., Batch],
    paper_sums: Callable[..., Any],
) -> None:
    network = small_network(**system)
    source, target = [4, 6, 1, 3], [5, 2, 3, 1]
    batch = make_batch(source, target)
    loss = network.loss(batch)
    loss.backward()
    ours = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    network.zero_grad()
    scores = network.scores(batch)
    total = torch.zeros((), dtype=torch.float64)
    for b in range(len(source)):
        x, y = batch.source_SB[: source[b], b].tolist(), batch.target_TB[: target[b], b].tolist()
        sums = paper_sums(network, x, y)
        total = total - sums.log_probs_T.sum()
        for padded, plain in (
            (scores.log_probs_TB, sums.log_probs_T),
            (scores.contexts_TBH, sums.contexts_TH),
            (scores.states_TBN, sums.states_TN),
            (scores.annotations_SBH, sums.annotations_SH),
        ):
            close(padded[: len(plain), b], plain.detach(), 1e-12)
        if sums.alphas_TS is not None:
            alphas = scores.alphas_TBS[: target[b], b, : source[b]]
            close(alphas, sums.alphas_TS.detach(), 1e-12)
    assert loss.item() == pytest.approx(total.item(), abs=1e-10)
    total.backward()
    for name, parameter in network.named_parameters():
        close(ours[name], parameter.grad, 1e-10)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("system", SYSTEMS, ids=SYSTEM_IDS)
def test_gradients_agree_with_finite_differences(
    system: dict[str, Any], small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network(**system)
    batch = make_batch([3, 1], [2, 3])
    names, values = zip(*network.named_parameters(), strict=True)

    def loss(*values: Tensor) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, values, strict=True)), (batch,))

    network.forward = network.loss  # type: ignore[method-assign]
    assert torch.autograd.gradcheck(loss, values, fast_mode=True)


@pytest.mark.usefixtures("kernels")
def test_a_second_backward_pass_gives_the_same_gradients(
    small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network()
    loss = network.loss(make_batch([3, 4], [4, 2]))
    first = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(network.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("system", SYSTEMS, ids=SYSTEM_IDS)
def test_the_entropy_of_attention_is_summed_over_the_target_words_and_padding_has_none(
    system: dict[str, Any],
    small_network: Callable[..., Network],
    make_batch: Callable[..., Batch],
    paper_sums: Callable[..., Any],
) -> None:
    network = small_network(**system)
    source, target = [4, 6, 1, 3], [5, 2, 3, 1]
    batch = make_batch(source, target)
    alphas = [
        paper_sums(network, batch.source_SB[:s, b].tolist(), batch.target_TB[:t, b].tolist()).alphas_TS
        for b, (s, t) in enumerate(zip(source, target, strict=True))
    ]
    entropy = network.accumulate(batch).entropy
    assert (entropy is None) == (system["kind"] == "rnnencdec") == (not network.attends)
    if entropy is not None:
        assert entropy.item() == pytest.approx(-sum((a * a.log()).sum().item() for a in alphas), abs=1e-10)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("system", SYSTEMS[:2] + SYSTEMS[-5:], ids=SYSTEM_IDS[:2] + SYSTEM_IDS[-5:])
def test_accumulate_adds_the_gradients_of_the_loss_to_those_that_are_there(
    system: dict[str, Any], small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network, first, second = small_network(**system), make_batch([3, 4], [4, 2]), make_batch([1, 2], [2, 5])
    parameters = list(network.parameters())
    expected = [torch.autograd.grad(network.loss(batch), parameters) for batch in (first, second)]
    assert network.accumulate(first).loss.item() == network.loss(first).item()
    buffers = [parameter.grad for parameter in parameters]
    network.accumulate(second)
    for parameter, buffer, one, other in zip(parameters, buffers, *expected, strict=True):
        assert parameter.grad is buffer
        close(buffer, one + other, 1e-12)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-4), ("bfloat16", 0.1)])
def test_lower_precision_stays_near_float64(
    kind: str, precision: str, tolerance: float, make_batch: Callable[..., Batch]
) -> None:
    config = NetworkConfig(kind=kind, units=70, embedding=33, alignment_units=41, maxout_units=37)
    network = Network(config, 200, 333)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
    batch = make_batch([7, 3, 9, 1, 5], [4, 8, 2, 1, 6], source_size=200, target_size=333)
    loss = network.loss(batch, precision)
    loss.backward()
    low = torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).double()
    network.zero_grad()
    network.double()
    exact = network.loss(batch)
    exact.backward()
    high = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance / 20)
    assert (low - high).norm() < tolerance * high.norm()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
@pytest.mark.parametrize("poison", [torch.inf, torch.nan])
def test_a_word_that_stands_only_under_padding_changes_nothing_even_if_its_embedding_is_not_finite(
    kind: str, poison: float, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network, batch = small_network(kind=kind), make_batch([3, 5], [4, 2])
    batch = batch._replace(
        source_SB=torch.where(batch.source_mask_SB, batch.source_SB.clamp(max=7), 8),
        target_TB=torch.where(batch.target_mask_TB, batch.target_TB.clamp(max=6), 7),
    )
    clean = network.loss(batch)
    expected = torch.autograd.grad(clean, list(network.parameters()))
    with torch.no_grad():
        network.encoder.E_src[8] = poison
        network.E_trg[7] = poison
    loss = network.loss(batch)
    assert loss.item() == clean.item()
    for ours, theirs in zip(torch.autograd.grad(loss, list(network.parameters())), expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_batch_without_target_words_costs_nothing_and_has_no_gradient(
    precision: str, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network, batch = small_network().float(), make_batch([3, 4], [2, 2])
    batch = batch._replace(target_mask_TB=torch.zeros_like(batch.target_mask_TB))
    loss = network.loss(batch, precision)
    loss.backward()
    assert loss.item() == 0
    assert all(not parameter.grad.any() for parameter in network.parameters())


def test_an_order_of_the_decoder_is_refused_where_it_has_no_meaning() -> None:
    with pytest.raises(ValueError, match="no meaning for kind = 'luong'"):
        NetworkConfig(kind="luong", decoder_order="groundhog")


# ---------------------------------------------------------------------- traps (protocol 6)


@pytest.mark.usefixtures("kernels")
def test_trap_3_the_decoder_orders_are_three_models(make_batch: Callable[..., Batch]) -> None:
    params = CASES[0]["params"]
    batch = golden_batch(CASES[0])
    losses = [golden_network("search", params, None, order).loss(batch).item() for order in ORDERS]
    assert all(abs(a - b) > 1e-3 for a, b in itertools.combinations(losses, 2))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "luong"])
def test_trap_4_the_first_state_comes_from_the_backward_unit_at_the_first_word(
    kind: str, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network(kind=kind)
    batch = make_batch([5], [2])
    before = network.scores(batch).states_TBN[0]
    changed = batch.source_SB.clone()
    changed[4] = 3
    assert not torch.allclose(
        network.scores(batch._replace(source_SB=changed)).states_TBN[0], before, atol=1e-6
    )
    with torch.no_grad():
        for parameter in network.encoder.enc_f.parameters():
            parameter.add_(1)
    assert torch.equal(network.scores(batch).states_TBN[0], before)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
def test_trap_5_a_pair_scores_the_same_alone_and_beside_longer_ones(
    kind: str, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network(kind=kind)
    together = make_batch([2, 8, 5], [3, 7, 1])
    scores = network.scores(together)
    for b, (source, target) in enumerate(((2, 3), (8, 7), (5, 1))):
        lengths = (source, source, target, target)
        alone = network.scores(
            Batch(*(part[:length, b : b + 1] for part, length in zip(together, lengths, strict=True)))
        )
        close(scores.log_probs_TB[:target, b], alone.log_probs_TB[:, 0], 1e-12)
        assert (scores.log_probs_TB[target:, b] == 0).all()
        if scores.alphas_TBS is not None:
            assert (scores.alphas_TBS[:, b, source:] == 0).all()
            torch.testing.assert_close(scores.alphas_TBS[:, b].sum(1), torch.ones(7, dtype=torch.float64))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
def test_trap_7_the_backward_unit_starts_at_the_last_real_word(
    kind: str, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network(kind=kind)  # its biases are not zero, so a step on padding would move the state
    batch = make_batch([2, 6], [3, 3])
    other = batch._replace(source_SB=torch.where(batch.source_mask_SB, batch.source_SB, 7))
    assert not torch.equal(batch.source_SB, other.source_SB)
    ours, theirs = network.scores(batch), network.scores(other)
    assert torch.equal(ours.log_probs_TB, theirs.log_probs_TB)
    held = ours.annotations_SBH[2:, 0]
    assert torch.equal(held[:, :4], ours.annotations_SBH[1:2, 0, :4].expand(4, -1))
    assert (held[:, 4:] == 0).all()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["rnnsearch", "rnnencdec", "luong"])
def test_trap_9_a_source_without_a_word_gives_numbers(
    kind: str, small_network: Callable[..., Network], make_batch: Callable[..., Batch]
) -> None:
    network = small_network(kind=kind)
    batch = make_batch([0, 3], [2, 2])
    scores = network.scores(batch)
    assert scores.log_probs_TB.isfinite().all()
    assert (scores.contexts_TBH[:, 0] == 0).all()
    network.loss(batch).backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.usefixtures("kernels")
def test_groundhogs_biases_are_left_out_of_gates_and_alignment(small_network: Callable[..., Network]) -> None:
    everywhere, groundhog = small_network(biases="all"), small_network(biases="groundhog")
    shapes = {name: tuple(parameter.shape) for name, parameter in groundhog.named_parameters()}
    assert shapes["encoder.enc_f.b"] == shapes["encoder.enc_b.b"] == shapes["dec.b"] == (4,)
    assert dict(everywhere.named_parameters()).keys() - shapes.keys() == {"alignment.ba"}
