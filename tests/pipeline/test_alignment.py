import numpy as np
import pytest

from rnnsearch.pipeline.alignment import (
    Gold,
    agreement,
    as_matrix,
    coverage,
    entropies,
    error_rate,
    hard_links,
    parse_gold,
    reverse,
)
from rnnsearch.pipeline.bleu import EvaluationError

WEIGHTS = np.array(
    [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.5, 0.0]]
)  # three target words, two source words, </s>


def test_gold_links_count_from_zero_and_a_sure_one_is_possible_too() -> None:
    assert parse_gold("0-0 12p3 2-1") == Gold(
        frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (12, 3), (2, 1)})
    )
    assert parse_gold("") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize("line", ["0:0", "-1-0", "1-", "p", "0-0  1-1", "0-0\t1-1", "1-2-3", "٣-1"])
def test_what_is_no_link_is_an_error(line: str) -> None:
    with pytest.raises(EvaluationError, match="is no link"):
        parse_gold(line)


def test_each_target_word_is_linked_with_its_heaviest_source_word_but_not_with_the_end() -> None:
    assert hard_links(WEIGHTS) == {(0, 0), (0, 2)}
    assert hard_links(np.zeros((0, 4))) == frozenset()


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    gold = [parse_gold("0-0 1p1"), parse_gold("0-1")]
    assert error_rate([frozenset({(0, 0)}), frozenset({(0, 1)})], gold) == 0
    assert (
        error_rate([frozenset({(0, 0), (1, 1)}), frozenset({(0, 1)})], gold) == 0
    )  # a possible link costs nothing
    assert error_rate([frozenset(), frozenset()], gold) == 1
    # |A| = 3, |S| = 2, |A and S| = 1, |A and P| = 2
    found = [frozenset({(0, 0), (1, 1), (5, 5)}), frozenset[tuple[int, int]]()]
    assert error_rate(iter(found), iter(gold)) == pytest.approx(1 - 3 / 5)
    assert error_rate([frozenset()], [parse_gold("")]) == 0


def test_unequal_numbers_of_alignments_are_an_error() -> None:
    with pytest.raises(EvaluationError, match="1 alignments for 2 gold lines"):
        error_rate([frozenset()], [parse_gold(""), parse_gold("")])


def test_two_directions_agree_by_their_common_links() -> None:
    forward = frozenset({(0, 0), (1, 2)})
    backward = frozenset({(0, 0), (2, 1)})  # (source, target) of the other direction
    assert agreement([forward], [reverse(backward)]) == 1
    assert agreement([forward], [backward]) == 0.5
    assert agreement([], []) == 1


def test_entropy_is_in_nats_and_zero_weights_add_nothing() -> None:
    found = entropies(np.array([[1.0, 0.0, 0.0, 0.0], [0.25] * 4, [0.5, 0.5, 0.0, 0.0]]))
    np.testing.assert_allclose(found, [0, np.log(4), np.log(2)])
    assert entropies(np.zeros((0, 3))).shape == (0,)


def test_coverage_counts_source_words_that_got_little_or_much_attention() -> None:
    assert coverage(np.array([[0.9, 0.1, 0.0], [0.9, 0.0, 0.1], [0.9, 0.0, 0.1]]), 0.2, 2.0) == (1, 1)
    assert coverage(np.zeros((0, 3)), 0.2, 2.0) == (2, 0)  # nothing was said: all source words are dropped


def test_a_transposed_alignment_is_an_error() -> None:
    # protocol trap 45: rows are target words.
    rows = WEIGHTS[:2].tolist()
    assert as_matrix(rows, 2, 2).sum(axis=1) == pytest.approx(1)
    assert as_matrix(rows, 1, 2).shape == (2, 3)  # the last row is that of `</s>`
    assert as_matrix([], 0, 2).shape == (0, 3)
    for wrong in (np.transpose(rows).tolist(), WEIGHTS[:1].tolist(), [*rows, *rows], [rows[0], rows[1][:2]]):
        with pytest.raises(EvaluationError, match="rows are target words"):
            as_matrix(wrong, 2, 2)
