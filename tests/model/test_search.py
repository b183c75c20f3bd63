import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rnnsearch.model import search, stepper
from rnnsearch.model.batch import Batch
from rnnsearch.model.config import GROUNDHOG, NetworkConfig, SearchConfig
from rnnsearch.model.kernels import kernels_for
from rnnsearch.model.network import Network
from rnnsearch.model.search import EOS, UNKNOWN, Hypothesis, SearchError, beam_search
from rnnsearch.model.stepper import Carry, Prediction, Source

CASES = json.loads((Path(__file__).parents[1] / "golden" / "model_cases.json").read_text())["cases"]
KINDS = [
    ("rnnsearch", "appendix"),
    ("rnnsearch", "main"),
    ("rnnsearch", "groundhog"),
    ("rnnencdec", "groundhog"),
    ("luong", "appendix"),
]
A, B = 2, 3  # words of the scripted networks


# ---------------------------------------------------------------------- golden beams


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['decoder_order']}")
def test_every_golden_beam_is_found_alone_and_beside_other_sentences(case: dict[str, Any]) -> None:
    network, source_ids, target_ids = golden_network(case)
    source = [source_ids[word] for word in case["beam_source"][:-1]]
    names = {ours: theirs for theirs, ours in target_ids.items()}
    for setting, expected in case["beam"].items():
        width, normalize, forbid = (part.split("=")[1] for part in setting.split(","))
        config = SearchConfig(
            beam=int(width),
            width="narrowing",
            normalize=normalize == "True",
            unknown="forbid" if forbid == "True" else "allow",
            min_length_ratio=0.2,  # of 5: </s> is forbidden at the first step
            max_length_ratio=1.6,  # of 5: 8 steps
            n_best=int(width),
            keep_unfinished=False,
        )
        for found in (
            beam_search(network, [source], config)[0],
            beam_search(network, [[2], source, [3] * 9], config)[1],
        ):
            assert [[names[word] for word in one.ids] for one in found] == [one["tokens"] for one in expected]
            assert [one.cost for one in found] == pytest.approx([one["cost"] for one in expected], abs=1e-9)
            assert [one.key for one in found] == pytest.approx([one["key"] for one in expected], abs=1e-9)


def golden_network(case: dict[str, Any]) -> tuple[Network, dict[int, int], dict[int, int]]:
    """The network of a golden case, and its ids renamed to ours (`</s>` is 0)."""
    sizes = case["sizes"]
    config = NetworkConfig(
        kind={"search": "rnnsearch", "encdec": "rnnencdec"}[case["kind"]],
        decoder_order=case["decoder_order"],
        units=sizes["n"],
        embedding=sizes["m"],
        alignment_units=sizes["na"],
        maxout_units=sizes["l"],
        output_rank=case["output_rank"],
    )
    network = Network(config, sizes["Kx"], sizes["Ky"]).double()
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["params"].items()}
    source = [case["eos_src"], 1] + [i for i in range(sizes["Kx"]) if i not in (case["eos_src"], 1)]
    target = [case["eos_tgt"], 1] + [i for i in range(sizes["Ky"]) if i not in (case["eos_tgt"], 1)]
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            *parts, leaf = name.split(".")
            if {"enc_f", "enc_b", "dec"} & set(parts):
                value = torch.cat([values[f"{parts[-1]}.{leaf}{gate}"] for gate in ("", "z", "r")])
            else:
                value = values[leaf]
            if leaf == "E_src":
                value = value[source]
            elif leaf in ("E_trg", "Wo", "Wo2", "b_out"):
                value = value[target]
            parameter.copy_(value)
    return network, {old: new for new, old in enumerate(source)}, {old: new for new, old in enumerate(target)}


# ---------------------------------------------------------------------- small networks


def random_network(kind: str, order: str, words: int = 6, units: int = 7, *, gain: float = 3.0) -> Network:
    """A network with weights large enough that its distributions are not flat."""
    config = NetworkConfig(
        kind=kind, decoder_order=order, units=units, embedding=5, alignment_units=6, maxout_units=4
    )
    network = Network(config, words, words)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            value = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(value * gain / parameter.shape[-1] ** 0.5)
        network.readout.output.mul_(3 / gain)
    return network.double()


def sentences(words: int, count: int, seed: int = 0, longest: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(1, words, (length,), generator=generator).tolist() for length in lengths]


def forced(
    network: Network, source: Sequence[int], targets: Sequence[Sequence[int]]
) -> tuple[list[float], torch.Tensor]:
    """Costs and alphas of target sentences under teacher forcing."""
    longest = max(map(len, targets))
    target = torch.tensor([[*one, *[EOS] * (longest - len(one))] for one in targets]).t()
    mask = torch.tensor([[True] * len(one) + [False] * (longest - len(one)) for one in targets]).t()
    source_S1 = torch.tensor([*source, EOS])[:, None].expand(-1, len(targets))
    with torch.no_grad():
        scores = network.scores(Batch(source_S1, torch.ones_like(source_S1, dtype=torch.bool), target, mask))
    return (-scores.log_probs_TB.sum(0)).tolist(), scores.alphas_TBS


@pytest.mark.parametrize(("kind", "order"), KINDS)
@pytest.mark.parametrize("width", ["constant", "narrowing"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_beam_that_is_wide_enough_is_exhaustive(kind: str, order: str, width: str, normalize: bool) -> None:
    # protocol trap 35: V = 6, up to 4 words with </s>.
    network, source = random_network(kind, order), [3, 4, 2]
    everything = [
        (*words, EOS) for length in range(4) for words in itertools.product(range(1, 6), repeat=length)
    ]
    costs, _ = forced(network, source, everything)
    ranked = sorted(
        ((cost / len(ids) if normalize else cost), ids) for cost, ids in zip(costs, everything, strict=True)
    )
    config = SearchConfig(
        beam=1000, width=width, normalize=normalize, n_best=1000, max_length_ratio=1.0, keep_unfinished=False
    )
    found = beam_search(network, [source], config)[0]
    assert [one.ids for one in found] == [ids for _, ids in ranked]
    assert [one.key for one in found] == pytest.approx([key for key, _ in ranked], abs=1e-9)


@pytest.mark.parametrize(("kind", "order"), KINDS)
def test_cost_and_attention_of_every_hypothesis_are_those_of_teacher_forcing(kind: str, order: str) -> None:
    # protocol trap 35: a state that was not reordered with the beam has another cost.
    network = random_network(kind, order, words=40)
    config = SearchConfig(beam=5, n_best=5, max_length_ratio=1.5)
    sources = sentences(40, 6)
    for source, found in zip(sources, beam_search(network, sources, config), strict=True):
        costs, alphas_TBS = forced(network, source, [one.ids for one in found])
        assert len(found) == 5
        assert [one.cost for one in found] == pytest.approx(costs, abs=1e-9)
        for b, one in enumerate(found):
            if kind == "rnnencdec":
                assert one.alphas is None
            else:
                assert one.alphas is not None
                assert one.alphas.dtype == torch.float32
                assert one.alphas.shape == (len(one.ids), len(source) + 1)
                torch.testing.assert_close(
                    one.alphas, alphas_TBS[: len(one.ids), b].float(), atol=1e-6, rtol=0
                )


@pytest.mark.parametrize(("kind", "order"), KINDS)
@pytest.mark.parametrize("width", ["constant", "narrowing"])
def test_a_result_does_not_depend_on_the_sentences_beside_it(
    kind: str, order: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # protocol trap 36, in float64: alone, all together, backwards and three at a time.
    network = random_network(kind, order, words=40)
    config = SearchConfig(beam=4, width=width, n_best=3, max_length_ratio=1.5)
    sources = [*sentences(40, 12), []]
    alone = [beam_search(network, [source], config)[0] for source in sources]
    together = beam_search(network, sources, config)
    backwards = beam_search(network, sources[::-1], config)[::-1]
    monkeypatch.setattr(search, "HYPOTHESES", 3 * config.beam)
    by_three = beam_search(network, sources, config)
    for other in (together, backwards, by_three):
        assert [[one.ids for one in found] for found in other] == [
            [one.ids for one in found] for found in alone
        ]


def test_in_float32_only_near_ties_may_depend_on_the_sentences_beside() -> None:
    network = random_network("rnnsearch", "groundhog", words=300, units=48, gain=1.2).float()
    sources = sentences(300, 20, longest=15)
    together = beam_search(network, sources, SearchConfig(beam=6, max_length_ratio=1.0))
    alone = [
        beam_search(network, [source], SearchConfig(beam=6, max_length_ratio=1.0))[0] for source in sources
    ]
    ties = [
        abs(one[0].key - other[0].key)
        for one, other in zip(together, alone, strict=True)
        if one[0].ids != other[0].ids
    ]
    assert len(ties) <= 2
    assert max(ties, default=0.0) <= 1e-4


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_with_compiled_kernels_not_a_bit_depends_on_the_sentences_beside_or_on_threads(
    precision: Any,
) -> None:
    if kernels_for(torch.device("cpu")).name != "compiled":
        pytest.skip("needs the compiled kernels: install g++, or unset RNNSEARCH_KERNELS")
    network = random_network("rnnsearch", "groundhog", words=300, units=48, gain=1.2).float()
    config, sources = (
        SearchConfig(beam=6, n_best=2, max_length_ratio=1.0, precision=precision),
        sentences(300, 10, longest=15),
    )
    alone = [beam_search(network, [source], config)[0] for source in sources]
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        together = beam_search(network, sources, config)
        torch.set_num_threads(threads)
        for some, others in zip(together, alone, strict=True):
            assert [(one.ids, one.cost) for one in some] == [(one.ids, one.cost) for one in others]
            assert all(torch.equal(one.alphas, other.alphas) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize(("kind", "order"), KINDS)
def test_bfloat16_costs_are_near_those_of_float32(kind: str, order: str) -> None:
    network, source = random_network(kind, order, words=40, units=24, gain=1.0).float(), [5, 6, 7, 8]
    for one in beam_search(network, [source], SearchConfig(beam=4, n_best=4, precision="bfloat16"))[0]:
        assert one.cost == pytest.approx(forced(network, source, [one.ids])[0][0], rel=0.02)


# ---------------------------------------------------------------------- scripted networks


class Scripted:
    """A stepper whose probabilities are a function of the words so far. Its state is these words."""

    source_size = 10

    def __init__(self, words: int, probabilities: Callable[[tuple[int, ...]], dict[int, float]]) -> None:
        self.words, self.probabilities, self.rows = words, probabilities, []

    def read(self, sentences: Sequence[Sequence[int]]) -> list[Source]:
        nothing = torch.zeros(1, 1)
        return [Source(None, nothing, torch.full((100,), -1)) for _ in sentences]

    def predict(
        self,
        sources: Sequence[Source],
        counts: Sequence[int],
        state_RN: torch.Tensor,
        words_R: torch.Tensor,
        best: int,
    ) -> Prediction:
        self.rows.append(list(counts))
        assert len(state_RN) == len(words_R) == sum(counts)
        log_p_RV = torch.full((len(words_R), self.words), -math.inf, dtype=torch.float64)
        for row, words in enumerate(state_RN.tolist()):
            history = tuple(word for word in words if word >= 0)
            for word, probability in self.probabilities(history).items():
                log_p_RV[row, word] = math.log(probability)
        log_p_RC, words_RC = stepper.best_words(log_p_RV, best)
        return Prediction(log_p_RC, words_RC, log_p_RV[:, EOS], None, Carry(state_RN, state_RN))

    def advance(self, carry: Carry, words_R: torch.Tensor) -> torch.Tensor:
        place_R = (carry.state_RN >= 0).sum(dim=1, keepdim=True)
        return carry.state_RN.scatter(1, place_R, words_R[:, None])


def scripted_search(
    network: Scripted,
    sentences: list[list[int]],
    config: SearchConfig,
    before_step: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    anything: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "Stepper", lambda network, precision: scripted)
        scripted = network
        return beam_search(anything, sentences, config, before_step)


def run(
    probabilities: Callable[[tuple[int, ...]], dict[int, float]],
    config: SearchConfig,
    length: int = 3,
    words: int = 4,
) -> list[Hypothesis]:
    """Search a scripted network for a sentence of `length` words beside two others."""
    return scripted_search(Scripted(words, probabilities), [[2], [2] * length, [3] * 5], config)[1]


def test_the_cost_is_divided_by_the_words_with_the_end_of_sentence() -> None:
    # protocol trap 37. By words + 1 the short one wins (2.0/2 against 3.3/3), by words alone the long one would
    # (2.0/1, 3.3/2).
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        short, long = math.exp(-1.0), math.exp(-1.1)
        table = {(): {A: short, B: long}, (A,): {EOS: short}, (B,): {B: long}, (B, B): {EOS: long}}
        rest = table.get(history, {EOS: 0.001})
        return rest | {UNKNOWN: 1 - sum(rest.values())}

    found = run(probabilities, SearchConfig(beam=20, n_best=20, unknown="forbid"))
    order = [one.ids for one in found]
    assert order.index((A, EOS)) < order.index((B, B, EOS))
    assert {one.ids: one.key for one in found}[(A, EOS)] == pytest.approx(1.0)
    unnormalised = run(probabilities, SearchConfig(beam=20, unknown="forbid", normalize=False))
    assert unnormalised[0].key == unnormalised[0].cost == pytest.approx(2.0)


def test_of_equal_hypotheses_the_lower_words_come_first() -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        return dict.fromkeys(range(2, 34), 1 / 32) if not history else {EOS: 1.0}

    found = run(probabilities, SearchConfig(beam=40, n_best=40), words=70)
    assert [one.ids for one in found] == [(word, EOS) for word in range(2, 34)]


def test_the_search_goes_on_while_a_longer_hypothesis_can_still_have_the_better_average() -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        if not history:
            return {EOS: 0.5, A: 0.5}  # </s> now costs ln 2 a word
        return {A: 0.999, B: 0.001} if len(history) < 7 else {EOS: 1.0}

    normalised = run(probabilities, SearchConfig(beam=2))[0]
    assert normalised.ids == (A,) * 7 + (EOS,)
    assert normalised.key < math.log(2) / 7
    plain = run(probabilities, SearchConfig(beam=2, normalize=False))[0]
    assert plain.ids == (EOS,)


def test_the_search_stops_as_soon_as_nothing_better_can_come() -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    network = Scripted(4, lambda history: {EOS: 0.9, A: 0.1})
    scripted_search(network, [[2] * 50], SearchConfig(beam=3, normalize=False), count)
    assert steps == 1  # -log 0.1 is above -log 0.9, and costs only grow
    steps = 0
    scripted_search(network, [[2] * 50], SearchConfig(beam=3, max_length_ratio=0.5), count)
    assert 1 < steps < 10  # 25 steps are allowed; a cost of 25 x 0.105 ends it


def test_the_place_of_an_ended_hypothesis_is_filled_again_only_if_the_width_is_constant() -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        return {EOS: 0.4, A: 0.35, B: 0.25}

    narrowing, constant = Scripted(4, probabilities), Scripted(4, probabilities)
    scripted_search(narrowing, [[2] * 4], SearchConfig(beam=3, width="narrowing", n_best=3))
    scripted_search(constant, [[2] * 4], SearchConfig(beam=3, n_best=9, max_length_ratio=1.0))
    assert narrowing.rows == [[1], [2], [1]]
    assert constant.rows[:4] == [[1], [2], [1], [2]]


def test_a_sentence_that_is_decided_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        if not history:
            return {A: 0.5, EOS: 0.5}
        return {A: 1.0} if len(history) < 2 else {EOS: 1.0}

    monkeypatch.setattr(search, "HYPOTHESES", 4)
    network = Scripted(4, probabilities)
    found = scripted_search(network, [[2], [], [2, 2], [2], []], SearchConfig(beam=2))
    assert [one[0].ids for one in found] == [(A, A, EOS), (EOS,), (A, A, EOS), (A, A, EOS), (EOS,)]
    assert [len(counts) for counts in network.rows] == [2, 2, 2, 2, 2, 1]  # 3 + 3, then 3 beside 1 and 1


@pytest.mark.parametrize(
    ("ratio", "length", "shortest"), [(0.0, 3, 1), (0.5, 3, 3), (0.5, 4, 3), (0.5, 5, 4), (9.0, 2, 9)]
)
def test_the_end_is_forbidden_for_a_share_of_the_source_with_its_own_end(
    ratio: float, length: int, shortest: int
) -> None:
    found = run(lambda history: {EOS: 0.9, A: 0.1}, SearchConfig(beam=2, min_length_ratio=ratio), length)
    assert len(found[0].ids) == shortest  # never the last step allowed: 3 x 3 for the last case
    assert found[0].cost == pytest.approx(-math.log(0.9) - (shortest - 1) * math.log(0.1))


@pytest.mark.parametrize("keep", [True, False])
def test_hypotheses_that_never_end_are_kept_or_dropped_as_asked(keep: bool) -> None:
    config = SearchConfig(beam=3, keep_unfinished=keep, max_length_ratio=1.5, max_length_extra=1, n_best=2)
    found = run(lambda history: {A: 0.75, B: 0.25}, config)
    assert [one.ids for one in found] == ([(A,) * 7, (*(A,) * 6, B)] if keep else [])  # floor(1.5 x 4) + 1
    assert not any(one.finished for one in found)


def test_an_ended_hypothesis_comes_before_a_cheaper_one_that_did_not_end() -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        return {EOS: 0.01, A: 0.99} if not history else {A: 1.0}

    found = run(probabilities, SearchConfig(beam=2, n_best=2))
    assert [(one.finished, one.ids[0]) for one in found] == [(True, EOS), (False, A)]
    assert found[1].key < found[0].key


# ---------------------------------------------------------------------- unknown words


def likely_unknown(history: tuple[int, ...]) -> dict[int, float]:
    if len(history) == 2:
        return {EOS: 1 - 1e-9, UNKNOWN: 1e-9}
    return {UNKNOWN: 1 - 1e-9, A: 1e-9}


def test_unknown_words_are_forbidden_however_likely_and_the_cost_is_not_normalised_again() -> None:
    # protocol trap 38.
    best = run(likely_unknown, SearchConfig(beam=3, unknown="forbid"))[0]
    assert best.ids == (A, A, EOS)
    assert best.cost == pytest.approx(-2 * math.log(1e-9), abs=1e-6)
    assert not best.fallback


def only_unknown(history: tuple[int, ...]) -> dict[int, float]:
    return {UNKNOWN: 1.0} if len(history) < 2 else {EOS: 1.0}


def test_unknown_words_come_back_only_if_asked_for_and_then_it_is_said() -> None:
    forbidden = SearchConfig(beam=3, unknown="forbid")
    assert run(only_unknown, forbidden) == []
    best = run(only_unknown, forbidden.model_copy(update={"retry_unknown": True}))[0]
    assert best.ids == (UNKNOWN, UNKNOWN, EOS)
    assert best.fallback
    assert not run(only_unknown, SearchConfig(beam=3, retry_unknown=True))[0].fallback


def test_a_retry_leaves_sentences_alone_that_did_without_it() -> None:
    tried = []

    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        tried.append(history)
        return likely_unknown(history)

    best = run(probabilities, SearchConfig(beam=1, unknown="forbid", retry_unknown=True))[0]
    assert not best.fallback
    assert all(UNKNOWN not in history for history in tried)


def test_groundhog_allows_unknown_words_first_and_then_doubles_the_beam() -> None:
    def probabilities(history: tuple[int, ...]) -> dict[int, float]:
        # Ends only after [UNK] and the 15th best word: beams of 10 do not see it, one of 20 does.
        if not history:
            return {UNKNOWN: 1.0}
        if len(history) == 1:
            return {word: (100 - word) / 2000 for word in range(A, A + 20)}
        return {EOS: 1.0} if history[1] == A + 14 else {A: 1.0}

    widths: list[tuple[int, str]] = []
    real = search._searched

    def watched(network: Any, batch: Any, config: SearchConfig, *rest: Any) -> Any:
        widths.append((config.beam, config.unknown))
        return real(network, batch, config, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_searched", watched)
        best = run(
            probabilities,
            GROUNDHOG.model_copy(update={"unknown": "forbid", "min_length_ratio": 0.0}),
            words=30,
        )[0]
    assert widths == [(10, "forbid"), (10, "allow"), (20, "allow")]
    assert best.ids == (UNKNOWN, A + 14, EOS)
    assert best.fallback


def test_the_beam_is_doubled_no_further_than_allowed() -> None:
    config = SearchConfig(beam=2, retry_beam=5, keep_unfinished=False)
    widths: list[int] = []
    real = search._searched

    def watched(network: Any, batch: Any, config: SearchConfig, *rest: Any) -> Any:
        widths.append(config.beam)
        return real(network, batch, config, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_searched", watched)
        assert run(lambda history: {A: 1.0}, config) == []
    assert widths == [2, 4, 8]


# ---------------------------------------------------------------------- odd sentences


@pytest.mark.parametrize(("kind", "order"), KINDS)
def test_an_empty_sentence_has_the_empty_translation_at_the_networks_cost(kind: str, order: str) -> None:
    network = random_network(kind, order)
    for config in (
        SearchConfig(),
        GROUNDHOG,
        SearchConfig(unknown="forbid", beam=1),
        SearchConfig(min_length_ratio=2.0),
    ):
        (best,) = beam_search(network, [[], [2, 3]], config)[0]
        assert best.ids == (EOS,)
        assert best.finished
        assert best.cost == pytest.approx(forced(network, [], [(EOS,)])[0][0], abs=1e-9)


def test_one_word_only_unknown_words_and_500_words_have_a_translation() -> None:
    network = random_network("rnnsearch", "groundhog", words=20)
    sources = [[5], [UNKNOWN] * 4, [7, 8, 9, 10] * 125]
    config = SearchConfig(beam=3, max_length_ratio=0.5, max_length_extra=2)
    for source, found in zip(sources, beam_search(network, sources, config), strict=True):
        assert 1 <= len(found[0].ids) <= 0.5 * (len(source) + 1) + 2
        assert found[0].cost == pytest.approx(forced(network, source, [found[0].ids])[0][0], abs=1e-8)


def test_no_sentences_have_no_results() -> None:
    assert beam_search(random_network("rnnsearch", "appendix"), [], SearchConfig()) == []


def test_ids_that_the_network_does_not_know_are_refused() -> None:
    network = random_network("rnnsearch", "appendix")
    for bad in ([6], [2, -1]):
        with pytest.raises(SearchError, match=r"sentence 1 has ids .* knows 6 source words"):
            beam_search(network, [[2], bad], SearchConfig())


def test_a_network_that_diverged_is_refused() -> None:
    network = random_network("rnnsearch", "appendix")
    with torch.no_grad():
        network.Ws.fill_(math.nan)
    with pytest.raises(SearchError, match="not numbers"):
        beam_search(network, [[2]], SearchConfig())


def test_what_is_raised_before_a_step_ends_the_search() -> None:
    def interrupt() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        beam_search(random_network("rnnsearch", "appendix"), [[2]], SearchConfig(), before_step=interrupt)


# ---------------------------------------------------------------------- parts


@pytest.mark.parametrize("words", [5, 700, 7_000, 30_002])
def test_the_best_words_by_blocks_are_the_best_of_all(words: int) -> None:
    logits = torch.randn(12, words, generator=torch.Generator().manual_seed(words))
    logits[0, -3:] = 9.0  # in the part that fills no block
    logits[1] = -math.inf
    logits[1, EOS] = 0.0
    value, word = stepper.best_words(logits, 12)
    count = min(12, words)
    assert value.shape == word.shape == (12, count)
    expected = logits.topk(count)
    torch.testing.assert_close(value.sort(descending=True).values, expected.values, atol=0, rtol=0)
    torch.testing.assert_close(logits.gather(1, word), value, atol=0, rtol=0)
    assert (word.diff() > 0).all()


def test_the_longest_sentences_are_read_first_and_no_more_at_a_time_than_allowed() -> None:
    lengths = [5, 3_000, 5, 300, 31, 0] * 20
    reader = Scripted(4, lambda history: {EOS: 1.0})
    sizes: list[int] = []

    def watched(batch: Sequence[Sequence[int]]) -> list[Source]:
        longest = max(map(len, batch)) + 1
        assert len(batch) <= search.READ
        assert len(batch) * longest <= search.POSITIONS
        sizes.extend(map(len, batch))
        return Scripted.read(reader, batch)

    reader.read = watched  # type: ignore[method-assign]
    stepping: Any = reader
    order = [i for i, _ in search._read(stepping, {i: [2] * length for i, length in enumerate(lengths)})]
    assert sorted(order) == list(range(len(lengths)))
    assert sizes == sorted(lengths, reverse=True)
