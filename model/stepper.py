"""The decoder one word at a time, for many hypotheses at once, without autograd: what a search steps.

The hypotheses of all sentences are rows of the same products, so that weights are read once a step. Keys and
annotations are kept once a sentence and not padded: no row sees how long its neighbours' sources are. With the compiled
kernels no row's sums depend on which other rows there are.

Shapes: R hypotheses, those of a sentence side by side; K those of one sentence; S its source words; C words looked at;
B sentences, N, M, A, H as in the network; G = 3n gates; L maxout units; V target words.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from rnnsearch.model.affine import affine
from rnnsearch.model.attention import Alignment, DotAlignment
from rnnsearch.model.gated_unit import Recurrence
from rnnsearch.model.kernels import Factor, Precision, kernels_for
from rnnsearch.model.network import NO_WORD, Network

EOS = 0

CHUNK = 96  # rows whose logits exist at a time: 11.5 MB at 30,000 words in float32, which stays in the cache
BLOCK = 128  # words looked at together when the best of a row are sought


class Source(NamedTuple):
    """One sentence as the decoder needs it."""

    keys_SA: Tensor | None  # U_a h_j or P h_j; None for RNNencdec
    annotations_SH: Tensor  # RNNencdec: its one context, S = 1
    initial_N: Tensor  # s_0


class Carry(NamedTuple):
    """What a hypothesis takes along until its next word is chosen."""

    state_RN: Tensor  # s_i; in the order groundhog s_{i-1}, since its update waits for the word
    context_RH: Tensor

    def select(self, rows: Tensor) -> "Carry":
        """The carry of these rows (int64), in this order."""
        return Carry(self.state_RN.index_select(0, rows), self.context_RH.index_select(0, rows))


class Prediction(NamedTuple):
    """The best next words of every row, by ascending id."""

    log_p_RC: Tensor
    words_RC: Tensor
    end_R: Tensor  # log p of `</s>`
    alphas: Sequence[Tensor] | None  # for each sentence (K, S); None for RNNencdec
    carry: Carry


class Stepper:
    """A network whose decoder has been made ready for many steps."""

    @torch.inference_mode()
    def __init__(self, network: Network, precision: Precision) -> None:
        """`precision` is that of the products of a float32 network; one in float64 has its own."""
        if network.E_trg.dtype == torch.float64:
            precision = "float64"
        self._network = network
        self._kernels = kernels_for(network.E_trg.device)
        self._precision = precision
        self._order = "luong" if network.config.kind == "luong" else network.config.decoder_order
        unit, readout, alignment = network.dec, network.readout, network.alignment
        self._recurrence = Recurrence.forwards(self._kernels, precision, unit.U)
        self._W = self._factor(unit.W)
        self._C = None if unit.C is None else self._factor(unit.C)
        self._bias_G = unit.bias
        self._Wa = self._factor(alignment.Wa) if isinstance(alignment, Alignment) else None
        self._Uo, self._Vo, self._Co = (self._factor(part) for part in (readout.Uo, readout.Vo, readout.Co))
        self._Wo1 = None if readout.Wo1 is None else self._factor(readout.Wo1)
        self._output = self._factor(readout.output)
        self._no_bias_V = torch.zeros_like(readout.b_out)
        self._logits = readout.b_out.new_empty(CHUNK, len(readout.b_out))

    @property
    def source_size(self) -> int:
        """How many source ids there are."""
        return len(self._network.encoder.E_src)

    @torch.inference_mode()
    def read(self, sentences: Sequence[Sequence[int]]) -> list[Source]:
        """Encode sentences of ids without `</s>` together."""
        network, device = self._network, self._network.E_trg.device
        lengths = [len(sentence) + 1 for sentence in sentences]
        source_BS = torch.full((len(sentences), max(lengths)), EOS)
        for b, sentence in enumerate(sentences):
            source_BS[b, : len(sentence)] = torch.tensor(sentence, dtype=torch.int64)
        mask_BS = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        source_SB, mask_SB = source_BS.t().contiguous().to(device), mask_BS.t().contiguous().to(device)
        annotations_SBH = network.encoder(self._kernels, self._precision, source_SB, mask_SB)
        alignment = network.alignment
        summary_BN = (
            annotations_SBH[-1] if alignment is None else annotations_SBH[0, :, network.config.units :]
        )
        initial_BN = torch.tanh(affine(self._kernels, self._precision, network.bs, summary_BN, network.Ws))
        if alignment is None:
            return [Source(None, summary_BN[b, None], initial_BN[b]) for b in range(len(sentences))]
        matrix, bias = (
            (alignment.Ua, alignment.ba) if isinstance(alignment, Alignment) else (alignment.P, None)
        )
        keys_SBA = affine(self._kernels, self._precision, bias, annotations_SBH, matrix)
        return [
            Source(keys_SBA[:length, b], annotations_SBH[:length, b], initial_BN[b])
            for b, length in enumerate(lengths)
        ]

    @torch.inference_mode()
    def predict(
        self, sources: Sequence[Source], counts: Sequence[int], state_RN: Tensor, words_R: Tensor, best: int
    ) -> Prediction:
        """Weigh the next word of each row and return the `best` ones.

        The first `counts[0]` rows are hypotheses of `sources[0]`, and so on. `words_R` are the words before, `NO_WORD`
        for the first. With fewer words in all, all of them are returned.
        """
        embedding_RM = self._embed(words_R)
        if self._order == "luong":
            state_RN = self._move(embedding_RM, state_RN, None)
        alphas, context_RH = self._attend(sources, counts, state_RN)
        read_RN = state_RN
        if self._order in ("appendix", "main"):
            state_RN = self._move(embedding_RM, state_RN, context_RH)
            if self._order == "main":
                read_RN = state_RN
        features_RL = self._features(read_RN, embedding_RM, context_RH)
        parts = [self._weigh(features, best) for features in torch.split(features_RL, CHUNK)]
        log_p_RC, words_RC, end_R = (torch.cat(part) for part in zip(*parts, strict=True))
        return Prediction(log_p_RC, words_RC, end_R, alphas, Carry(state_RN, context_RH))

    @torch.inference_mode()
    def advance(self, carry: Carry, words_R: Tensor) -> Tensor:
        """The states after these words, (R, N)."""
        if self._order != "groundhog":
            return carry.state_RN
        return self._move(self._embed(words_R), carry.state_RN, carry.context_RH)

    def _factor(self, matrix: Tensor) -> Factor:
        return self._kernels.factor(matrix, self._precision)

    def _embed(self, words_R: Tensor) -> Tensor:
        embedding_RM = (
            functional.embedding(words_R.clamp(min=0), self._network.E_trg) + self._network.b_emb_trg
        )
        return torch.where((words_R == NO_WORD)[:, None], 0.0, embedding_RM)

    def _move(self, embedding_RM: Tensor, state_RN: Tensor, context_RH: Tensor | None) -> Tensor:
        gates_RG = self._bias_G.repeat(len(state_RN), 1)
        self._kernels.multiply(embedding_RM, self._W, gates_RG, add=True)
        if self._C is not None and context_RH is not None:
            self._kernels.multiply(context_RH, self._C, gates_RG, add=True)
        moved_RN, reset_RN = torch.empty_like(state_RN), torch.empty_like(state_RN)
        always_R = torch.ones(len(state_RN), dtype=torch.bool, device=state_RN.device)
        self._recurrence.step(gates_RG, state_RN, always_R, reset_RN, moved_RN)
        return moved_RN

    def _attend(
        self, sources: Sequence[Source], counts: Sequence[int], state_RN: Tensor
    ) -> tuple[list[Tensor] | None, Tensor]:
        alignment = self._network.alignment
        if alignment is None:
            return None, torch.cat([
                source.annotations_SH.expand(count, -1) for source, count in zip(sources, counts, strict=True)
            ])  # fmt: skip
        query_RN = state_RN
        if self._Wa is not None:
            query_RN = state_RN.new_empty(len(state_RN), self._Wa.rows)
            self._kernels.multiply(state_RN, self._Wa, query_RN)
        context_RH = state_RN.new_empty(len(state_RN), sources[0].annotations_SH.shape[1])
        alphas = []
        for source, query_KN, context_KH in zip(
            sources, torch.split(query_RN, list(counts)), torch.split(context_RH, list(counts)), strict=True
        ):
            alphas.append(self._look(alignment, source, query_KN, context_KH))
        return alphas, context_RH

    def _look(
        self, alignment: Alignment | DotAlignment, source: Source, query_KN: Tensor, context_KH: Tensor
    ) -> Tensor:
        """Write the contexts of one sentence's hypotheses; return their alphas, (K, S)."""
        keys_SA, annotations_SH = cast(Tensor, source.keys_SA), source.annotations_SH
        if isinstance(alignment, DotAlignment):
            alphas_KS = (query_KN @ keys_SA.t()).softmax(dim=1)
            context_KH.copy_(alphas_KS @ annotations_SH)
            return alphas_KS
        count, length = len(query_KN), len(keys_SA)
        alphas_KS = query_KN.new_empty(count, length)
        real_KS = torch.ones(1, length, dtype=torch.bool, device=query_KN.device).expand(count, -1)
        self._kernels.attention(
            keys_SA.expand(count, -1, -1), annotations_SH.expand(count, -1, -1), real_KS, alignment.va
        ).forward(query_KN, alphas_KS, context_KH)
        return alphas_KS

    def _features(self, read_RN: Tensor, embedding_RM: Tensor, context_RH: Tensor) -> Tensor:
        """What the last matrix sees (App. A.2.2)."""
        pairs_RL = self._network.readout.bo.repeat(len(read_RN), 1)
        for part, factor in ((read_RN, self._Uo), (embedding_RM, self._Vo), (context_RH, self._Co)):
            self._kernels.multiply(part, factor, pairs_RL, add=True)
        maxout_RL = torch.maximum(pairs_RL[:, ::2], pairs_RL[:, 1::2])
        if self._Wo1 is None:
            return maxout_RL
        features_RL = maxout_RL.new_empty(len(maxout_RL), self._Wo1.rows)
        self._kernels.multiply(maxout_RL, self._Wo1, features_RL)
        return features_RL

    def _weigh(self, features_RL: Tensor, best: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best words of at most CHUNK rows, their log p, and that of `</s>`."""
        logits_RV = self._logits[: len(features_RL)]
        logits_RV.copy_(self._network.readout.b_out)
        self._kernels.multiply(features_RL, self._output, logits_RV, add=True)
        logit_RC, words_RC = best_words(logits_RV, best)
        top_R, top_word_R = logit_RC.max(dim=1)
        end_R = logits_RV[:, EOS].clone()
        nll_R = torch.empty_like(top_R)
        chosen_R = words_RC.gather(1, top_word_R[:, None])[:, 0]
        self._kernels.cross_entropy(logits_RV, self._no_bias_V, chosen_R, nll_R, gradient=False)
        return logit_RC - top_R[:, None] - nll_R[:, None], words_RC, end_R - top_R - nll_R


def best_words(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best words of each row and their logits, by ascending id.

    They lie in the blocks of words with the best maxima, so the whole vocabulary is passed over once only. Where
    more words than are asked for share the last place, any of them may be taken, but the same ones for an equal row.
    """
    rows, words = logits_RV.shape
    count = min(count, words)
    if words < 4 * BLOCK * count:
        logit_RC, words_RC = logits_RV.topk(count)
    else:
        blocks = words // BLOCK
        body_RNW = logits_RV[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
        block_RC = body_RNW.amax(dim=2).topk(count).indices
        within = torch.arange(BLOCK, device=logits_RV.device)
        rest = torch.arange(blocks * BLOCK, words, device=logits_RV.device)
        some = body_RNW.gather(1, block_RC[..., None].expand(-1, -1, BLOCK)).flatten(1)
        ids = (block_RC[..., None] * BLOCK + within).flatten(1)
        some = torch.cat([some, logits_RV[:, blocks * BLOCK :]], dim=1)
        ids = torch.cat([ids, rest.expand(rows, -1)], dim=1)
        logit_RC, place_RC = some.topk(count)
        words_RC = ids.gather(1, place_RC)
    words_RC, order_RC = words_RC.sort(dim=1)
    return logit_RC.gather(1, order_RC), words_RC
