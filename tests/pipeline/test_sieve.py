import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.schemas import DROPPED, PAIRS
from rnnsearch.pipeline.sieve import Cause, column, dropped, places, sieve


def test_a_row_counts_under_the_first_reason_that_holds(make_pairs) -> None:
    pairs = make_pairs([("a", "b")] * 4, first=7)
    result = sieve(pairs, {"one": np.array([1, 0, 0, 1], bool), "two": np.array([1, 1, 0, 0], bool)})
    assert result.kept["line"].to_pylist() == [9]
    assert result.dropped.schema.equals(DROPPED, check_metadata=True)
    assert [(row["line"], row["reason"]) for row in result.dropped.to_pylist()] == [
        (7, "one"),
        (8, "two"),
        (10, "one"),
    ]


def test_a_dropped_row_has_the_partner_and_threshold_of_the_reason_it_counts_under(make_pairs) -> None:
    pairs = make_pairs([("a", "b")] * 4, first=7)
    reasons = {
        "plain": np.array([1, 0, 0, 0], bool),
        "copy": Cause(np.array([1, 1, 0, 0], bool), partner=pa.array(["c:1", "c:2", None, None])),
        "cut": Cause(np.array([0, 1, 1, 0], bool), threshold=pa.array([1, 2, 3, 4])),
    }
    table = sieve(pairs, reasons).dropped
    assert table.equals(dropped(pairs, reasons))
    assert [(row["reason"], row["partner"], row["threshold"]) for row in table.to_pylist()] == [
        ("plain", None, None),
        ("copy", "c:2", None),
        ("cut", None, 3),
    ]
    named = places(column(pairs, "corpus"), pa.array([1, None, 3, 4]))
    assert named.to_pylist() == ["c:1", None, "c:3", "c:4"]


def test_no_reasons_and_no_rows_drop_nothing(make_pairs) -> None:
    assert sieve(make_pairs([("a", "b")]), {}).dropped.num_rows == 0
    assert sieve(make_pairs([]), {"one": np.zeros(0, bool)}).kept.schema.equals(PAIRS, check_metadata=True)


def test_a_column_of_many_chunks_is_one_array_with_one_dictionary(make_pairs) -> None:
    both = pa.concat_tables([make_pairs([("a", "b")], "x"), make_pairs([("c", "d")], "y")])
    assert column(both, "corpus").to_pylist() == ["x", "y"]
    assert column(both, "corpus").dictionary.to_pylist() == ["x", "y"]
    assert column(both, "source").to_pylist() == ["a", "c"]
    assert sieve(both, {"r": np.array([False, True])}).dropped["corpus"].to_pylist() == ["y"]
