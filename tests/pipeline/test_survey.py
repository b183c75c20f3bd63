import random

import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import CleanConfig, FilterConfig, LanguagesConfig
from rnnsearch.pipeline.slip import find_slips, slipped_rows
from rnnsearch.pipeline.survey import SURVEY, sum_survey, survey_shard, thresholds

EN_FR = LanguagesConfig(source="en", target="fr")


def text(count: int, slip: range = range(0), places: int = 0) -> list[tuple[str, str]]:
    """Pairs of varied lengths; the targets of the lines in `slip` are those of lines `places` further on."""
    draw = random.Random(9)
    sizes = [draw.randint(3, 40) for _ in range(count + 20)]
    source = [" ".join(["word"] * size) for size in sizes]
    target = [" ".join(["mots"] * max(1, size + draw.randint(-2, 3))) for size in sizes]
    return [(source[n], target[n - places if n in slip else n]) for n in range(count)]


@pytest.mark.parametrize("places", [-3, 1, 7])
def test_a_stretch_of_slipped_lines_is_found_and_nothing_else(make_pairs, places: int) -> None:
    rows = make_pairs(text(600, range(200, 300), places), first=1_000)
    (slip,) = find_slips(rows)
    assert slip.places == places
    assert 180 <= slip.first <= 220
    assert 280 <= slip.last <= 320
    assert slipped_rows(rows).sum() == slip.last - slip.first + 1
    assert find_slips(make_pairs(text(600))) == []


def test_two_corpora_of_a_shard_are_looked_at_apart(make_pairs) -> None:
    parts = [make_pairs(text(100), "a"), make_pairs(text(150, range(20, 120), 2), "b")]
    found = find_slips(pa.concat_tables(parts).unify_dictionaries())
    assert len(found) == 1
    assert found[0].first >= 100


def test_lines_whose_lengths_repeat_have_not_slipped(make_pairs) -> None:
    rows = [(" ".join(["word"] * (3 + n % 5)), " ".join(["mots"] * (3 + n % 5))) for n in range(200)]
    assert find_slips(make_pairs(rows)) == []  # five lines on, the lengths agree as well as here


@pytest.mark.parametrize("count", [0, 1, 39, 40, 41])
def test_few_lines_are_not_judged(make_pairs, count: int) -> None:
    assert find_slips(make_pairs(text(count))) == []
    assert find_slips(make_pairs([("the same", "la même")] * count)) == []


DAMAGED = [
    ("a summer", "l’Ã©tÃ©"),
    ("it\x92s", "c'est"),
    ("&amp;quot;x&amp;quot;", "un mot ou deux"),
    ("l&apos;eau", "l&apos;eau"),
    ("The cat , it sleeps .", "Le chat dort ."),
    ("fine", "bien"),
]


def counts(table: pa.Table) -> dict[tuple[str, str], int]:
    return {(row["corpus"], row["check"]): row["pairs"] for row in table.to_pylist()}


def survey(shards: list[pa.Table], filters: FilterConfig | None = None) -> pa.Table:
    settings = CleanConfig(), filters or FilterConfig(), EN_FR
    return sum_survey([survey_shard(shard, *settings) for shard in shards]).survey


def test_damage_of_each_kind_is_counted_by_corpus(make_pairs) -> None:
    found = survey([make_pairs(DAMAGED, "x"), make_pairs(DAMAGED[-1:] * 3, "y")])
    assert found.schema.equals(SURVEY, check_metadata=True)
    assert counts(found) == {
        ("x", "pairs"): 6,
        ("x", "mojibake"): 1,
        ("x", "controls"): 1,
        ("x", "entities"): 2,
        ("x", "twice_escaped"): 1,
        ("x", "escaped"): 1,
        ("x", "tokenised"): 1,
        ("x", "identical"): 1,
        ("x", "html"): 2,
        ("y", "pairs"): 3,
    }


def test_the_first_ten_examples_are_kept_with_their_lines_as_ingested(make_pairs) -> None:
    shards = [make_pairs([DAMAGED[1]] * 8, "x", at) for at in (8, 0)]
    (row,) = (row for row in survey(shards).to_pylist() if row["check"] == "controls")
    assert row["pairs"] == 16
    assert [example["line"] for example in row["examples"]] == list(range(10))
    assert row["examples"][0] == {"line": 0, "last": 0, "source": "it\x92s", "target": "c'est"}
    assert survey(shards) == survey(shards[::-1])


def test_a_slip_is_one_example_with_its_range_of_lines(make_pairs) -> None:
    found = survey([make_pairs(text(300, range(100, 200), 2), "x", 5_000)])
    (row,) = (row for row in found.to_pylist() if row["check"] == "slipped")
    (example,) = row["examples"]
    assert example["last"] - example["line"] + 1 == row["pairs"] >= 80
    assert 5_080 <= example["line"] <= 5_120


def test_a_filter_that_is_set_is_surveyed_at_its_own_threshold() -> None:
    assert thresholds(FilterConfig()).max_words == 200
    assert thresholds(FilterConfig(max_words=7)).max_words == 7
    assert thresholds(FilterConfig()).languages is False
