import json
from typing import Any

import pyarrow as pa
import pytest

from rnnsearch.pipeline.alignment_scores import alignment_scores
from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.schemas import ALIGNMENTS

FOUND = pa.table(
    {
        "corpus": pa.array(["test"] * 3).dictionary_encode(),
        "line": [0, 1, 2],
        "source_words": [2, 3, 1],
        "target_words": [2, 2, 1],
        "links": ["0-0 1-1", "0-0 2-1", "0-0"],
        "entropy": [1_000_000, 250_000, 0],
    }
).cast(ALIGNMENTS)


def scores(**beside: list[str]) -> Any:
    return json.loads(alignment_scores(FOUND, **beside))


def test_the_entropy_is_a_mean_over_target_words_in_nats() -> None:
    assert scores() == {"sentences": 3, "links": 5, "entropy": 0.25}


def test_the_error_rate_is_over_the_sentences_that_somebody_linked() -> None:
    # Sentence 0: A = {00, 11}, S = {00}, P = {00, 11}; 1: A = {00, 21}, S = {10}, P = {10, 21}; 2 is left out.
    found = scores(gold=["0-0 1p1", "1-0 2p1", ""])
    assert found["gold"] == {
        "sentences": 2,
        "sure": 2,
        "possible": 4,
        "error_rate": round(1 - ((1 + 0) + (2 + 1)) / (4 + 2), 6),
    }
    assert "agreement" not in found


def test_the_other_direction_writes_its_own_source_word_first() -> None:
    # Common: 0-0 and 1-1 of sentence 0, 2-1 of sentence 1 (written 1-2 by the other direction).
    found = scores(backward=["0-0 1-1", "1-2 0-1", ""])
    assert found["agreement"] == round(2 * 3 / (5 + 4), 6)
    assert scores(backward=["0-0 1-1", "0-0 1-2", "0-0"])["agreement"] == 1


@pytest.mark.parametrize(
    "beside", [{"gold": ["1-1 2-2", "1p1 3-2", "1-1"]}, {"backward": ["1-1 2-2", "1-1", ""]}]
)
def test_links_counted_from_1_are_refused(beside: dict[str, list[str]]) -> None:
    with pytest.raises(EvaluationError, match=r"alignment counts words from 1: .* subtract 1 from both"):
        scores(**beside)


def test_links_counted_from_1_are_noticed_although_none_reaches_the_last_word() -> None:
    many = pa.concat_tables([FOUND.slice(1, 1)] * 25)
    with pytest.raises(EvaluationError, match="counts words from 1"):
        alignment_scores(many, gold=["1-1"] * 25)
    assert json.loads(alignment_scores(many, gold=["1-1"] * 24 + ["0-1"]))["gold"]["sentences"] == 25
    assert json.loads(alignment_scores(many, gold=["1-1"] * 5 + [""] * 20))["gold"]["sentences"] == 5


def test_two_directions_without_a_link_have_no_agreement() -> None:
    nowhere = FOUND.set_column(4, ALIGNMENTS.field("links"), pa.array([""] * 3))
    assert "agreement" not in json.loads(alignment_scores(nowhere, backward=["", "", ""]))
    assert json.loads(alignment_scores(nowhere, backward=["0-0", "", ""]))["agreement"] == 0


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"gold": ["0-0"]}, "the gold alignment has 1 lines for 3 test sentences"),
        ({"backward": ["0-0"] * 4}, "the backward alignment has 4 lines for 3"),
        (
            {"gold": ["0-0", "3-0", ""]},
            "the gold alignment, line 2: 3-0 joins words of sentences that have 3 and 2",
        ),
        ({"gold": ["0-0", "2p2", ""]}, "line 2: 2-2 joins"),
        ({"backward": ["", "0-2", "0-1"]}, "the backward alignment, line 3: 0-1 joins words .* 1 and 1"),
        ({"gold": ["0-0", "1:1", ""]}, "the gold alignment, line 2: '1:1' is no link"),
    ],
)
def test_links_that_cannot_be_of_this_test_set_are_named(beside: dict[str, list[str]], said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        scores(**beside)
