"""What can be set about the network, its training and its search. Imports pydantic only."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_MOST = 2**63 - 1  # of a signed integer of 64 bits, as Parquet, NumPy and PyTorch have it
_WIDEST = 100_000  # units of a layer: its square matrix of float32 has 40 GB

Seed = Annotated[int, Field(ge=0, le=_MOST)]  # NumPy refuses a negative one


class Section(BaseModel):
    """A part of the configuration: frozen and strict. It refuses unknown names, other types, infinity and NaN.

    An integer is accepted where a real number is expected, and a list where a tuple is: TOML and JSON have no tuples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {name: _tuples(value) for name, value in values.items()}

    @field_validator("*")
    @classmethod
    def _fits(cls, value: object) -> object:
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            raise ValueError(f"an integer of at most 64 bits is expected, found one of {value.bit_length()}")
        return value


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class NetworkConfig(Section):
    """RNNsearch, its baseline RNNencdec, or dot attention (`luong`). Defaults are the paper's (App. A.2.3)."""

    kind: Literal["rnnsearch", "rnnencdec", "luong"] = "rnnsearch"
    decoder_order: Literal["appendix", "main", "groundhog"] = "appendix"  # protocol 1.2
    biases: Literal["all", "groundhog"] = "all"  # protocol 1.3
    units: int = Field(default=1000, gt=0, le=_WIDEST)  # n: encoder (each direction) and decoder
    embedding: int = Field(default=620, gt=0, le=_WIDEST)  # m
    alignment_units: int = Field(default=1000, gt=0, le=_WIDEST)  # n'
    maxout_units: int = Field(default=500, gt=0, le=_WIDEST)  # l, after the maximum over pairs
    output_rank: int | None = Field(default=None, gt=0, le=_WIDEST)  # None: full W_o; 620: as GroundHog

    @model_validator(mode="after")
    def _order_is_of_use(self) -> Self:
        if self.kind == "luong" and self.decoder_order != "appendix":
            raise ValueError(
                f"decoder_order = {self.decoder_order!r} has no meaning for kind = 'luong', whose attention follows "
                "the recurrence; remove it"
            )
        return self


class TrainConfig(Section):
    """One training. All budgets are in updates, never in time."""

    seed: Seed = 0
    updates: int = Field(default=1000, gt=0, lt=10**9)  # checkpoints are named with nine digits
    batch: int = Field(default=80, gt=0, le=1_000_000)  # sentences in a global batch; Sec. 4.2
    window_batches: int = Field(default=20, gt=0, le=1_000_000)  # 1,600 pairs sorted by length; App. B.2
    reduction: Literal["mean_per_sentence", "sum"] = "mean_per_sentence"  # protocol 2
    optimizer: Literal["adadelta", "adam"] = "adadelta"
    learning_rate: float = Field(default=1.0, gt=0, le=1_000)  # of Adam; Adadelta has 1
    decay: Literal["none", "linear"] = "none"  # of Adam's rate: to 0 at the last update
    clip_norm: float = Field(default=1.0, gt=0, le=1e9)  # global L2 norm of the gradient; App. B.2
    precision: Literal["float64", "float32", "bfloat16"] = "float32"
    """Of products; sums, weights and the optimiser are float32 with bfloat16. Seen with bfloat16: gradients differ from
    float64's by 1 % (RNNsearch) to 3 % (dot attention, 400 words); parameters after 37 updates differ by 2.7e-3 between
    numbers of workers. A processor without such products rounds the operands and multiplies in float32."""
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
    """Beam search (protocol 4). The defaults are a plain beam; `GROUNDHOG` is the released code's."""

    beam: int = Field(default=12, gt=0, le=10_000)
    width: Literal["constant", "narrowing"] = "constant"
    normalize: bool = True  # divide the cost by the number of tokens, </s> counted
    # </s> is forbidden for floor(min_length_ratio x source length) steps.
    min_length_ratio: float = Field(default=0.0, ge=0, le=1_000)
    # Steps at most, times the source length with </s>.
    max_length_ratio: float = Field(default=3.0, gt=0, le=1_000)
    max_length_extra: int = Field(default=0, ge=0, le=1_000_000)
    unknown: Literal["allow", "forbid"] = "allow"
    n_best: int = Field(default=1, gt=0, le=10_000)
    keep_unfinished: bool = True
    retry_unknown: bool = False  # where nothing ended without [UNK], it is allowed again, and that is counted
    # Where nothing ended, the beam doubles while below this.
    retry_beam: int | None = Field(default=None, gt=0, le=10_000)
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
