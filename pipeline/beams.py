"""What a beam of some width makes of the dev set."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.bleu import bleu, statistics
from rnnsearch.pipeline.config import EvaluateConfig, TokenizeConfig
from rnnsearch.pipeline.scores import signature
from rnnsearch.pipeline.significance import bootstrap, interval


def beam_score(
    hypotheses: pa.Table,
    pairs: pa.Table,
    config: EvaluateConfig,
    tokenize: TokenizeConfig,
    search: Mapping[str, object],
) -> dict[str, Any]:
    """Tokenised BLEU of HYPOTHESES of these tokenised pairs, found with these settings of the search."""
    rows = statistics(hypotheses["hypothesis"].to_pylist(), pairs["target"].to_pylist())
    score = bleu(rows)
    around = interval(bootstrap(rows, config.bootstrap_samples, config.seed))
    return {
        "beam": search["beam"],
        "sentences": len(rows),
        "bleu": round(score.score, 4),
        "bleu_low": round(around.low, 4),
        "bleu_high": round(around.high, 4),
        "ratio": round(score.ratio, 6),
        "unfinished": len(rows) - int(np.count_nonzero(hypotheses["finished"].to_numpy())),
        "signature": signature("dev", len(rows), tokenize, search),
    }
