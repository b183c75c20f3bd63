import json
from pathlib import Path

import numpy as np
import pytest

from rnnsearch.pipeline.bleu import COLUMNS, EvaluationError, bleu, scores, sentence_statistics, statistics

GOLDEN = Path(__file__).parents[1] / "golden"
SHARED = Path(__file__).parents[2].parent / "shared" / "golden" / "bleu"


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def line(hypotheses: list[str], references: list[str]) -> str:
    return str(bleu(statistics(hypotheses, references)))


def test_made_up_text_scores_as_multi_bleu_prints_it() -> None:
    expected = json.loads((GOLDEN / "bleu_expected.json").read_text())
    ours, theirs = read_lines(GOLDEN / "bleu_hypothesis.txt"), read_lines(GOLDEN / "bleu_reference.txt")
    assert line(ours, theirs) == expected["all"]
    assert line(ours[:50], theirs[:50]) == expected["first_50"]
    assert line(theirs, theirs) == expected["reference_against_itself"]
    assert line(["[UNK] [UNK] [UNK] [UNK]"] * 5, theirs[:5]) == expected["unk_only"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="golden sentences of others lie beside the checkout")
def test_real_text_scores_as_multi_bleu_prints_it() -> None:
    expected = json.loads((SHARED / "expected.json").read_text())["expected"]
    ours, theirs = read_lines(SHARED / "hypothesis.fr"), read_lines(SHARED / "reference.fr")
    assert line(ours, theirs) == expected["all"]
    assert line(ours[:100], theirs[:100]) == expected["first_100"]
    assert line(theirs, theirs) == expected["reference_against_itself"]
    assert line(["[UNK] [UNK] [UNK] [UNK]"] * 10, theirs[:10]) == expected["all_unk"]


def test_an_ngram_matches_no_more_often_than_the_reference_has_it() -> None:
    assert sentence_statistics("the the the the", "the cat the dog") == (2, 0, 0, 0, 4, 3, 2, 1, 4, 4)
    assert sentence_statistics("a b a b", "a b a b a") == (4, 3, 2, 1, 4, 3, 2, 1, 4, 5)
    assert sentence_statistics("a b", "c") == (0, 0, 0, 0, 2, 1, 0, 0, 2, 1)


def test_only_an_ordinary_space_separates_tokens() -> None:
    spaced = "10\u00a0000 a\u3000b c\u2028d e\x85f g"
    assert sentence_statistics(spaced, spaced)[8:] == (5, 5)
    assert sentence_statistics("10 000", "10\u00a0000")[0] == 0


def test_unknown_never_matches_not_even_itself() -> None:
    # protocol trap 42: in the reference stand real words, but were `[UNK]` there, it would be no match either.
    assert bleu(statistics(["[UNK] [UNK] [UNK] [UNK]"], ["rare words stand here"])).score == 0
    assert sentence_statistics("[UNK] [UNK] [UNK] [UNK]", "[UNK] [UNK] [UNK] [UNK]") == (
        0,
        0,
        0,
        0,
        4,
        3,
        2,
        1,
        4,
        4,
    )
    assert sentence_statistics("a [UNK] b c", "a [UNK] b c") == (3, 1, 0, 0, 4, 3, 2, 1, 4, 4)


def test_a_score_is_zero_where_an_order_has_no_match_and_still_tells_its_counts() -> None:
    found = bleu(statistics(["a b c x", "d"], ["a b c y", "d"]))
    assert found.score == 0
    assert found.matches == (4, 2, 1, 0)
    assert found.totals == (5, 3, 2, 1)
    assert str(found) == "BLEU = 0.00, 80.0/66.7/50.0/0.0 (BP=1.000, ratio=1.000, hyp_len=5, ref_len=5)"


def test_empty_output_is_defined() -> None:
    # protocol trap 40: multi-bleu divides by zero here.
    found = bleu(statistics(["", ""], ["a b", "c"]))
    assert (found.score, found.brevity_penalty, found.hypothesis_words, found.reference_words) == (0, 0, 0, 3)
    assert str(found) == "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=3)"


def test_empty_references_print_as_multi_bleu_does() -> None:
    assert line(["a"], [""]) == "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"
    assert line([], []) == "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"


def test_unequal_numbers_of_lines_are_an_error_that_names_both() -> None:
    with pytest.raises(EvaluationError, match="2 hypotheses for 3 references"):
        statistics(["a", "b"], ["a", "b", "c"])


def test_only_a_short_output_is_penalised() -> None:
    reference = "a b c d e f g h"
    assert bleu(statistics(["a b c d"], [reference])).score == pytest.approx(100 * np.exp(1 - 2))
    assert bleu(statistics([reference + " i"], [reference])).brevity_penalty == 1


def test_many_corpora_score_as_each_alone() -> None:
    ours, theirs = read_lines(GOLDEN / "bleu_hypothesis.txt"), read_lines(GOLDEN / "bleu_reference.txt")
    rows = statistics(ours, theirs)
    assert rows.shape == (200, COLUMNS)
    sums = np.array([rows[:50].sum(axis=0), rows[50:].sum(axis=0), np.zeros(COLUMNS), rows.sum(axis=0)])
    expected = [bleu(rows[:50]).score, bleu(rows[50:]).score, 0.0, bleu(rows).score]
    np.testing.assert_allclose(scores(sums), expected, rtol=1e-12)
