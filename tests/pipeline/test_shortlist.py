import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

from rnnsearch.pipeline.config import ShortlistConfig
from rnnsearch.pipeline.schemas import COUNTS, SHORTLIST
from rnnsearch.pipeline.shortlist import choose_words, count_words

NBSP = "\u00a0"


def chosen(shards: list[pa.Table], source: int = 100, target: int = 100) -> list[list[str]]:
    result = choose_words(
        [count_words(shard) for shard in shards], ShortlistConfig(source_words=source, target_words=target)
    )
    return [result.source["word"].to_pylist(), result.target["word"].to_pylist()]


def test_words_are_ranked_by_count_then_codepoint(make_pairs) -> None:
    # protocol trap 27: B before a before b before é before ﬀ (U+FB00) before 𝐀 (U+1D400), whatever came first
    pairs = make_pairs([("é b a 𝐀 ﬀ B the the", "x")])
    assert chosen([pairs])[0] == ["the", "B", "a", "b", "é", "ﬀ", "𝐀"]


def test_each_side_has_its_own_list_cut_at_its_own_size(make_pairs) -> None:
    pairs = make_pairs([("a a b c", "b b b a a c d")])
    assert chosen([pairs], source=1, target=3) == [["a"], ["b", "a", "c"]]


def test_all_words_are_counted_not_only_the_chosen_ones(make_pairs) -> None:
    partials = [count_words(make_pairs([("a b", "c")])), count_words(make_pairs([("a", "c d")]))]
    result = choose_words(partials, ShortlistConfig(source_words=1, target_words=1))
    assert result.source_counts.to_pylist() == [{"word": "a", "count": 2}, {"word": "b", "count": 1}]
    assert result.target_counts.to_pylist() == [{"word": "c", "count": 2}, {"word": "d", "count": 1}]
    assert result.source_counts.schema.equals(COUNTS, check_metadata=True)
    assert result.source.schema.equals(SHORTLIST, check_metadata=True)


def test_words_that_look_like_special_tokens_are_words(make_pairs) -> None:
    pairs = make_pairs([("</s> [UNK] UNK eos </s>", "<s>")])
    assert chosen([pairs]) == [["</s>", "UNK", "[UNK]", "eos"], ["<s>"]]


def test_only_the_common_space_parts_words_and_no_word_is_empty(make_pairs) -> None:
    pairs = make_pairs([(f"10{NBSP}000  a\u3000b", ""), ("", "c")])
    assert chosen([pairs]) == [[f"10{NBSP}000", "a\u3000b"], ["c"]]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_cut_into_shards_changes_nothing(make_pairs, size: int) -> None:
    rows = [(f"w{n % 11} w{n % 3} all", f"v{n % 5}") for n in range(100)]
    shards = [make_pairs(rows[at : at + size]) for at in range(0, 100, size)]
    counts = Counter(word for source, _ in rows for word in source.split(" "))
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    assert chosen(shards)[0] == chosen(shards[::-1])[0] == expected


def test_nothing_to_count_gives_empty_lists(make_pairs) -> None:
    assert chosen([]) == chosen([make_pairs([])]) == [[], []]


_SCRIPT = """
import pyarrow as pa
from rnnsearch.pipeline.config import ShortlistConfig
from rnnsearch.pipeline.schemas import PAIRS
from rnnsearch.pipeline.shortlist import choose_words, count_words
text = " ".join(f"w{n % 97}" for n in range(500))
corpus = pa.array(["c"]).dictionary_encode()
pairs = pa.Table.from_arrays([corpus, [0], pa.nulls(1, pa.string()), [text], [text]], schema=PAIRS)
print(choose_words([count_words(pairs)], ShortlistConfig()).source["word"].to_pylist())
"""


def test_ties_do_not_depend_on_the_seed_of_pythons_hashes() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _SCRIPT], env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second
    assert b"w96" in first
