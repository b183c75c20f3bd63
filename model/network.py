# ruff: noqa: N815 - shape suffixes are capitals
"""RNNsearch, RNNencdec and a dot-attention network of the same parts.

Shapes: B sentences, k hypotheses of each, S source and T target positions, N = n units, M = m embedding,
A = n' alignment units, H the size of an annotation (2n; n for RNNencdec), K target words.
"""

from typing import NamedTuple

import torch
from rnnsearch.model.attention import Alignment, DotAlignment, masked_softmax
from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.encoder import Encoder
from rnnsearch.model.gated_unit import GatedUnit
from rnnsearch.model.readout import Readout
from torch import Tensor, nn
from torch.nn import functional

NO_WORD = -1  # y_0: there is no start symbol, the first word is predicted from a zero vector (PAPER 1.2)


class Memory(NamedTuple):
    """All that the decoder needs of B source sentences, made once per sentence."""

    annotations_BSH: Tensor
    keys_BSA: Tensor | None  # U_a h_j or P h_j; None for RNNencdec
    mask_BS: Tensor  # bool
    context_BH: Tensor | None  # RNNencdec's one context for every step; None for the others
    initial_BN: Tensor  # s_0

    def select(self, sentences: Tensor) -> "Memory":
        """Return the memory of these sentences (int64 indices), in this order."""
        return Memory(*(None if part is None else part.index_select(0, sentences) for part in self))


class Carry(NamedTuple):
    """What a hypothesis takes along from `predict` to `advance`, once its next word is chosen."""

    state_BKN: Tensor  # s_i; in the order groundhog s_{i-1}, since its update waits for the word
    context_BKH: Tensor

    def select(self, parents_BJ: Tensor) -> "Carry":
        """Return the carry of these hypotheses: `parents_BJ` (int64) points into the k of each sentence."""
        return Carry(*(part.gather(1, parents_BJ[..., None].expand(-1, -1, part.shape[-1])) for part in self))


class Prediction(NamedTuple):
    """One step of the decoder for k hypotheses of each sentence."""

    logits_BKV: Tensor  # not normalised: log p is this minus its logsumexp
    alphas_BKS: Tensor | None  # None for RNNencdec
    carry: Carry


class Scores(NamedTuple):
    """A batch under teacher forcing."""

    log_probs_TB: Tensor  # log p(y_i | y_<i, x) in nats, 0 on padding
    alphas_TBS: Tensor | None  # None for RNNencdec
    contexts_TBH: Tensor
    states_TBN: Tensor  # s_0 … s_T: T + 1 of them, held over padding
    annotations_SBH: Tensor


class Network(nn.Module):
    """The network of a `NetworkConfig`, all parameters zero until `initialize` or a checkpoint fills them."""

    def __init__(self, config: NetworkConfig, source_size: int, target_size: int) -> None:
        """Vocabulary sizes count `</s>` and `[UNK]`."""
        super().__init__()
        searches, all_biases = config.kind != "rnnencdec", config.biases == "all"
        n, m = config.units, config.embedding
        annotation = 2 * n if searches else n
        self.config = config
        self.encoder = Encoder(source_size, m, n, backward=searches, gate_biases=all_biases)
        self.alignment = None
        if config.kind == "rnnsearch":
            self.alignment = Alignment(n, annotation, config.alignment_units, bias=all_biases)
        elif config.kind == "luong":
            self.alignment = DotAlignment(n, annotation)
        self.E_trg = nn.Parameter(torch.zeros(target_size, m))
        self.b_emb_trg = nn.Parameter(torch.zeros(m))
        self.dec = GatedUnit(m, n, None if config.kind == "luong" else annotation, gate_biases=all_biases)
        self.Ws = nn.Parameter(torch.zeros(n, n))
        self.bs = nn.Parameter(torch.zeros(n))
        self.readout = Readout(n, m, annotation, config.maxout_units, target_size, rank=config.output_rank)

    def encode(self, source_SB: Tensor, source_mask_SB: Tensor) -> Memory:
        """Read the source sentences."""
        annotations_SBH = self.encoder(source_SB, source_mask_SB)
        annotations_BSH = annotations_SBH.transpose(0, 1).contiguous()
        if self.alignment is None:
            context_BH = annotations_BSH[:, -1]
            summary_BN, keys_BSA = context_BH, None
        else:
            context_BH = None
            summary_BN, keys_BSA = (
                annotations_BSH[:, 0, self.config.units :],
                self.alignment.keys(annotations_BSH),
            )
        initial_BN = torch.tanh(functional.linear(summary_BN, self.Ws, self.bs))
        return Memory(annotations_BSH, keys_BSA, source_mask_SB.t(), context_BH, initial_BN)

    def start(self, memory: Memory) -> Tensor:
        """Return the state before the first word, (B, 1, N): one hypothesis a sentence."""
        return memory.initial_BN.unsqueeze(1)

    def predict(self, memory: Memory, state_BKN: Tensor, previous_BK: Tensor) -> Prediction:
        """Weigh every word as the next of each hypothesis; before the first, `previous_BK` is `NO_WORD`."""
        order = self.config.decoder_order
        embedding_BKM = self._embed(previous_BK)
        if self.config.kind == "luong":
            state_BKN = self.dec.step(self.dec.project(embedding_BKM), state_BKN)
        alphas_BKS, context_BKH = self._attend(memory, state_BKN)
        read_BKN = state_BKN
        if self.config.kind != "luong" and order != "groundhog":
            state_BKN = self.dec.step(self.dec.project(embedding_BKM), state_BKN, context_BKH)
            if order == "main":
                read_BKN = state_BKN
        logits_BKV = self.readout(read_BKN, embedding_BKM, context_BKH)
        return Prediction(logits_BKV, alphas_BKS, Carry(state_BKN, context_BKH))

    def advance(self, carry: Carry, word_BK: Tensor) -> Tensor:
        """Return the states after `word_BK`, (B, k, N), from the carry of the hypotheses that it extends."""
        if self.config.kind == "luong" or self.config.decoder_order != "groundhog":
            return carry.state_BKN
        return self.dec.step(self.dec.project(self._embed(word_BK)), carry.state_BKN, carry.context_BKH)

    def scores(self, batch: Batch) -> Scores:
        """Return what the network makes of each target word, given those before it."""
        memory = self.encode(batch.source_SB, batch.source_mask_SB)
        state_BKN = self.start(memory)
        previous_BK = torch.full_like(batch.target_TB[0], NO_WORD).unsqueeze(1)
        log_probs, alphas, contexts, states = [], [], [], [state_BKN.squeeze(1)]
        for word_B, mask_B in zip(batch.target_TB, batch.target_mask_TB, strict=True):
            word_BK = word_B.unsqueeze(1)
            prediction = self.predict(memory, state_BKN, previous_BK)
            moved_BKN = self.advance(prediction.carry, word_BK)
            state_BKN = torch.where(mask_B[:, None, None], moved_BKN, state_BKN)
            log_prob_B = prediction.logits_BKV.log_softmax(-1).gather(2, word_BK[..., None])[:, 0, 0]
            log_probs.append(torch.where(mask_B, log_prob_B, 0.0))
            if prediction.alphas_BKS is not None:
                alphas.append(prediction.alphas_BKS.squeeze(1))
            contexts.append(prediction.carry.context_BKH.squeeze(1))
            states.append(state_BKN.squeeze(1))
            previous_BK = word_BK
        alphas_TBS = torch.stack(alphas) if alphas else None
        annotations_SBH = memory.annotations_BSH.transpose(0, 1)
        return Scores(
            torch.stack(log_probs), alphas_TBS, torch.stack(contexts), torch.stack(states), annotations_SBH
        )

    def loss(self, batch: Batch, precision: str = "float32") -> Tensor:
        """Return the negative log-likelihood of the batch in nats, summed over its target words."""
        return -self.scores(batch).log_probs_TB.sum()

    def _embed(self, word_BK: Tensor) -> Tensor:
        embedding_BKM = functional.embedding(word_BK.clamp(min=0), self.E_trg) + self.b_emb_trg
        return torch.where((word_BK == NO_WORD)[..., None], 0.0, embedding_BKM)

    def _attend(self, memory: Memory, state_BKN: Tensor) -> tuple[Tensor | None, Tensor]:
        if self.alignment is None or memory.keys_BSA is None:
            if memory.context_BH is None:
                raise TypeError(
                    "a memory without keys and without a context is of another network; encode again"
                )
            return None, memory.context_BH.unsqueeze(1).expand(-1, state_BKN.shape[1], -1)
        alphas_BKS = masked_softmax(self.alignment.scores(state_BKN, memory.keys_BSA), memory.mask_BS)
        return alphas_BKS, alphas_BKS @ memory.annotations_BSH
