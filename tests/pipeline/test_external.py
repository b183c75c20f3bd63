import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.config import CleanConfig, EvaluateConfig, SearchConfig, TokenizeConfig
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.evaluation import evaluate, sentence_statistics
from rnnsearch.pipeline.external import as_our_tokens, external_hypotheses
from rnnsearch.pipeline.formats.lines import read_lines
from rnnsearch.pipeline.overlap import OVERLAP
from rnnsearch.pipeline.schemas import HYPOTHESES, PAIRS, SHORTLIST

REFERENCES = ["L'eau coule ici , dit-il .", "Le chat dort .", "Un axolotl nage .", "Le chat mange ."]


def pairs(targets: list[str], first: int = 0) -> pa.Table:
    columns = {
        "corpus": pa.array(["test"] * len(targets)).dictionary_encode(),
        "line": pa.array(range(first, first + len(targets)), pa.int64()),
        "key": pa.nulls(len(targets), pa.string()),
        "source": ["a cat sleeps"] * len(targets),
        "target": targets,
    }
    return pa.table(columns).cast(PAIRS)


def test_each_shard_of_the_test_set_gets_its_own_lines_in_order() -> None:
    shards = [pairs(REFERENCES[:3]), pairs(REFERENCES[3:], 3)]
    tables = external_hypotheses(["a", " b  c ", "", "d"], shards)
    assert [table["hypothesis"].to_pylist() for table in tables] == [["a", "b c", ""], ["d"]]
    assert [table["line"].to_pylist() for table in tables] == [[0, 1, 2], [3]]
    assert all(table.schema.equals(HYPOTHESES, check_metadata=True) for table in tables)


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_lines_than_test_sentences_is_an_error(count: int) -> None:
    with pytest.raises(EvaluationError, match=rf"{count} lines for 4 test sentences; give one line for each"):
        external_hypotheses(["x"] * count, [pairs(REFERENCES[:3]), pairs(REFERENCES[3:], 3)])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("le lo@@ uest", "marked @@, .* sed -E"),
        ("fin@@", "marked @@"),
        ("\u2581le \u2581lou est", "marked \u2581, .* spm_decode"),
        ("lou\uffed est", "marked \uffed"),
    ],
)
def test_pieces_of_words_are_refused_where_the_references_have_words(line: str, said: str) -> None:
    with pytest.raises(EvaluationError, match=f"4 of 4 lines have pieces of words, {said}"):
        external_hypotheses([line] * 4, [pairs(REFERENCES)])
    assert external_hypotheses([line] * 4, [pairs([line] * 4)])
    with pytest.raises(EvaluationError, match=f"4 of 4 lines have pieces of words, {said}"):
        as_our_tokens([line] * 4, CleanConfig(), TokenizeConfig())


def test_a_sign_that_only_looks_like_a_joiner_is_a_word() -> None:
    assert external_hypotheses(["@@ a", "a@@b", "@", "b @ c"], [pairs(REFERENCES)])
    rest = ["un mot"] * 199
    assert external_hypotheses(["fin@@", *rest], [pairs(["un mot"] * 200)])


@pytest.mark.parametrize("escape", [False, True])
def test_running_text_becomes_the_tokens_that_the_references_have(escape: bool) -> None:
    text = "\ufeffL\u2019eau  coule ici, dit-il.\t"
    straight = CleanConfig(straight_quotes=True)
    (tokens,) = as_our_tokens([text], straight, TokenizeConfig(escape=escape))
    assert tokens == ("L&apos; eau coule ici , dit-il ." if escape else "L' eau coule ici , dit-il .")
    (given,) = as_our_tokens(["L' eau  coule ici ,"], straight, TokenizeConfig(pretokenized=True))
    assert given == "L' eau coule ici ,"


def test_a_system_that_gives_the_references_has_100_on_the_same_subset_as_ours() -> None:
    tokens = pairs(REFERENCES)
    (given,) = external_hypotheses(REFERENCES, [tokens])
    shortlist = pa.table(
        {"word": ["a", "cat", "sleeps", "Le", "chat", "dort", "mange", "."]}, schema=SHORTLIST
    )
    config, tokenize = EvaluateConfig(bootstrap_samples=10), TokenizeConfig()
    rows = sentence_statistics(
        hypotheses=given, no_unk=given, tokens=tokens, raw=tokens, source=shortlist, target=shortlist,
        overlap=OVERLAP.empty_table(),
        config=config, tokenize=tokenize,
    )  # fmt: skip
    scores = json.loads(evaluate([rows], config, tokenize, SearchConfig()).scores)
    assert {name: (part["sentences"], part["bleu"]["score"]) for name, part in scores["subsets"].items()} == {
        "all": (4, 100.0),
        "no-unk": (2, 100.0),
        "no-unk-allowed": (2, 100.0),
    }
    assert scores["subsets"]["all"]["bleu"]["signature"].endswith("|unk:never-matches|subset:all|n:4")
    assert scores["behaviour"]["attention"] is None


def test_lines_end_at_a_line_feed_only_also_gzipped_and_from_windows(tmp_path: Path) -> None:
    data = "un\u2028mot\r\n\ndeux\x85mots\ntrois".encode()
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(data))
    for name in ("plain", "packed.gz"):
        assert read_lines(tmp_path, name) == ["un\u2028mot", "", "deux\x85mots", "trois"]


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "moses.fr").write_bytes(b"oui\n\xe9t\xe9\n")
    with pytest.raises(FormatError, match=r"line 2 of 'moses\.fr' is not UTF-8"):
        read_lines(tmp_path, "moses.fr")
