import numpy as np
import pytest

from rnnsearch.pipeline.observables import lengths, mean_by_position, rate, row_sums, stutters


def test_the_last_count_holds_all_longer_sentences() -> None:
    found = lengths(np.array([0, 2, 2, 5, 9]), 4)
    assert found.counts == (1, 0, 2, 0, 2)
    assert found.mean == pytest.approx(3.6)
    assert lengths(np.array([], np.int64), 2) == ((0, 0, 0), 0.0)


def test_a_rate_of_nothing_is_zero() -> None:
    assert rate(np.array([1, 1]), np.array([4, 4])) == 0.25
    assert rate(np.array([0]), np.array([0])) == 0


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("", 0),
        ("a", 0),
        ("a a", 1),
        ("a a a", 2),
        ("a b a", 0),
        ("a b a b", 1),
        ("a b a b a b", 3),
        ("a b c d a b c d", 1),
        ("a b c d e a b c d e", 0),  # longer than the phrases looked at
        ("x a b c a b c y", 1),
    ],
)
def test_a_stutter_is_a_phrase_said_twice_in_a_row(line: str, count: int) -> None:
    assert stutters(line.split()) == count


def test_row_sums_are_one_unless_weight_is_lost() -> None:
    assert row_sums(np.array([[0.5, 0.5], [0.25, 0.75]])) == (1, 1)
    assert row_sums(np.array([[0.5, 0.3], [0.25, 0.75]])) == pytest.approx((0.8, 1))
    assert row_sums(np.zeros((0, 3))) == (1, 1)


def test_a_position_has_the_mean_of_the_rows_that_reach_it() -> None:
    assert mean_by_position([[1, 2, 9], [3], []], 2) == [2, 2]
    assert mean_by_position([[1, 5], [3]], 10) == [2, 5]
    assert mean_by_position([], 10) == []
