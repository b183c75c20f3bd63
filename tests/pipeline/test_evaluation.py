import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rnnsearch.pipeline.bleu import EvaluationError, bleu, statistics
from rnnsearch.pipeline.config import EvaluateConfig, SearchConfig, TokenizeConfig
from rnnsearch.pipeline.evaluation import evaluate, sentence_statistics
from rnnsearch.pipeline.external import external_hypotheses
from rnnsearch.pipeline.overlap import OVERLAP
from rnnsearch.pipeline.schemas import HYPOTHESES, PAIRS, SENTENCES, SHORTLIST, UNK
from rnnsearch.pipeline.scores import bleu_statistics, check_escapes, compare_systems, signature, subset

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIG = EvaluateConfig(bootstrap_samples=50)
TOKENIZE = TokenizeConfig()
NO_OVERLAP = OVERLAP.empty_table()
SEARCH = SearchConfig.model_validate({"beam": 12, "normalize": True, "unknown": "allow", "n_best": 1})


def make_pairs(sides: list[tuple[str, str]]) -> pa.Table:
    columns = {
        "corpus": pa.array(["test"] * len(sides), pa.string()).dictionary_encode(),
        "line": pa.array(range(len(sides)), pa.int64()),
        "key": pa.nulls(len(sides), pa.string()),
        "source": pa.array([source for source, _ in sides], pa.string()),
        "target": pa.array([target for _, target in sides], pa.string()),
    }
    return pa.table(columns).cast(PAIRS)


def make_hypotheses(tokens: pa.Table, outputs: list[str], **columns: list[Any]) -> pa.Table:
    (table,) = external_hypotheses(outputs, [tokens])
    for name, values in columns.items():
        kind = HYPOTHESES.field(name)
        table = table.set_column(HYPOTHESES.get_field_index(name), kind, pa.array(values, kind.type))
    return table


def shortlist(words: str) -> pa.Table:
    return pa.table({"word": pa.array(words.split(), pa.string())}, schema=SHORTLIST)


TOKENS = make_pairs(
    [
        ("the cat sleeps here .", "le chat dort ici ."),
        ("the axolotl sleeps here .", "le chat dort ici ."),  # unknown in the source only
        ("the cat sleeps here .", "l' axolotl dort ici ."),  # in the reference only
        ("an axolotl", "un axolotl ."),  # in both
        ("the cat eats .", "le chat mange ."),
    ]
)
RAW = make_pairs(
    [
        ("The cat sleeps here.", "le chat dort ici."),
        ("The axolotl sleeps here.", "le chat dort ici."),
        ("The cat sleeps here.", "l'axolotl dort ici."),
        ("An axolotl", "un axolotl."),
        ("The cat eats.", "le chat mange."),
    ]
)
SOURCE = shortlist("the . cat sleeps here eats an")
TARGET = shortlist(". le chat dort ici un l' mange")
OUTPUTS = [
    "le chat dort ici .",
    f"le {UNK} dort ici .",
    f"l' {UNK} dort ici .",
    f"un {UNK} .",
    "le chat mange .",
]
OUTPUTS_NO_UNK = [
    "le chat dort ici .",
    "le chat dort ici .",
    "l' chat dort ici .",
    "un chat .",
    "le chat dort .",
]


def row_statistics(
    outputs: list[str] = OUTPUTS,
    outputs_no_unk: list[str] = OUTPUTS_NO_UNK,
    tokenize: TokenizeConfig = TOKENIZE,
    first: int = 0,
    last: int | None = None,
    overlap: pa.Table = NO_OVERLAP,
    **columns: list[Any],
) -> pa.Table:
    part = slice(first, last)
    tables = {
        "hypotheses": make_hypotheses(TOKENS, outputs, **columns),
        "no_unk": make_hypotheses(TOKENS, outputs_no_unk, fallback=[False, False, False, True, False]),
        "tokens": TOKENS,
        "raw": RAW,
    }
    chosen = pa.array(range(len(outputs))[part], pa.int64())
    rows = {name: table.take(chosen) for name, table in tables.items()}
    return sentence_statistics(
        **rows, source=SOURCE, target=TARGET, overlap=overlap, config=CONFIG, tokenize=tokenize
    )


def scores_of(*partials: pa.Table) -> dict[str, Any]:
    return json.loads(evaluate(partials, CONFIG, TOKENIZE, SEARCH).scores)


def test_sentences_follow_their_schema_and_keep_every_row_in_order() -> None:
    sentences = evaluate([row_statistics()], CONFIG, TOKENIZE, SEARCH).sentences
    assert sentences.schema.equals(SENTENCES, check_metadata=True)
    assert sentences["line"].to_pylist() == [0, 1, 2, 3, 4]
    assert sentences["hypothesis"].to_pylist() == OUTPUTS
    assert sentences["text"].to_pylist()[2] == f"l' {UNK} dort ici."
    assert sentences["reference_text"].to_pylist() == RAW["target"].to_pylist()


def test_shards_cut_elsewhere_give_equal_bytes() -> None:
    whole = evaluate([row_statistics()], CONFIG, TOKENIZE, SEARCH)
    parts = evaluate(
        [row_statistics(last=1), row_statistics(first=1, last=1), row_statistics(first=1)],
        CONFIG,
        TOKENIZE,
        SEARCH,
    )
    assert parts.scores == whole.scores
    assert parts.sentences.equals(whole.sentences)


def test_the_subset_without_unknown_words_looks_at_both_sides_and_at_the_text_only() -> None:
    # protocol trap 43; the hypothesis may hold [UNK] or not.
    sentences = row_statistics([UNK] * 5)
    assert subset(sentences, "all")[0].tolist() == [True] * 5
    assert subset(sentences, "no-unk")[0].tolist() == [True, False, False, False, True]
    assert subset(sentences, "no-unk-allowed")[0].tolist() == [True, False, False, False, True]


def test_each_subset_scores_its_own_sentences_and_outputs() -> None:
    found = scores_of(row_statistics())["subsets"]
    references = TOKENS["target"].to_pylist()
    assert found["all"]["bleu"]["line"] == str(bleu(statistics(OUTPUTS, references)))
    assert found["no-unk-allowed"]["bleu"]["line"] == str(
        bleu(statistics([OUTPUTS[0], OUTPUTS[4]], [references[0], references[4]]))
    )
    assert found["no-unk"]["bleu"]["line"] == str(
        bleu(statistics([OUTPUTS_NO_UNK[0], OUTPUTS_NO_UNK[4]], [references[0], references[4]]))
    )
    assert [found[name]["sentences"] for name in ("all", "no-unk", "no-unk-allowed")] == [5, 2, 2]
    assert found["no-unk-allowed"]["bleu"]["score"] == 100


def test_every_score_says_how_it_was_made() -> None:
    found = scores_of(row_statistics())
    assert found["subsets"]["no-unk"]["bleu"]["signature"] == (
        "bleu|nrefs:1|case:mixed|tok:moses-fr-unescaped|sep:U+0020|smooth:none|unk:never-matches"
        "|subset:no-unk|n:2|beam:12|normalize:yes|unknown:forbid"
    )
    assert found["subsets"]["all"]["bleu"]["signature"].endswith(
        "|subset:all|n:5|beam:12|normalize:yes|unknown:allow"
    )
    detokenised = found["subsets"]["all"]["sacrebleu"]
    assert detokenised["bleu"]["signature"].startswith(
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )
    assert detokenised.keys() == {"bleu", "chrf", "ter"}
    assert "|subset:source-words=1-10|n:5|" in found["by_length"][0]["signature"]
    assert signature("all", 3, TokenizeConfig(pretokenized=True), {}).endswith("|subset:all|n:3")
    assert "moses-fr-escaped" in signature("all", 3, TokenizeConfig(escape=True), {})


def test_references_against_themselves_score_100_by_every_measure() -> None:
    # protocol trap 41.
    references = TOKENS["target"].to_pylist()
    found = scores_of(row_statistics(references, references))["subsets"]
    for scored in found.values():
        assert scored["bleu"]["score"] == scored["bleu"]["low"] == scored["bleu"]["high"] == 100
        assert scored["sacrebleu"]["bleu"]["score"] == scored["sacrebleu"]["chrf"]["score"] == 100
        assert scored["sacrebleu"]["ter"]["score"] == 0


def test_unknown_never_matches_in_running_text_either() -> None:
    bracketed = make_pairs([("a", "[ UNK ] [ UNK ]")])
    tables = {
        "tokens": bracketed,
        "raw": bracketed,
        "source": SOURCE,
        "target": TARGET,
        "overlap": NO_OVERLAP,
    }
    output = make_hypotheses(bracketed, [f"{UNK} {UNK}"])
    rows = sentence_statistics(hypotheses=output, no_unk=output, **tables, config=CONFIG, tokenize=TOKENIZE)
    found = scores_of(rows)["subsets"]["all"]
    assert found["bleu"]["matches"] == [0, 0, 0, 0]
    assert found["sacrebleu"]["chrf"]["score"] == 0


def test_an_empty_translation_keeps_its_line() -> None:
    # protocol trap 39: 5 sources, the third yields nothing.
    outputs = [*OUTPUTS[:2], "", *OUTPUTS[3:]]
    rows = row_statistics(outputs, outputs)
    assert rows["hypothesis"].to_pylist() == outputs
    assert rows["text"].to_pylist()[2] == ""
    found = scores_of(rows)
    assert found["behaviour"]["empty_outputs"] == 1
    assert found["subsets"]["all"]["bleu"]["line"] == str(
        bleu(statistics(outputs, TOKENS["target"].to_pylist()))
    )


def test_output_of_nothing_at_all_is_scored_as_zero_with_its_counts() -> None:
    # protocol trap 40.
    found = scores_of(row_statistics([""] * 5, [""] * 5))["subsets"]["all"]
    assert (found["bleu"]["score"], found["bleu"]["low"], found["bleu"]["high"]) == (0, 0, 0)
    assert (found["bleu"]["hypothesis_words"], found["bleu"]["reference_words"]) == (0, 22)
    assert found["bleu"]["totals"] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["hypotheses", "no_unk", "raw"])
def test_missing_rows_are_an_error_with_both_counts(name: str) -> None:
    hypotheses = make_hypotheses(TOKENS, OUTPUTS)
    tables = {
        "hypotheses": hypotheses,
        "no_unk": hypotheses,
        "raw": RAW,
        "source": SOURCE,
        "target": TARGET,
        "overlap": NO_OVERLAP,
    }
    tables[name] = tables[name].slice(1)
    with pytest.raises(EvaluationError, match="4 rows for 5 test sentences"):
        sentence_statistics(**tables, tokens=TOKENS, config=CONFIG, tokenize=TOKENIZE)


def test_rows_in_another_order_are_an_error() -> None:
    hypotheses = make_hypotheses(TOKENS, OUTPUTS)
    moved = hypotheses.take([1, 0, 2, 3, 4])
    with pytest.raises(EvaluationError, match=r"a row is \('test', 1\) where"):
        sentence_statistics(
            hypotheses=moved, no_unk=hypotheses, tokens=TOKENS, raw=RAW, source=SOURCE, target=TARGET,
            overlap=NO_OVERLAP, config=CONFIG, tokenize=TOKENIZE,
        )  # fmt: skip


def test_an_empty_test_set_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="no test sentence"):
        evaluate([row_statistics(last=0)], CONFIG, TOKENIZE, SEARCH)


def test_an_empty_subset_has_no_score_of_running_text() -> None:
    found = scores_of(row_statistics(first=1, last=4))["subsets"]["no-unk"]
    assert (found["sentences"], found["bleu"]["score"], found["sacrebleu"]) == (0, 0, {})


@pytest.mark.parametrize(
    ("ours", "theirs", "escape"),
    [
        (["l&apos; eau"], ["l' eau"], False),
        (["l' eau"], ["l&apos; eau"], True),
        (["l' eau"], ["l&apos; eau"], None),
        (["&quot; a &quot;", UNK], ['" a "'], None),
        (["a &amp; b"], ["a & b"], False),
        (["l&apos; eau", "d&apos; eau", "l' eau"], ["l' eau"] * 3, False),  # one line proves nothing
    ],
)
def test_escaped_text_against_unescaped_is_caught(
    ours: list[str], theirs: list[str], escape: bool | None
) -> None:
    # protocol trap 41.
    with pytest.raises(EvaluationError, match=r"tokenize\.escape"):
        check_escapes(ours, theirs, escape)


@pytest.mark.parametrize(
    ("ours", "theirs", "escape"),
    [
        (["l' eau"], ["d' eau"], False),
        (["l&apos; eau", UNK], ["d&apos; eau"], True),
        (["eau", UNK], ["l&apos; eau"], True),  # nothing to escape: no sign either way
        (["eau", UNK], ["l' eau"], None),
        (["l' entité &amp; &lt;"], ["l' entité"], False),  # a text about entities
        (["eau", "&amp;", "feu"], ["l' eau", "d' eau", "l' air"], False),  # an output invents one,
        (["eau", "feu"], ["write &amp; here", "feu"], False),  # the references hold one
        (["l&apos; eau", "a | b"], ["l&apos; eau", "d&apos; eau"], True),
        ([], [], None),
    ],
)
def test_text_that_may_be_of_one_kind_is_not_refused(
    ours: list[str], theirs: list[str], escape: bool | None
) -> None:
    check_escapes(ours, theirs, escape)


def stands(*texts: tuple[str, str]) -> pa.Table:
    """OVERLAP of these (side, text in normal form)."""
    rows = [
        {"side": side, "text": text, "words": 4, "near": False, "pairs": 2, "corpus": "c", "line": 7}
        for side, text in texts
    ]
    return pa.Table.from_pylist(rows, schema=OVERLAP)


def test_what_stands_in_training_is_counted_by_side_and_scored_apart() -> None:
    known = stands(("source", "thecatsleepshere"), ("target", "unaxolotl"))
    rows = row_statistics(overlap=known)
    assert rows["source_in_training"].to_pylist() == [True, False, True, False, False]
    assert rows["reference_in_training"].to_pylist() == [False, False, False, True, False]
    found = scores_of(rows)
    assert found["in_training"] == {"sources": 2, "references": 1, "sentences": 3}
    fresh = found["subsets"]["not-in-training"]
    assert fresh["sentences"] == 2
    references = TOKENS["target"].to_pylist()
    assert fresh["bleu"]["line"] == str(
        bleu(statistics([OUTPUTS[1], OUTPUTS[4]], [references[1], references[4]]))
    )


def test_test_sentences_that_repeat_an_earlier_one_are_counted() -> None:
    assert scores_of(row_statistics(), row_statistics(first=1, last=3))["repeated"] == 2


def test_a_test_set_of_fresh_text_has_no_second_score() -> None:
    found = scores_of(row_statistics())
    assert found["in_training"] == {"sources": 0, "references": 0, "sentences": 0}
    assert set(found["subsets"]) == {"all", "no-unk", "no-unk-allowed"}


def test_empty_test_segments_are_scored_in_their_places_and_counted() -> None:
    tokens = make_pairs([("a b", "c d"), ("", "c"), ("a", ""), ("", "")])
    output = make_hypotheses(tokens, ["c d", "", "c", ""])
    rows = sentence_statistics(
        hypotheses=output, no_unk=output, tokens=tokens, raw=tokens, source=SOURCE, target=TARGET,
        overlap=NO_OVERLAP, config=CONFIG, tokenize=TOKENIZE,
    )  # fmt: skip
    found = scores_of(rows)
    assert (found["sentences"], found["empty"]) == (4, {"sources": 2, "references": 2})
    assert found["repeated"] == 0
    assert found["subsets"]["all"]["bleu"]["reference_words"] == 3
    assert found["subsets"]["all"]["bleu"]["hypothesis_words"] == 3


def test_escaped_output_is_caught_in_an_evaluation() -> None:
    outputs = [line.replace("'", "&apos;") for line in OUTPUTS]
    with pytest.raises(EvaluationError, match="escaped and the references plain"):
        evaluate([row_statistics(outputs)], CONFIG, TOKENIZE, SEARCH)


def test_each_length_is_scored_by_bin_and_both_ways_of_adding_up() -> None:
    config = EvaluateConfig(bootstrap_samples=20, length_bins=(2, 4), unknown_bins=(0,), rank_bins=(5,))
    found = json.loads(evaluate([row_statistics()], config, TOKENIZE, SEARCH).scores)
    sizes = {
        name: [(part["low"], part["high"], part["sentences"]) for part in found[name]]
        for name in ("by_length", "at_most_length", "at_least_length", "by_unknown", "by_rarest")
    }
    assert sizes["by_length"] == [(1, 2, 1), (3, 4, 1), (5, None, 3)]
    assert sizes["at_most_length"] == [(1, 2, 1), (1, 4, 2), (1, None, 5)]
    assert sizes["at_least_length"] == [(1, None, 5), (3, None, 4), (5, None, 3)]
    assert sizes["by_unknown"] == [(0, 0, 3), (1, None, 2)]
    assert sizes["by_rarest"] == [(1, 5, 2), (6, None, 1)]  # sentences with unknown words have no rank
    assert found["at_most_length"][-1]["bleu"] == found["subsets"]["all"]["bleu"]["score"]
    assert found["by_length"][1]["bleu"] == 100


def test_a_bin_without_sentences_has_no_score() -> None:
    assert scores_of(row_statistics())["by_length"][-1]["bleu"] is None


def test_unknown_words_are_counted_in_output_source_and_reference() -> None:
    found = scores_of(row_statistics())["behaviour"]
    assert found["unknown_output"] == round(3 / 22, 6)
    assert found["unknown_source"] == round(2 / 21, 6)
    assert found["unknown_reference"] == round(2 / 22, 6)
    assert (found["fallbacks"], found["unfinished"], found["unfinished_no_unk"]) == (1, 0, 0)
    assert found["attention"] is None
    assert found["lengths"]["source"] == {"counts": [0, 0, 1, 0, 1, 3, *[0] * 95], "mean": 4.2}
    assert found["lengths"]["output"]["mean"] == found["lengths"]["reference"]["mean"] == 4.4


def test_attention_is_measured_over_target_words() -> None:
    sources = [len(line.split(" ")) + 1 for line in TOKENS["source"].to_pylist()]
    sure = [
        [[1.0] + [0.0] * (size - 1)] * len(line.split(" "))
        for size, line in zip(sources, OUTPUTS, strict=True)
    ]
    found = scores_of(row_statistics(alignment=sure))["behaviour"]["attention"]
    assert found["entropy"] == 0
    assert found["entropy_by_position"] == [0.0] * 5
    assert (found["least_weight"], found["most_weight"]) == (1, 1)
    assert found["dropped_words"] == round(16 / 21, 6)  # all but the first word of each source
    assert found["repeated_words"] == round(5 / 21, 6)
    even = [[[1 / size] * size] * len(line.split(" ")) for size, line in zip(sources, OUTPUTS, strict=True)]
    mean = np.average([np.log(size) for size in sources], weights=[len(line.split(" ")) for line in OUTPUTS])
    found = scores_of(row_statistics(alignment=even))["behaviour"]["attention"]
    assert found["entropy"] == pytest.approx(mean, abs=1e-5)
    parts = [(part["sentences"], part["entropy"]) for part in found["entropy_by_length"][:2]]
    assert parts == [(5, found["entropy"]), (0, 0)]


def test_the_row_of_the_end_of_sentence_is_no_target_word() -> None:
    sources = [len(line.split(" ")) + 1 for line in TOKENS["source"].to_pylist()]
    plain = [
        [[1.0] + [0.0] * (size - 1)] * len(line.split(" "))
        for size, line in zip(sources, OUTPUTS, strict=True)
    ]
    ended = [[*rows, [1 / size] * size] for size, rows in zip(sources, plain, strict=True)]
    assert scores_of(row_statistics(alignment=ended)) == scores_of(row_statistics(alignment=plain))


def test_weight_lost_to_padding_shows() -> None:
    sources = [len(line.split(" ")) + 1 for line in TOKENS["source"].to_pylist()]
    lossy = [
        [[0.8 / size] * size] * len(line.split(" ")) for size, line in zip(sources, OUTPUTS, strict=True)
    ]
    assert scores_of(row_statistics(alignment=lossy))["behaviour"]["attention"][
        "least_weight"
    ] == pytest.approx(0.8)


def test_a_transposed_alignment_is_an_error() -> None:
    # protocol trap 45.
    sources = [len(line.split(" ")) + 1 for line in TOKENS["source"].to_pylist()]
    turned = [[[1.0] * len(line.split(" "))] * size for size, line in zip(sources, OUTPUTS, strict=True)]
    with pytest.raises(EvaluationError, match="rows are target words"):
        row_statistics(alignment=turned)


def test_two_systems_are_compared_on_a_subset() -> None:
    good, bad = row_statistics(), row_statistics(OUTPUTS_NO_UNK, OUTPUTS_NO_UNK)
    found = compare_systems(good, bad, "no-unk-allowed", CONFIG)
    assert found.difference == pytest.approx(
        bleu(bleu_statistics(good, "no-unk-allowed")).score
        - bleu(bleu_statistics(bad, "no-unk-allowed")).score
    )
    assert found.difference > 0
    with pytest.raises(EvaluationError, match="the second system: 4 rows for 5"):
        compare_systems(good, bad.slice(1), "all", CONFIG)


def test_pretokenised_references_are_put_together_again() -> None:
    given = TokenizeConfig(pretokenized=True)
    rows = row_statistics(tokenize=given)
    assert rows["reference_text"].to_pylist()[2] == "l'axolotl dort ici."
    assert (
        "tok:given"
        in json.loads(evaluate([rows], CONFIG, given, SEARCH).scores)["subsets"]["all"]["bleu"]["signature"]
    )


def test_only_references_that_were_given_as_tokens_are_put_together_again() -> None:
    rows = row_statistics(tokenize=TokenizeConfig(pretokenized_corpora=("test",)))
    assert rows["reference_text"].to_pylist()[0] == "le chat dort ici."
    other = TokenizeConfig(pretokenized_corpora=("other",))
    assert row_statistics(tokenize=other)["reference_text"].to_pylist() == RAW["target"].to_pylist()
    assert "tok:moses-fr-unescaped+given:other|" in signature("all", 3, other, {})


@pytest.mark.parametrize("bounds", [(20, 10), (10, 10)])
def test_bounds_that_do_not_ascend_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        EvaluateConfig(length_bins=bounds)
