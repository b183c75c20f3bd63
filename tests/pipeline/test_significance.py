from pathlib import Path

import numpy as np
import pytest

from rnnsearch.pipeline.bleu import EvaluationError, bleu, statistics
from rnnsearch.pipeline.significance import bootstrap, compare, interval

GOLDEN = Path(__file__).parents[1] / "golden"


def read_lines(name: str) -> list[str]:
    return (GOLDEN / name).read_text().split("\n")[:-1]


OUTPUTS, REFERENCES = read_lines("bleu_hypothesis.txt"), read_lines("bleu_reference.txt")
ROWS = statistics(OUTPUTS, REFERENCES)


def worse(lines: list[str], every: int) -> list[str]:
    """The last word of every so-many-th line is lost."""
    return [line.rpartition(" ")[0] if place % every == 0 else line for place, line in enumerate(lines)]


def test_equal_seeds_give_equal_samples_and_other_seeds_others() -> None:
    assert np.array_equal(bootstrap(ROWS, 100, 7), bootstrap(ROWS, 100, 7))
    assert not np.array_equal(bootstrap(ROWS, 100, 7), bootstrap(ROWS, 100, 8))


def test_a_resample_is_as_large_as_the_test_set_and_of_its_sentences() -> None:
    same = np.repeat(ROWS[:1], 30, axis=0)  # whatever is drawn, it is this sentence
    assert np.allclose(bootstrap(same, 50, 0), bleu(same).score)


def test_the_interval_holds_the_score_and_narrows_with_more_sentences() -> None:
    wide, narrow = (interval(bootstrap(rows, 500, 0)) for rows in (ROWS[:40], ROWS))
    assert narrow.low < bleu(ROWS).score < narrow.high
    assert narrow.high - narrow.low < wide.high - wide.low


def test_the_interval_is_as_wide_as_the_standard_error_says() -> None:
    # One-word sentences, half of them right, and one certain match of each order: nearly a binomial proportion.
    long = statistics(["a b c d"] * 200, ["a b c d"] * 200)
    ones = statistics(["a"] * 200 + ["x"] * 200, ["a"] * 400)
    around = interval(bootstrap(np.concatenate((long, ones)), 2000, 1))
    rows = np.concatenate((long, ones)).astype(float)
    matches, totals = rows[:, 0].sum(), rows[:, 4].sum()
    slope = bleu(rows.astype(int)).score / 4 / (matches / totals)  # d BLEU / d precision of words
    error = np.std((rows[:, 0] - matches / totals * rows[:, 4]) / totals) * np.sqrt(len(rows)) * slope
    assert around.high - around.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_no_sentences_have_an_interval_of_nothing() -> None:
    assert interval(bootstrap(ROWS[:0], 10, 0)) == (0, 0)


def test_a_system_does_not_differ_from_itself() -> None:
    found = compare(ROWS, ROWS, 200, 0)
    assert found.difference == 0
    assert found.interval == (0, 0)
    assert found.bootstrap_p == found.randomization_p == 1


def test_a_clear_difference_is_significant_by_both_tests_and_in_both_directions() -> None:
    bad = statistics(worse(OUTPUTS, 1), REFERENCES)
    found = compare(ROWS, bad, 999, 0)
    assert found.difference > 1
    assert found.interval.low > 0
    assert found.bootstrap_p == found.randomization_p == 1 / 1000  # none as large by chance, and never 0
    back = compare(bad, ROWS, 999, 0)
    assert back.difference == -found.difference
    assert back.randomization_p == found.randomization_p


def test_a_difference_in_few_sentences_is_not_significant() -> None:
    changed = list(OUTPUTS)
    changed[0], changed[1] = REFERENCES[0], "x"
    found = compare(statistics(changed, REFERENCES), ROWS, 999, 0)
    assert found.interval.low < 0 < found.interval.high
    assert found.bootstrap_p > 0.05
    assert found.randomization_p > 0.05


def test_p_values_are_uniform_when_there_is_no_difference() -> None:
    rng = np.random.default_rng(0)
    other = statistics(worse(OUTPUTS, 1), REFERENCES)
    small = []
    for trial in range(60):
        swap = rng.integers(2, size=len(ROWS))[:, None].astype(bool)  # two systems, equal by construction
        found = compare(np.where(swap, ROWS, other), np.where(swap, other, ROWS), 199, trial)
        small.append((found.bootstrap_p < 0.2, found.randomization_p < 0.2))
    for share in np.mean(small, axis=0):
        assert 0.05 < share < 0.4


def test_systems_on_other_test_sets_are_refused() -> None:
    with pytest.raises(EvaluationError, match="200 and 199 sentences"):
        compare(ROWS, ROWS[1:], 10, 0)
    with pytest.raises(EvaluationError, match="other references"):
        compare(ROWS, ROWS[::-1], 10, 0)
