"""Another system's translations of the test set, Moses' or a commercial one's: rows as if we had translated."""

import re
from collections.abc import Sequence

import pyarrow as pa

from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.clean import normalized
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.schemas import HYPOTHESES, sentence, words
from rnnsearch.pipeline.sieve import column
from rnnsearch.pipeline.tokenization import separated, tokenize

# How tools mark pieces of words: subword-nmt, SentencePiece, OpenNMT's tokeniser.
_PIECES = (
    ("@@", re.compile(r"[^ ]@@(?: |$)"), "sed -E 's/@@( |$)//g'"),
    ("\u2581", re.compile("\u2581"), "spm_decode"),
    ("\uffed", re.compile("\uffed"), "the detokenizer of pyonmttok"),
)


def as_our_tokens(lines: Sequence[str], clean: CleanConfig, config: TokenizeConfig) -> list[str]:
    """Running text of the target language, normalised and tokenised as the references are.

    Raises EvaluationError for pieces of words (`lo@@ west`), whose marks the tokeniser would part.
    """
    _require_words(lines, [])
    texts = normalized(pa.array(lines, pa.string()), clean).to_pylist()
    if config.pretokenized:
        return [separated(text) for text in texts]
    return [tokenize(text, config.target_language, config.escape) for text in texts]


def external_hypotheses(lines: Sequence[str], shards: Sequence[pa.Table]) -> list[pa.Table]:
    """HYPOTHESES for each shard of the tokenised test pairs: one tokenised line for each of their rows, in order.

    Raises EvaluationError unless there are as many lines as rows, and for pieces of words (`lo@@ west`) where the test
    set has words.
    """
    rows = sum(shard.num_rows for shard in shards)
    if len(lines) != rows:
        raise EvaluationError(
            f"{len(lines):,} lines for {rows:,} test sentences; give one line for each, in the order of the test "
            "set, an empty one where there is no translation"
        )
    _require_words(lines, [line for shard in shards for line in shard["target"].to_pylist()])
    tables, first = [], 0
    for shard in shards:
        tables.append(_hypotheses(lines[first : first + shard.num_rows], shard))
        first += shard.num_rows
    return tables


def _require_words(lines: Sequence[str], references: Sequence[str]) -> None:
    for mark, pattern, remedy in _PIECES:
        pieces, ours = (sum(bool(pattern.search(line)) for line in text) for text in (lines, references))
        if pieces > ours + len(lines) // 100:
            raise EvaluationError(
                f"{pieces:,} of {len(lines):,} lines have pieces of words, marked {mark}, and {ours:,} references; "
                f"join them before the scores are made, such as by {remedy}"
            )


def _hypotheses(lines: Sequence[str], tokens: pa.Table) -> pa.Table:
    count = len(lines)
    columns = [
        column(tokens, "corpus"),
        column(tokens, "line"),
        column(tokens, "source"),
        pa.array([sentence(filter(None, words(line))) for line in lines], pa.string()),
        pa.array([0.0] * count),  # unknown
        pa.array([True] * count),
        pa.array([False] * count),
        pa.nulls(count, HYPOTHESES.field("alignment").type),
    ]
    return pa.Table.from_arrays(columns, schema=HYPOTHESES)
