"""Counts and examples of likely problems in each corpus; nothing is dropped or changed.

A fold over the corpora as ingested: the signs of damage that `repairs.py` mends, text that was tokenised or escaped
before, and every filter of `filters.py`: those that are set at their thresholds, the others at the usual ones of
`USUAL`. Counts are of pairs.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.clean import normalized_rows
from rnnsearch.pipeline.config import CleanConfig, FilterConfig, LanguagesConfig
from rnnsearch.pipeline.filters import apply_filters, is_mojibake
from rnnsearch.pipeline.repairs import CONTROL, ENTITY
from rnnsearch.pipeline.sieve import Mask, column
from rnnsearch.pipeline.slip import find_slips

EXAMPLES = 10  # of each check in each corpus
_EXAMPLE = pa.struct(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),  # of a stretch of lines; else as `line`
        pa.field("source", pa.string(), nullable=False),  # as ingested
        pa.field("target", pa.string(), nullable=False),
    ]
)
SURVEY = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("check", pa.string(), nullable=False),  # `pairs`: all of them
        pa.field("pairs", pa.int64(), nullable=False),
        pa.field("examples", pa.list_(pa.field("element", _EXAMPLE, nullable=False)), nullable=False),
    ],
    metadata={"schema": "survey", "version": "1"},
)

USUAL = FilterConfig(
    max_words=200,
    max_characters=2_000,
    max_word_characters=60,
    max_word_ratio=4,
    max_character_ratio=4,
    identical=True,
    min_letters=0.4,
    min_script=0.5,
    min_digits=0.5,
    max_repeats=3,
    html=True,
    swapped=True,
)

# Text that somebody escaped as Moses does, or tokenised: punctuation that stands apart at the end.
ESCAPED = "&(?:apos|quot|#91|#93|#124);"
_TOKENISED = r"[\p{L}\p{N}] [.,](?: |$)|@-@|[\p{L}] n't(?: |$)| '(?:s|re|ve|ll)(?: |$)"
_SIDES = ("source", "target")
_TWICE = "&amp;(?:[A-Za-z]+|#[0-9]+);"


class Survey(NamedTuple):
    """SURVEY, a row for each corpus and check that found something, sorted."""

    survey: pa.Table


def survey_shard(
    pairs: pa.Table, clean: CleanConfig, filters: FilterConfig, languages: LanguagesConfig
) -> pa.Table:
    """Partial step: what the checks find in a shard of a corpus as ingested."""
    found = [SURVEY.empty_table()]
    for name, mask in _checks(pairs, clean, filters, languages):
        corpora = column(pairs, "corpus").cast(pa.string())
        for corpus in corpora.filter(pa.array(mask)).unique().to_pylist():
            mine = np.flatnonzero(mask & np.asarray(pc.equal(corpora, corpus), np.bool_))
            examples = [] if name == "pairs" else _examples(pairs, mine[:EXAMPLES])
            found.append(_row(corpus, name, len(mine), examples))
    for slip in find_slips(pairs):
        (first, last) = (pairs.slice(row, 1).to_pylist()[0] for row in (slip.first, slip.last))
        example = {
            "line": first["line"],
            "last": last["line"],
            "source": first["source"],
            "target": first["target"],
        }
        found.append(_row(first["corpus"], "slipped", slip.last - slip.first + 1, [example]))
    return pa.concat_tables(found)


def sum_survey(partials: Sequence[pa.Table]) -> Survey:
    """Merge: the counts of all shards, and the first examples of each check by line."""
    rows: dict[tuple[str, str], tuple[int, list[dict[str, object]]]] = {}
    for partial in partials:
        for row in partial.to_pylist():
            pairs, examples = rows.get((row["corpus"], row["check"]), (0, []))
            kept = sorted([*examples, *row["examples"]], key=lambda example: example["line"])[:EXAMPLES]
            rows[row["corpus"], row["check"]] = (pairs + row["pairs"], kept)
    merged = [_row(corpus, check, *rows[corpus, check]) for corpus, check in sorted(rows)]
    return Survey(pa.concat_tables([SURVEY.empty_table(), *merged]).combine_chunks())


def thresholds(filters: FilterConfig) -> FilterConfig:
    """The filters as the survey applies them: those that are set, and the usual ones."""
    given = {name: value for name, value in filters.model_dump().items() if value not in (None, False)}
    # Slips and mojibake are looked for in the text as ingested.
    return USUAL.model_copy(update={**given, "slipped": False, "mojibake": False})


def _checks(
    pairs: pa.Table, clean: CleanConfig, filters: FilterConfig, languages: LanguagesConfig
) -> Iterator[tuple[str, Mask]]:
    yield "pairs", np.ones(pairs.num_rows, np.bool_)
    for name, pattern in (
        ("entities", ENTITY),
        ("twice_escaped", _TWICE),
        ("escaped", ESCAPED),
        ("tokenised", _TOKENISED),
        ("controls", CONTROL),
    ):
        yield name, _either(*(pc.match_substring_regex(column(pairs, side), pattern) for side in _SIDES))
    yield "mojibake", _either(*(is_mojibake(column(pairs, side)) for side in _SIDES))
    yield from apply_filters(normalized_rows(pairs, clean), thresholds(filters), languages).items()


def _either(source: pa.Array, target: pa.Array) -> Mask:
    return np.asarray(pc.or_(source, target).to_numpy(zero_copy_only=False), np.bool_)


def _examples(pairs: pa.Table, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[dict[str, object]]:
    taken = pairs.select(["line", "source", "target"]).take(pa.array(rows)).to_pylist()
    return [{**row, "last": row["line"]} for row in taken]


def _row(corpus: str, check: str, pairs: int, examples: Sequence[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"corpus": corpus, "check": check, "pairs": pairs, "examples": examples}], schema=SURVEY
    )
