"""RNNsearch, RNNencdec and a dot-attention network of the same parts.

Shapes: B sentences, S source and T target positions, N = n units, M = m embedding,
H the size of an annotation (2n; n for RNNencdec), R target words that are not padding, L features of each.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rnnsearch.model.affine import affine
from rnnsearch.model.attention import Alignment, DotAlignment, entropy
from rnnsearch.model.batch import Batch
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.decoder import search_softly
from rnnsearch.model.embedding import embed
from rnnsearch.model.encoder import Encoder
from rnnsearch.model.gated_unit import GatedUnit
from rnnsearch.model.kernels import Kernels, Precision, kernels_for
from rnnsearch.model.loss import WordLoss, word_loss
from rnnsearch.model.readout import Readout

NO_WORD = -1  # y_0: there is no start symbol, the first word is predicted from a zero vector (protocol 1.2)


class Scores(NamedTuple):
    """A batch under teacher forcing."""

    log_probs_TB: Tensor  # log p(y_i | y_<i, x) in nats, 0 on padding
    alphas_TBS: Tensor | None  # None for RNNencdec
    contexts_TBH: Tensor
    states_TBN: Tensor  # s_0 … s_T: T + 1 of them, held over padding
    annotations_SBH: Tensor


class Lesson(NamedTuple):
    """What a batch was to the network that learned from it; without gradient."""

    loss: Tensor  # nats, summed over the target words
    entropy: Tensor | None  # of attention, likewise; None for RNNencdec


class _Taught(NamedTuple):
    """What the readout and the reader of `Scores` need of a batch."""

    states_TBN: Tensor
    contexts_TBH: Tensor
    alphas_TBS: Tensor | None
    previous_TBM: Tensor  # E y_{i-1}
    annotations_SBH: Tensor


class _Learned(NamedTuple):
    loss: Tensor  # differentiable
    alphas_TBS: Tensor | None


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
        self.alignment: Alignment | DotAlignment | None = None
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

    @property
    def attends(self) -> bool:
        """Whether it weighs source words anew for each target word; RNNencdec does not."""
        return self.alignment is not None

    def scores(self, batch: Batch) -> Scores:
        """Return what the network makes of each target word, given those before it; without gradient."""
        with torch.no_grad():
            kernels, precision = self._kernels(), self._precision()
            taught = self._teach(kernels, precision, batch)
            nll_R = self._word_loss(kernels, precision, batch, taught).nll_R
        log_probs_TB = torch.zeros_like(batch.target_mask_TB, dtype=nll_R.dtype)
        log_probs_TB[batch.target_mask_TB] = -nll_R
        return Scores(
            log_probs_TB, taught.alphas_TBS, taught.contexts_TBH, taught.states_TBN, taught.annotations_SBH
        )

    def loss(self, batch: Batch, precision: Precision = "float32") -> Tensor:
        """Return the negative log-likelihood of the batch in nats, summed over its target words.

        `precision` is that of the products; bfloat16 leaves sums, weights and all else in float32. A network in
        float64 has its own.
        """
        return self._learn(self._kernels(), batch, precision).loss

    def accumulate(self, batch: Batch, precision: Precision = "float32") -> Lesson:
        """Add the gradient of `loss` to the `.grad` of every parameter; return the loss and what it was beside.

        The same sums as `loss(batch).backward()`, without a second buffer for the gradients of the matrices. Where
        a parameter has no `.grad` it gets one.
        """
        loss, alphas_TBS = self._learn(self._kernels().accumulating(), batch, precision)
        loss.backward()  # type: ignore[no-untyped-call]
        looked = None if alphas_TBS is None else entropy(alphas_TBS, batch.target_mask_TB)
        return Lesson(loss.detach(), looked)

    def _learn(self, kernels: Kernels, batch: Batch, precision: Precision) -> "_Learned":
        precision = self._precision() if precision != "bfloat16" else precision
        taught = self._teach(kernels, precision, batch)
        return _Learned(self._word_loss(kernels, precision, batch, taught).total, taught.alphas_TBS)

    def _kernels(self) -> Kernels:
        return kernels_for(self.E_trg.device)

    def _precision(self) -> Precision:
        return "float64" if self.E_trg.dtype == torch.float64 else "float32"

    def _teach(self, kernels: Kernels, precision: Precision, batch: Batch) -> "_Taught":
        """Run the decoder with teacher forcing."""
        annotations_SBH = self.encoder(kernels, precision, batch.source_SB, batch.source_mask_SB)
        summary_BN = (
            annotations_SBH[-1] if self.alignment is None else annotations_SBH[0, :, self.config.units :]
        )
        initial_BN = torch.tanh(affine(kernels, precision, self.bs, summary_BN, self.Ws))
        mask_TB = batch.target_mask_TB.contiguous()
        embedding_TBM = torch.where(
            mask_TB[..., None], embed(kernels, self.E_trg, self.b_emb_trg, batch.target_TB), 0.0
        )
        previous_TBM = torch.cat([torch.zeros_like(embedding_TBM[:1]), embedding_TBM[:-1]])
        late = self.config.decoder_order == "groundhog" and self.config.kind != "luong"
        inputs_TBM = embedding_TBM if late else previous_TBM
        if isinstance(self.alignment, Alignment):
            keys_SBA = self.alignment.keys(kernels, precision, annotations_SBH)
            searched = search_softly(
                kernels, precision, self.dec, self.alignment, inputs_TBM, mask_TB, initial_BN, keys_SBA,
                annotations_SBH, batch.source_mask_SB,
            )  # fmt: skip
            return _Taught(*searched, previous_TBM, annotations_SBH)
        constant_BG = None if self.dec.C is None else affine(kernels, precision, None, summary_BN, self.dec.C)
        moved_TBN = self.dec.scan(kernels, precision, inputs_TBM, mask_TB, initial_BN, constant_BG)
        states_TBN = torch.cat([initial_BN[None], moved_TBN])
        if self.alignment is None:
            contexts_TBH = summary_BN.expand(len(mask_TB), -1, -1)
            return _Taught(states_TBN, contexts_TBH, None, previous_TBM, annotations_SBH)
        keys_SBN = self.alignment.keys(kernels, precision, annotations_SBH)
        contexts_TBH, alphas_TBS = self.alignment(moved_TBN, keys_SBN, annotations_SBH, batch.source_mask_SB)
        return _Taught(states_TBN, contexts_TBH, alphas_TBS, previous_TBM, annotations_SBH)

    def _word_loss(self, kernels: Kernels, precision: Precision, batch: Batch, taught: "_Taught") -> WordLoss:
        """Weigh the words that are not padding."""
        after = self.config.kind == "luong" or self.config.decoder_order == "main"
        states_TBN = taught.states_TBN[1:] if after else taught.states_TBN[:-1]
        rows = batch.target_mask_TB.flatten().nonzero().squeeze(1)
        features_RL = self.readout.features(
            kernels,
            precision,
            *(
                part.flatten(0, 1).index_select(0, rows)
                for part in (states_TBN, taught.previous_TBM, taught.contexts_TBH)
            ),
        )
        words_R = batch.target_TB.flatten().index_select(0, rows)
        return word_loss(kernels, precision, features_RL, self.readout.output, self.readout.b_out, words_R)
