"""The evaluation of one system: a fold over the shards of the test set.

The partial step makes one row a sentence, with all that a score of any subset is summed from; the merge sums.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.alignment import as_matrix, coverage, entropies
from rnnsearch.pipeline.bleu import EvaluationError, statistics
from rnnsearch.pipeline.config import EvaluateConfig, SearchConfig, TokenizeConfig
from rnnsearch.pipeline.observables import row_sums, stutters
from rnnsearch.pipeline.overlap import in_training
from rnnsearch.pipeline.schemas import SENTENCES, UNK, words
from rnnsearch.pipeline.scores import (
    MICRO,
    SUBSETS,
    SUBSETS_OF_FRESH_TEXT,
    behaviour,
    breakdowns,
    check_escapes,
    same_rows,
    seen,
    subset_score,
)
from rnnsearch.pipeline.sieve import column
from rnnsearch.pipeline.subsets import look_up
from rnnsearch.pipeline.tokenization import detokenize


class Evaluation(NamedTuple):
    """All that is known of a system's translations of the test set."""

    sentences: pa.Table  # SENTENCES
    scores: bytes  # JSON


def sentence_statistics(
    *,
    hypotheses: pa.Table,
    no_unk: pa.Table,
    tokens: pa.Table,
    raw: pa.Table,
    source: pa.Table,
    target: pa.Table,
    overlap: pa.Table,
    config: EvaluateConfig,
    tokenize: TokenizeConfig,
) -> pa.Table:
    """The partial step: SENTENCES of a shard.

    `hypotheses` and `no_unk` (UNK forbidden) are HYPOTHESES, `tokens` and `raw` the test pairs, tokenised and
    not, `source` and `target` the shortlists, `overlap` the test sentences that stand in training. Raises
    EvaluationError unless all tables hold the same rows.
    """
    for name, table in (("hypotheses", hypotheses), ("no_unk hypotheses", no_unk), ("raw pairs", raw)):
        same_rows(table, tokens, name)
    known = look_up(column(tokens, "source"), source)
    references = column(tokens, "target").to_pylist()
    outputs, outputs_no_unk = (table["hypothesis"].to_pylist() for table in (hypotheses, no_unk))
    language = tokenize.target_language
    aligned = [
        _alignment(rows, len(words(output)), int(count), config)
        for rows, output, count in zip(hypotheses["alignment"].to_pylist(), outputs, known.total, strict=True)
    ]
    columns: dict[str, Any] = {
        "corpus": column(tokens, "corpus"),
        "line": column(tokens, "line"),
        "source": column(tokens, "source"),
        "reference": references,
        "hypothesis": outputs,
        "hypothesis_no_unk": outputs_no_unk,
        "reference_text": [
            _text(line, language) if tokenize.given(corpus) else text
            for line, text, corpus in zip(
                references, raw["target"].to_pylist(), raw["corpus"].to_pylist(), strict=True
            )
        ],
        "text": [_text(line, language) for line in outputs],
        "text_no_unk": [_text(line, language) for line in outputs_no_unk],
        "source_words": known.total,
        "source_unknown": known.unknown,
        "source_rarest": known.rarest,
        "reference_unknown": look_up(column(tokens, "target"), target).unknown,
        "source_in_training": in_training(column(raw, "source"), overlap, "source"),
        "reference_in_training": in_training(column(raw, "target"), overlap, "target"),
        "output_unknown": [words(line).count(UNK) for line in outputs],
        "statistics": statistics(outputs, references).tolist(),
        "statistics_no_unk": statistics(outputs_no_unk, references).tolist(),
        "stutters": [stutters(words(line)) for line in outputs],
        "reference_stutters": [stutters(words(line)) for line in references],
        "finished": column(hypotheses, "finished"),
        "finished_no_unk": column(no_unk, "finished"),
        "fallback": column(no_unk, "fallback"),
    }
    columns |= {name: [row[name] for row in aligned] for name in SENTENCES.names if name not in columns}
    return pa.table(
        {name: _array(values, SENTENCES.field(name).type) for name, values in columns.items()}, SENTENCES
    )


def evaluate(
    partials: Sequence[pa.Table], config: EvaluateConfig, tokenize: TokenizeConfig, search: SearchConfig
) -> Evaluation:
    """Score the whole test set.

    The subset `not-in-training` is scored where a part of the test set stands in the training data. Raises
    EvaluationError for an empty test set, and for output that is escaped where the references are not, or the other
    way round (`&apos;` against `'`), which would cost points for no fault of the system (protocol trap 41).
    """
    sentences = pa.concat_tables(partials).unify_dictionaries().combine_chunks()
    if not sentences.num_rows:
        raise EvaluationError("there is no test sentence to score; give test pairs")
    given = tokenize.pretokenized or bool(tokenize.pretokenized_corpora)
    declared = None if given else tokenize.escape
    check_escapes(sentences["hypothesis"].to_pylist(), sentences["reference"].to_pylist(), declared)
    found = seen(sentences)
    subsets = SUBSETS if found["in_training"]["sentences"] else SUBSETS_OF_FRESH_TEXT
    scores = {
        "sentences": sentences.num_rows,
        "subsets": {name: subset_score(sentences, name, config, tokenize, search) for name in subsets},
        **breakdowns(sentences, config, tokenize, search),
        "behaviour": behaviour(sentences, config),
        **found,
    }
    return Evaluation(sentences, (json.dumps(scores, indent=1, ensure_ascii=False) + "\n").encode())


def _alignment(
    rows: Sequence[Sequence[float]] | None, target_words: int, source_words: int, config: EvaluateConfig
) -> Mapping[str, Any]:
    """The columns of SENTENCES that come from an alignment."""
    if rows is None:
        return dict.fromkeys(("entropies", "least_weight", "most_weight", "dropped_words", "repeated_words"))
    weights = as_matrix(rows, target_words, source_words)
    spoken = weights[:target_words]
    sums, covered = row_sums(weights), coverage(spoken, config.least_coverage, config.most_coverage)
    return {
        "entropies": np.rint(entropies(spoken) * MICRO).astype(np.int32),
        "least_weight": round(sums.low * MICRO),
        "most_weight": round(sums.high * MICRO),
        "dropped_words": covered.dropped,
        "repeated_words": covered.repeated,
    }


def _text(tokens: str, language: str) -> str:
    return detokenize(tokens, language) if tokens else ""


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
