"""The scores of one system, from the rows of SENTENCES. All sums, so that any subset can be scored.

Three subsets make Table 1's two columns and what stands between them: `all` (every test sentence, UNK
allowed), `no-unk` (no unknown word in source and reference, UNK forbidden to the model) and `no-unk-allowed`
(the same sentences, UNK allowed). A fourth, `not-in-training`, leaves out the sentences a side of which stands in
the training data. Numbers are rounded: `log` and `exp` differ in their last bits between
processors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from rnnsearch.pipeline.bleu import COLUMNS, Bleu, EvaluationError, bleu
from rnnsearch.pipeline.config import EvaluateConfig, SearchConfig, TokenizeConfig
from rnnsearch.pipeline.normal_form import letters
from rnnsearch.pipeline.observables import lengths, mean_by_position, rate
from rnnsearch.pipeline.schemas import UNK
from rnnsearch.pipeline.sieve import column
from rnnsearch.pipeline.significance import Comparison, bootstrap, compare, interval
from rnnsearch.pipeline.subsets import Range, at_least, at_most, bins, not_in_training, without_unknown

Mask = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Json = dict[str, Any]

SUBSETS_OF_FRESH_TEXT = (
    "all",
    "no-unk",
    "no-unk-allowed",
)  # where nothing of the test set stands in training
SUBSETS = (*SUBSETS_OF_FRESH_TEXT, "not-in-training")
UNKNOWN_MARK = "\ufffd"  # for [UNK] in running text: one character that no reference holds
MICRO = 1_000_000
_POSITIONS = 60  # target positions with a mean entropy
_LONGEST = 100  # words; longer sentences are counted with these
_ENTITY = re.compile(r"&(?:amp|apos|quot|lt|gt|#124|#91|#93);")  # Moses' escapes
_ESCAPED = re.compile(r"[&'\"<>|\[\]]")  # what they stand for
_SIDES = ("source", "reference")


class _Escaping(NamedTuple):
    """How many lines have Moses' escapes only, and how many have characters that it would escape."""

    escaped: int
    plain: int


def subset(sentences: pa.Table, name: str) -> tuple[Mask, str]:
    """The rows of a subset, one of SUBSETS, and the suffix of its columns."""
    if name == "all":
        return np.ones(sentences.num_rows, np.bool_), ""
    if name == "not-in-training":
        return not_in_training(*(_flags(sentences, f"{side}_in_training") for side in _SIDES)), ""
    free = without_unknown(*(sentences[side].to_numpy() for side in ("source_unknown", "reference_unknown")))
    return free, "_no_unk" if name == "no-unk" else ""


def bleu_statistics(sentences: pa.Table, name: str) -> IntArray:
    """The BLEU statistics of a subset: a row for each of its sentences."""
    mask, suffix = subset(sentences, name)
    return _statistics(sentences, suffix)[mask]


def compare_systems(first: pa.Table, second: pa.Table, name: str, config: EvaluateConfig) -> Comparison:
    """Test the difference of two systems on a subset, from their SENTENCES.

    Raises EvaluationError unless both have the same rows.
    """
    same_rows(second, first, "the second system")
    return compare(
        bleu_statistics(first, name), bleu_statistics(second, name), config.bootstrap_samples, config.seed
    )


def signature(subset: str, count: int, tokenize: TokenizeConfig, search: Mapping[str, object]) -> str:
    """All that decides a tokenised BLEU, as `key:value|…`. `search` has the search's settings, if known."""
    if tokenize.pretokenized:
        tokenizer = "given"
    else:
        tokenizer = f"moses-{tokenize.target_language}-{'escaped' if tokenize.escape else 'unescaped'}"
    if tokenize.pretokenized_corpora and not tokenize.pretokenized:
        tokenizer += f"+given:{','.join(tokenize.pretokenized_corpora)}"
    settings = {key: value for key, value in search.items() if key != "n_best"}
    if search:
        settings["unknown"] = "forbid" if subset == "no-unk" else "allow"
    fixed = f"bleu|nrefs:1|case:mixed|tok:{tokenizer}|sep:U+0020|smooth:none|unk:never-matches"
    chosen = (f"{key}:{_spelled(value)}" for key, value in sorted(settings.items()))
    return "|".join([fixed, f"subset:{subset}|n:{count}", *chosen])


def seen(sentences: pa.Table) -> Json:
    """How many sentences are empty, repeat an earlier one, and stand in the training data, by side and in all."""
    pairs = pc.binary_join_element_wise(*(letters(column(sentences, side)) for side in _SIDES), "\n")
    source, reference = (_flags(sentences, f"{side}_in_training") for side in _SIDES)
    return {
        "empty": {f"{side}s": int(pc.sum(pc.equal(sentences[side], "")).as_py() or 0) for side in _SIDES},
        "repeated": sentences.num_rows - len(pairs.unique()),
        "in_training": {
            "sources": int(source.sum()),
            "references": int(reference.sum()),
            "sentences": int((source | reference).sum()),
        },
    }


def check_escapes(hypotheses: Sequence[str], references: Sequence[str], escape: bool | None) -> None:
    """Refuse output with Moses' escapes beside references without, or the other way round.

    `escape` is as declared for the references; None where it must be seen from them. Single entities prove nothing: a
    text may speak of `&amp;`. Output is refused where more of its lines contradict than agree, and at least half as
    many as there are such references.
    """
    ours, theirs = _escaping(hypotheses), _escaping(references)
    escaped = theirs.escaped > theirs.plain if escape is None else escape
    against, agreeing = (ours.plain, ours.escaped) if escaped else (ours.escaped, ours.plain)
    expected = theirs.escaped if escaped else theirs.plain
    if expected and against > agreeing and 2 * against >= expected:
        names = ("plain", "escaped") if escaped else ("escaped", "plain")
        raise EvaluationError(
            f"the hypotheses are {names[0]} and the references {names[1]}: one has &apos; where the other has '; "
            f"tokenise both with the same setting of tokenize.escape"
        )


def subset_score(
    sentences: pa.Table, name: str, config: EvaluateConfig, tokenize: TokenizeConfig, search: SearchConfig
) -> Json:
    """The scores of a subset, with their signatures; no `sacrebleu` scores where it is empty."""
    mask, suffix = subset(sentences, name)
    rows = _statistics(sentences, suffix)[mask]
    found = _bleu_json(bleu(rows), rows, config)
    found["signature"] = signature(name, len(rows), tokenize, search.model_extra or {})
    chosen = sentences.filter(pa.array(mask))
    texts = [line.replace(UNK, UNKNOWN_MARK) for line in chosen[f"text{suffix}"].to_pylist()]
    return {
        "sentences": len(rows),
        "bleu": found,
        "sacrebleu": _sacrebleu(texts, chosen["reference_text"].to_pylist(), name, config),
    }


def _bleu_json(score: Bleu, rows: IntArray, config: EvaluateConfig) -> Json:
    around = interval(bootstrap(rows, config.bootstrap_samples, config.seed))
    return {
        "score": round(score.score, 4),
        "low": round(around.low, 4),  # 95%, by the bootstrap
        "high": round(around.high, 4),
        "precisions": [round(100 * precision, 4) for precision in score.precisions],
        "brevity_penalty": round(score.brevity_penalty, 6),
        "ratio": round(score.ratio, 6),
        "matches": list(score.matches),
        "totals": list(score.totals),
        "hypothesis_words": score.hypothesis_words,
        "reference_words": score.reference_words,
        "line": str(score),
    }


def _sacrebleu(texts: list[str], references: list[str], name: str, config: EvaluateConfig) -> Json:
    """Scores of running text; `force` only silences a warning about text that looks tokenised."""
    if not texts:
        return {}
    metrics = {"bleu": BLEU(force=True), "chrf": CHRF()}
    if config.translation_edit_rate:
        metrics["ter"] = TER()
    found: Json = {}
    for key, metric in metrics.items():
        score = metric.corpus_score(texts, [references])
        found[key] = {
            "score": round(score.score, 4),
            "signature": f"{metric.get_signature()}|unk:U+FFFD|subset:{name}|n:{len(texts)}",
        }
    return found


def breakdowns(
    sentences: pa.Table, config: EvaluateConfig, tokenize: TokenizeConfig, search: SearchConfig
) -> Json:
    """BLEU (All) by source length, three ways, by unknown source words, and by the rarest one's rank."""
    rows = _statistics(sentences, "")
    length, unknown, rarest = (
        sentences[name].to_numpy() for name in ("source_words", "source_unknown", "source_rarest")
    )

    def by(what: str, ranges: Sequence[Range], values: IntArray, among: Mask) -> list[Json]:
        found = []
        for span in ranges:
            part = rows[span.holds(values) & among]
            name = f"{what}={span.low}-{'' if span.high is None else span.high}"
            sign = signature(name, len(part), tokenize, search.model_extra or {})
            found.append({"low": span.low, "high": span.high} | _part(part, config) | {"signature": sign})
        return found

    every = np.ones(len(rows), np.bool_)
    return {
        "by_length": by("source-words", bins(config.length_bins), length, every),
        "at_most_length": by("source-words", at_most(config.length_bins), length, every),
        "at_least_length": by("source-words", at_least(config.length_bins), length, every),
        "by_unknown": by("unknown-source-words", bins(config.unknown_bins, first=0), unknown, every),
        "by_rarest": by("rarest-source-rank", bins(config.rank_bins), rarest, unknown == 0),
    }


def _part(rows: IntArray, config: EvaluateConfig) -> Json:
    if not len(rows):
        return {"sentences": 0, "bleu": None, "bleu_low": None, "bleu_high": None}
    around = interval(bootstrap(rows, config.bootstrap_samples, config.seed))
    return {
        "sentences": len(rows),
        "bleu": round(bleu(rows).score, 4),
        "bleu_low": round(around.low, 4),
        "bleu_high": round(around.high, 4),
    }


def behaviour(sentences: pa.Table, config: EvaluateConfig) -> Json:
    """How the translations look apart from their score: rates a token, and counts of sentences."""
    columns = ("source_words", "source_unknown", "reference_unknown", "output_unknown")
    values = {name: sentences[name].to_numpy() for name in (*columns, "stutters", "reference_stutters")}
    rows = _statistics(sentences, "")
    output_words, reference_words = rows[:, -2], rows[:, -1]
    count = sentences.num_rows
    return {
        "unknown_output": round(rate(values["output_unknown"], output_words), 6),  # a token
        "unknown_source": round(rate(values["source_unknown"], values["source_words"]), 6),
        "unknown_reference": round(rate(values["reference_unknown"], reference_words), 6),
        "stuttering_sentences": int((values["stutters"] > 0).sum()),
        "stutters": int(values["stutters"].sum()),
        "reference_stutters": int(values["reference_stutters"].sum()),
        "empty_outputs": int((output_words == 0).sum()),
        "unfinished": count - int(np.count_nonzero(sentences["finished"].to_numpy())),
        "unfinished_no_unk": count - int(np.count_nonzero(sentences["finished_no_unk"].to_numpy())),
        "fallbacks": int(np.count_nonzero(sentences["fallback"].to_numpy())),
        "lengths": {
            name: {"counts": list(found.counts), "mean": round(found.mean, 4)}
            for name, found in (
                ("source", lengths(values["source_words"], _LONGEST)),
                ("reference", lengths(reference_words, _LONGEST)),
                ("output", lengths(output_words, _LONGEST)),
            )
        },
        "attention": _attention(sentences, config),
    }


def _attention(sentences: pa.Table, config: EvaluateConfig) -> Json | None:
    """Means over target words, in nats; None for a system without alignments."""
    aligned = sentences.filter(sentences["entropies"].is_valid())
    if not aligned.num_rows:
        return None
    rows = aligned["entropies"].to_pylist()
    target_words = np.array([len(row) for row in rows])
    sums = np.array([sum(row) for row in rows])
    length, dropped, repeated, least, most = (
        aligned[name].to_numpy()
        for name in ("source_words", "dropped_words", "repeated_words", "least_weight", "most_weight")
    )
    by_length = []
    for span in bins(config.length_bins):
        inside = span.holds(length)
        mean = round(rate(sums[inside], target_words[inside]) / MICRO, 6)
        by_length.append(
            {"low": span.low, "high": span.high, "sentences": int(inside.sum()), "entropy": mean}
        )
    return {
        "entropy": round(rate(sums, target_words) / MICRO, 6),
        "entropy_by_position": [round(mean / MICRO, 6) for mean in mean_by_position(rows, _POSITIONS)],
        "entropy_by_length": by_length,
        "least_weight": int(least.min()) / MICRO,
        "most_weight": int(most.max()) / MICRO,
        "dropped_words": round(rate(dropped, length), 6),  # a source word
        "repeated_words": round(rate(repeated, length), 6),
    }


def same_rows(table: pa.Table, tokens: pa.Table, what: str) -> None:
    """Raise EvaluationError unless both tables hold the same (corpus, line), row by row."""
    if table.num_rows != tokens.num_rows:
        raise EvaluationError(
            f"{what}: {table.num_rows} rows for {tokens.num_rows} test sentences; translate them all"
        )
    for ours, theirs in zip(_identities(table), _identities(tokens), strict=True):
        if ours != theirs:
            raise EvaluationError(
                f"{what}: a row is {ours} where the test sentence is {theirs}; keep their order"
            )


def _identities(table: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(table["corpus"].to_pylist(), table["line"].to_pylist(), strict=True)


def _statistics(sentences: pa.Table, suffix: str) -> IntArray:
    flat = column(sentences, f"statistics{suffix}").flatten().to_numpy()
    return np.asarray(flat.reshape(-1, COLUMNS), np.int64)


def _flags(sentences: pa.Table, name: str) -> Mask:
    return np.asarray(column(sentences, name).to_numpy(zero_copy_only=False), np.bool_)


def _escaping(lines: Sequence[str]) -> _Escaping:
    escaped = plain = 0
    for line in lines:
        if _ESCAPED.search(_ENTITY.sub("", line.replace(UNK, ""))):
            plain += 1
        elif _ENTITY.search(line):
            escaped += 1
    return _Escaping(escaped, plain)


def _spelled(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
