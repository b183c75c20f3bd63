"""The numbers of Bahdanau, Cho and Bengio (2015) that a report sets beside ours."""

import re
from typing import NamedTuple


class PaperRow(NamedTuple):
    """A row of Table 1: BLEU on all test sentences and on those without unknown words."""

    name: str
    all: float
    no_unk: float


class PaperTraining(NamedTuple):
    """A row of Table 2; likelihoods in nats per sentence."""

    name: str
    updates: int
    epochs: float
    hours: float
    device: str
    train_nll: float
    dev_nll: float


TABLE_1 = (
    PaperRow("RNNencdec-30", 13.93, 24.19),
    PaperRow("RNNsearch-30", 21.50, 31.44),
    PaperRow("RNNencdec-50", 17.82, 26.71),
    PaperRow("RNNsearch-50", 26.75, 34.16),
    PaperRow("RNNsearch-50★", 28.45, 36.15),
    PaperRow("Moses", 33.30, 35.63),
)
TABLE_2 = (
    PaperTraining("RNNencdec-30", 846_000, 6.4, 109, "Titan Black", 28.1, 53.0),
    PaperTraining("RNNencdec-50", 600_000, 4.5, 108, "Quadro K-6000", 44.0, 43.6),
    PaperTraining("RNNsearch-30", 471_000, 3.6, 113, "Titan Black", 26.7, 47.2),
    PaperTraining("RNNsearch-50", 288_000, 2.2, 111, "Quadro K-6000", 40.7, 38.1),
    PaperTraining("RNNsearch-50★", 667_000, 5.0, 252, "Quadro K-6000", 36.7, 35.2),
)
_STAR = re.compile(r"(★|\*|-star|-long)$")


def paper_row(system: str) -> str | None:
    """The row of Table 1 that a system of this name reproduces, None where the paper has none."""
    plain = _STAR.sub("★", system.lower().replace("rnnenc-", "rnnencdec-").replace("_", "-"))
    return next((row.name for row in TABLE_1 if row.name.lower() == plain), None)


class PaperSetting(NamedTuple):
    """A setting of the paper or of its released code, and the values that count as the same."""

    section: str
    name: str
    said: str  # as a reader is told
    accepted: tuple[object, ...]


# protocol 1.2, 1.3, 2, 3.3 and 4. Where the paper is silent, its released code speaks.
SETTINGS = (
    PaperSetting("network", "units", "1000", (1000,)),
    PaperSetting("network", "embedding", "620", (620,)),
    PaperSetting("network", "alignment_units", "1000", (1000,)),
    PaperSetting("network", "maxout_units", "500", (500,)),
    PaperSetting(
        "network", "decoder_order", "appendix as written, groundhog as released", ("appendix", "groundhog")
    ),
    PaperSetting("train", "optimizer", "adadelta", ("adadelta",)),
    PaperSetting("train", "batch", "80", (80,)),
    PaperSetting("train", "window_batches", "20", (20,)),
    PaperSetting("train", "clip_norm", "1", (1.0,)),
    PaperSetting("train", "reduction", "sum (released code)", ("sum",)),
    PaperSetting("train", "precision", "float32", ("float32",)),
    PaperSetting("shortlist", "source_words", "30,000", (30_000,)),
    PaperSetting("shortlist", "target_words", "30,000", (30_000,)),
    PaperSetting("tokenize", "escape", "yes", (True,)),
    PaperSetting("search", "beam", "10 (released code)", (10,)),
    PaperSetting("search", "width", "narrowing (released code)", ("narrowing",)),
    PaperSetting("search", "normalize", "no (released code)", (False,)),
    PaperSetting("search", "min_length_ratio", "0.5 (released code)", (0.5,)),
    PaperSetting("holdout", "test_corpora", "newstest2014", (("newstest2014",), ["newstest2014"])),
)
