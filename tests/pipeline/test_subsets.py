import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.schemas import SHORTLIST
from rnnsearch.pipeline.subsets import Range, at_least, at_most, bins, look_up, without_unknown


def shortlist(*words: str) -> pa.Table:
    return pa.table({"word": pa.array(words, pa.string())}, schema=SHORTLIST)


def test_words_are_known_by_the_shortlist_and_never_by_their_spelling() -> None:
    text = pa.array(["a b", "", "a [UNK] x", "</s> a a", "10\u00a0000 x"])
    found = look_up(text, shortlist("a", "[UNK]", "b", "10\u00a0000"))
    assert found.total.tolist() == [2, 0, 3, 3, 2]
    assert found.unknown.tolist() == [0, 0, 1, 1, 1]
    assert found.rarest.tolist() == [3, 0, 5, 5, 5]
    assert look_up(text, shortlist("a", "b")).unknown.tolist() == [0, 0, 2, 1, 2]


def test_an_empty_text_has_no_unknown_word() -> None:
    found = look_up(pa.array([], pa.string()), shortlist("a"))
    assert [len(values) for values in found] == [0, 0, 0]
    assert look_up(pa.array(["", ""]), shortlist()).unknown.tolist() == [0, 0]


def test_exactly_the_sentences_without_unknown_words_on_both_sides_are_kept() -> None:
    # protocol trap 43: none, in the source only, in the reference only, in both.
    source, target = shortlist("a", "b"), shortlist("A", "B")
    sources = look_up(pa.array(["a b", "a x", "b a", "x b"]), source)
    references = look_up(pa.array(["A B", "A B", "A X", "X A"]), target)
    assert without_unknown(sources.unknown, references.unknown).tolist() == [True, False, False, False]


def test_bins_hold_every_length_once() -> None:
    ranges = bins((10, 20))
    assert ranges == (Range(1, 10), Range(11, 20), Range(21, None))
    lengths = np.array([1, 10, 11, 20, 21, 500])
    assert sum(span.holds(lengths).astype(int) for span in ranges).tolist() == [1] * 6
    assert bins((0, 1), first=0) == (Range(0, 0), Range(1, 1), Range(2, None))


def test_cumulative_readings_start_or_end_with_everything() -> None:
    lengths = np.array([1, 10, 11, 20, 21])
    assert [int(span.holds(lengths).sum()) for span in at_least((10, 20))] == [5, 3, 1]
    assert [int(span.holds(lengths).sum()) for span in at_most((10, 20))] == [2, 4, 5]
