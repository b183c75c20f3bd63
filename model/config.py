"""What can be set about the network, its training and its search. Imports pydantic only."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A part of the configuration: frozen, and it refuses names that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NetworkConfig(Section):
    """RNNsearch, its baseline RNNencdec, or dot attention (`luong`). Defaults are the paper's (App. A.2.3)."""

    kind: Literal["rnnsearch", "rnnencdec", "luong"] = "rnnsearch"
    decoder_order: Literal["appendix", "main", "groundhog"] = "appendix"  # PAPER 1.2
    biases: Literal["all", "groundhog"] = "all"  # PAPER 1.3
    units: int = Field(default=1000, gt=0)  # n: encoder (each direction) and decoder
    embedding: int = Field(default=620, gt=0)  # m
    alignment_units: int = Field(default=1000, gt=0)  # n'
    maxout_units: int = Field(default=500, gt=0)  # l, after the maximum over pairs
    output_rank: int | None = Field(default=None, gt=0)  # None: W_o full; 620: factored, as GroundHog


class TrainConfig(Section):
    """One training. All budgets are in updates, never in time."""

    seed: int = 0
    updates: int = Field(default=1000, gt=0)
    batch: int = Field(default=80, gt=0)  # sentences in a global batch; Sec. 4.2
    window_batches: int = Field(default=20, gt=0)  # 1,600 pairs are sorted by length at a time; App. B.2
    reduction: Literal["mean_per_sentence", "sum"] = "mean_per_sentence"  # PAPER 2
    optimizer: Literal["adadelta", "adam"] = "adadelta"
    learning_rate: float = Field(default=1.0, gt=0)  # of Adam; Adadelta has 1
    decay: Literal["none", "linear"] = "none"  # of Adam's rate: to 0 at the last update
    clip_norm: float = Field(default=1.0, gt=0)  # global L2 norm of the gradient; App. B.2
    precision: Literal["float64", "float32", "bfloat16"] = (
        "float32"  # of products; weights are never bfloat16
    )
    log_every: int = Field(default=50, gt=0)  # updates between rows of the curve
    checkpoint_every: int = Field(default=500, gt=0)
    evaluate_every: int = Field(default=500, gt=0)  # dev loss and dev BLEU
    dev_sentences: int | None = Field(default=None, gt=0)  # of which the loss is taken; None: all of dev
    dev_bleu_sentences: int = Field(default=200, ge=0)  # the first of those, for BLEU; 0: none
    best_by: Literal["loss", "bleu"] = "loss"  # which of the two on dev says which parameters translate
    nonfinite_limit: int = Field(default=10, gt=0)  # updates skipped in a row before the training stops

    @model_validator(mode="after")
    def _bleu_is_measured(self) -> Self:
        if self.best_by == "bleu" and self.dev_bleu_sentences == 0:
            raise ValueError("best_by = 'bleu' needs dev_bleu_sentences above 0")
        return self

    @model_validator(mode="after")
    def _a_rate_decays(self) -> Self:
        if self.decay != "none" and self.optimizer != "adam":
            raise ValueError(f"decay = {self.decay!r} is of Adam's rate; {self.optimizer} has none")
        return self


class SearchConfig(Section):
    """Beam search (PAPER 4). The defaults are a plain beam; `GROUNDHOG` is the released code's."""

    beam: int = Field(default=12, gt=0)
    width: Literal["constant", "narrowing"] = "constant"
    normalize: bool = True  # divide the cost by the number of tokens, </s> counted
    min_length_ratio: float = Field(
        default=0.0, ge=0
    )  # </s> forbidden for floor(ratio x source length) steps
    max_length_ratio: float = Field(default=3.0, gt=0)  # steps at most, times the source length with </s>
    max_length_extra: int = Field(default=0, ge=0)
    unknown: Literal["allow", "forbid"] = "allow"
    n_best: int = Field(default=1, gt=0)
    keep_unfinished: bool = True
    retry_unknown: bool = False  # where nothing ended without [UNK], it is allowed again, and that is counted
    retry_beam: int | None = Field(
        default=None, gt=0
    )  # where nothing ended, the beam doubles while below this
    precision: Literal["float64", "float32", "bfloat16"] = "float32"


GROUNDHOG = SearchConfig(
    beam=10,
    width="narrowing",
    normalize=False,
    min_length_ratio=0.5,
    keep_unfinished=False,
    retry_unknown=True,
    retry_beam=500,
)
