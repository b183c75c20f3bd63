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
