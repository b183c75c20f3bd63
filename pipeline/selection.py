"""Which pairs of the pool look like the in-domain text: Axelrod's bilingual cross-entropy difference.

    score(s, t) = [H_in(s) - H_general(s)] + [H_in(t) - H_general(t)],   lower is more in-domain

H is the cross-entropy in bits a token, `</s>` counted (protocol 3.2). The general models come from a random
sample of the pool with as many source tokens as the in-domain text. All models of a language share one
vocabulary: the in-domain words seen often enough, and `[UNK]` for every other word, as a word.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import kenlm
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import Budget, LanguageModelConfig, SelectConfig
from rnnsearch.pipeline.encode import order
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.ngram import RESERVED, LanguageModel, estimate, number, to_arpa, usable_word
from rnnsearch.pipeline.schemas import PAIRS, SCORES, SHORTLIST, UNK
from rnnsearch.pipeline.sieve import Cause, Sieved, column, sieve

IntArray = npt.NDArray[np.int64]

MODELS = ("in_source", "general_source", "in_target", "general_target")
_LEAST_COVERAGE = 0.5  # of the words of the in-domain text
_NO_THRESHOLD = np.iinfo(np.int64).min
_MICROBITS = 3_321_928.094887362  # in one unit of log10
_HASHED = PAIRS.append(pa.field("hash", pa.uint64(), nullable=False))

RANKING = pa.schema(
    [SCORES.field(name) for name in ("corpus", "line", "difference", "source_words", "target_words")],
    metadata={"schema": "ranking", "version": "1"},
)
ROWS = pa.schema(
    [  # one a row of the shard of pairs
        pa.field("kept", pa.bool_(), nullable=False),
        # for dropped rows: the largest difference kept within the budget, in micro-bits; null if no row was kept
        pa.field("threshold", pa.int64()),
    ],
    metadata={"schema": "rows", "version": "2"},
)
SUMMARY = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("pairs", pa.int64(), nullable=False),  # offered
        pa.field("kept_pairs", pa.int64(), nullable=False),
        pa.field("source_words", pa.int64(), nullable=False),
        pa.field("kept_source_words", pa.int64(), nullable=False),
        pa.field("target_words", pa.int64(), nullable=False),
        pa.field("kept_target_words", pa.int64(), nullable=False),
        pa.field("worst_kept", pa.int64()),  # difference in micro-bits; null where nothing is kept
    ],
    metadata={"schema": "selection", "version": "1"},
)


class SelectionError(TextError):
    """A selection that cannot be made as asked."""


class InDomain(NamedTuple):
    """What the language models know of the domain."""

    source: pa.Table  # SHORTLIST: the vocabularies, by codepoint, without `[UNK]`
    target: pa.Table
    text: pa.Table  # PAIRS


class Sample(NamedTuple):
    """Pairs drawn from the pool."""

    sample: pa.Table  # PAIRS, in the order drawn


class Models(NamedTuple):
    """The four language models as ARPA files, and how their discounts came about (JSON)."""

    in_source: bytes
    general_source: bytes
    in_target: bytes
    general_target: bytes
    record: bytes

    def files(self) -> Mapping[str, bytes]:
        """The folder that `score_shard` reads: a name and its bytes."""
        return {f"{name}.arpa": getattr(self, name) for name in MODELS} | {"record.json": self.record}


class Scored(NamedTuple):
    """The scores of a shard of the pool."""

    scores: pa.Table  # SCORES, a row for each pair


class Threshold(NamedTuple):
    """What the budget keeps."""

    rows: list[pa.Table]  # ROWS, a table for each shard
    summary: pa.Table  # SUMMARY, a row for each corpus


def in_domain_text(pairs: pa.Table) -> pa.Table:
    """The partial step of the vocabulary: the tokenised in-domain pairs of a shard."""
    return pairs.select(PAIRS.names).cast(PAIRS)


def in_domain_vocabulary(partials: Sequence[pa.Table], config: LanguageModelConfig) -> InDomain:
    """The in-domain text and its words seen at least `minimum_count` times.

    Raises SelectionError where there is no text, and where the vocabulary of a side covers less than half of it.
    """
    text = pa.concat_tables(partials).unify_dictionaries().combine_chunks()
    if not text.num_rows:
        raise SelectionError("there is no in-domain text to select by; give dev pairs, or turn selection off")
    vocabularies = {side: _vocabulary(text[side], config) for side in ("source", "target")}
    for side, vocabulary in vocabularies.items():
        _require_coverage(text[side], vocabulary, side, config)
    return InDomain(vocabularies["source"], vocabularies["target"], text)


def pool_sample(pairs: pa.Table, in_domain: pa.Table, config: LanguageModelConfig) -> pa.Table:
    """The partial step of the sample: the rows of a shard that can be among the smallest hashes."""
    hashes = order(column(pairs, "corpus"), column(pairs, "line"), config.seed)
    hashed = pairs.select(PAIRS.names).cast(PAIRS).append_column(_HASHED.field("hash"), hashes)
    if config.pool_share < 1:
        hashed = hashed.filter(pa.array(hashes.to_numpy() < np.uint64(config.pool_share * 2.0**64)))
    return _smallest(hashed, in_domain)


def cut_sample(partials: Sequence[pa.Table], in_domain: pa.Table, config: LanguageModelConfig) -> Sample:
    """The pairs with the smallest hashes, just as many as reach the source tokens of the in-domain text.

    A smaller pool is taken whole. Raises SelectionError where only `pool_share` makes it too small.
    """
    sample = _smallest(pa.concat_tables(partials), in_domain).select(PAIRS.names).cast(PAIRS)
    found, wanted = (int(_lengths(table["source"]).sum()) for table in (sample, in_domain))
    if found < wanted and config.pool_share < 1:
        raise SelectionError(
            f"{config.pool_share} of the pool has {found} source tokens, the in-domain text {wanted}; "
            f"raise language_model.pool_share"
        )
    return Sample(sample)


def estimate_models(
    in_domain: pa.Table,
    sample: pa.Table,
    source_vocabulary: pa.Table,
    target_vocabulary: pa.Table,
    config: LanguageModelConfig,
) -> Models:
    """Estimate the four models."""
    if not sample.num_rows:
        raise SelectionError("the pool has no pair, so there is nothing to select; add a training corpus")
    vocabularies = {"source": _shared(source_vocabulary), "target": _shared(target_vocabulary)}
    models = {
        name: estimate(
            (in_domain if name.startswith("in_") else sample)[name.rpartition("_")[2]],
            vocabularies[name.rpartition("_")[2]],
            config.order,
        )
        for name in MODELS
    }
    record = {name: _record(model) for name, model in models.items()}
    return Models(
        **{name: to_arpa(model) for name, model in models.items()},
        record=(json.dumps(record, indent=1) + "\n").encode(),
    )


def score_shard(
    pairs: pa.Table, models: Path, source_vocabulary: pa.Table, target_vocabulary: pa.Table
) -> Scored:
    """Score each pair by the models in the folder `models`: files named after `MODELS`, ending in `.arpa`."""
    source, source_words = _replaced(pairs["source"], _shared(source_vocabulary))
    target, target_words = _replaced(pairs["target"], _shared(target_vocabulary))
    in_source = _cross_entropy(models / "in_source.arpa", source, source_words)
    general_source = _cross_entropy(models / "general_source.arpa", source, source_words)
    in_target = _cross_entropy(models / "in_target.arpa", target, target_words)
    general_target = _cross_entropy(models / "general_target.arpa", target, target_words)
    difference = (in_source - general_source) + (in_target - general_target)
    entropies = (in_source, general_source, in_target, general_target, difference, source_words, target_words)
    columns = [column(pairs, "corpus"), column(pairs, "line"), *(pa.array(values) for values in entropies)]
    return Scored(pa.table(columns, names=SCORES.names).cast(SCORES))


def ranking(scores: pa.Table) -> pa.Table:
    """The partial step of the threshold: the columns that decide."""
    return scores.select(RANKING.names).cast(RANKING)


def choose_rows(partials: Sequence[pa.Table], config: SelectConfig) -> Threshold:
    """Keep the best pairs within the budget: a prefix of the ranking by (difference, corpus, line).

    A budget of words counts target words and is not exceeded; a share is of the pairs, rounded down. Corpora
    that `per_corpus` does not name are kept whole; without any budget everything is.
    """
    table = pa.concat_tables(partials).unify_dictionaries().combine_chunks()
    corpora = column(table, "corpus")
    code = corpora.indices.to_numpy()
    codes = {corpora.dictionary[value].as_py(): value for value in np.unique(code).tolist()}
    if missing := sorted(set(config.per_corpus) - set(codes)):
        raise SelectionError(f"there is a budget for corpus {missing[0]!r}, but the pool has {sorted(codes)}")
    place = np.zeros(len(corpora.dictionary), np.int64)  # by name, whatever the order of the dictionary
    place[[codes[name] for name in sorted(codes)]] = np.arange(len(codes))
    difference, line, source_words, target_words = (
        table[name].to_numpy() for name in ("difference", "line", "source_words", "target_words")
    )
    ranked = np.lexsort((line, place[code], difference))
    kept = np.ones(table.num_rows, np.bool_)
    cut = np.full(table.num_rows, _NO_THRESHOLD, np.int64)
    if config.per_corpus:
        for name, budget in config.per_corpus.items():
            offered = ranked[code[ranked] == codes[name]]
            _cut(kept, cut, offered, _within(offered, target_words, budget), difference)
    else:
        _cut(kept, cut, ranked, _within(ranked, target_words, config.budget), difference)
    counted: list[dict[str, object]] = []
    for name in sorted(codes):
        mine = code == codes[name]
        both = mine & kept
        counted.append(
            {
                "corpus": name,
                "pairs": int(mine.sum()),
                "kept_pairs": int(both.sum()),
                "source_words": int(source_words[mine].sum()),
                "kept_source_words": int(source_words[both].sum()),
                "target_words": int(target_words[mine].sum()),
                "kept_target_words": int(target_words[both].sum()),
                "worst_kept": int(difference[both].max()) if both.any() else None,
            }
        )
    ends = np.cumsum([partial.num_rows for partial in partials])[:-1]
    rows = [
        pa.table([pa.array(stays), pa.array(last, mask=last == _NO_THRESHOLD)], schema=ROWS)
        for stays, last in zip(np.split(kept, ends), np.split(cut, ends), strict=True)
    ]
    return Threshold(rows, pa.Table.from_pylist(counted, schema=SUMMARY))


def select_shard(pairs: pa.Table, rows: pa.Table) -> Sieved:
    """Split a shard of the pool into the pairs chosen and the others, which carry the cut of their budget."""
    if pairs.num_rows != rows.num_rows:
        raise SelectionError(f"{rows.num_rows} decisions for {pairs.num_rows} pairs; score the same shards")
    lost = ~np.asarray(rows["kept"].to_numpy())
    return sieve(pairs, {"not_selected": Cause(lost, threshold=column(rows, "threshold"))})


def _vocabulary(text: pa.ChunkedArray, config: LanguageModelConfig) -> pa.Table:
    counted = pc.value_counts(pc.list_flatten(pc.split_pattern(text, " ")))
    seen = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    often = (word for word, count in seen if count >= config.minimum_count)
    return pa.table(
        [pa.array(sorted(w for w in often if usable_word(w) and w != UNK), pa.string())], schema=SHORTLIST
    )


def _require_coverage(
    text: pa.ChunkedArray, vocabulary: pa.Table, side: str, config: LanguageModelConfig
) -> None:
    """Raise SelectionError where most of the text would be `[UNK]`: then every pair has about the same score."""
    words = pc.list_flatten(pc.split_pattern(text, " "))
    words = words.filter(pc.not_equal(words, ""))
    known = pc.sum(pc.is_in(words, value_set=column(vocabulary, "word"))).as_py() or 0
    if known < _LEAST_COVERAGE * len(words) or not len(words):
        raise SelectionError(
            f"only {known:,} of the {len(words):,} {side} words of the in-domain text are seen {config.minimum_count} "
            f"times or more, in {text.length():,} sentences; the others are [UNK], and a selection by them would mean "
            "nothing. Give more dev pairs, lower language_model.minimum_count, or turn selection off"
        )


def _shared(vocabulary: pa.Table) -> list[str]:
    return [*vocabulary["word"].to_pylist(), UNK]


def _smallest(hashed: pa.Table, in_domain: pa.Table) -> pa.Table:
    """The shortest run of rows, by (hash, corpus, line), with at least the source tokens of `in_domain`."""
    wanted = int(_lengths(in_domain["source"]).sum())
    spelled = hashed.append_column("name", hashed["corpus"].cast(pa.string()))
    places = pc.sort_indices(spelled, sort_keys=[(key, "ascending") for key in ("hash", "name", "line")])
    tokens = np.cumsum(_lengths(hashed["source"])[places.to_numpy()])
    return hashed.take(places[: int(np.searchsorted(tokens, wanted)) + 1])


def _lengths(sentences: pa.ChunkedArray) -> IntArray:
    spaces = pc.count_substring(sentences, " ").to_numpy()
    return np.where(pc.equal(sentences, "").to_numpy(), 0, spaces + 1).astype(np.int64)


def _record(model: LanguageModel) -> Mapping[str, object]:
    return {
        "ngrams": [len(order.word) for order in model.orders],
        "discounts": [[round(amount, 9) for amount in order.discounts] for order in model.orders],
        "fallbacks": list(model.fallbacks),  # orders whose discounts could not be estimated
    }


def _replaced(text: pa.ChunkedArray, vocabulary: Sequence[str]) -> tuple[list[str], IntArray]:
    """The sentences with `[UNK]` for every word outside the vocabulary, and their lengths."""
    ids, lengths = number(text, vocabulary)
    known = pa.array((*RESERVED, *vocabulary)).take(pa.array(ids))
    ends = np.concatenate(([0], np.cumsum(lengths)))
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(ends), known), " ").to_pylist(), lengths


def _cross_entropy(path: Path, sentences: Sequence[str], lengths: IntArray) -> IntArray:
    """Micro-bits a token, rounded half to even."""
    score = _load(path, path.stat().st_mtime_ns)
    log10 = np.fromiter(map(score, sentences), np.float64, len(sentences))
    return np.rint(-log10 * _MICROBITS / (lengths + 1)).astype(np.int64)


@functools.lru_cache(maxsize=len(MODELS))
def _load(path: Path, changed: int) -> Callable[[str], float]:
    """The scorer of a model: log10 of a sentence with `<s>` and `</s>`.

    KenLM only adds the float32 values of the file: equal on every processor. `changed` tells a file
    replaced in place from the one loaded before.
    """
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    model = kenlm.Model(str(path), config)
    return lambda sentence: model.score(sentence, bos=True, eos=True)


def _within(ranked: IntArray, target_words: IntArray, budget: Budget) -> int:
    """How many of the rows of `ranked`, best first, are within the budget."""
    if budget.words is not None:
        return int(
            np.searchsorted(np.cumsum(target_words[ranked], dtype=np.int64), budget.words, side="right")
        )
    if budget.pairs is not None:
        return min(budget.pairs, len(ranked))
    if budget.share is not None:
        return int(Decimal(str(budget.share)) * len(ranked))  # exact: 0.29 of 100 is 29
    return len(ranked)


def _cut(
    kept: npt.NDArray[np.bool_], cut: IntArray, ranked: IntArray, count: int, difference: IntArray
) -> None:
    """Clear in `kept` the rows of `ranked` after the first `count`; `cut` becomes the last of these differences."""
    kept[ranked[count:]] = False
    if count:
        cut[ranked[count:]] = difference[ranked[count - 1]]
