import pyarrow as pa
import pytest

from rnnsearch.pipeline.normal_form import letters, normal_forms


@pytest.mark.parametrize(
    "spellings",
    [
        (
            "l'été 2014",
            "L’ÉTÉ 2014 !",
            "l&apos;été 2014",
            "l&amp;apos;été ２０１４",
            "l ʼ e\u0301té 2014",
            "« l‘été » 2014",
            "l´été 2014",
            "l`été 2014",
        ),
        ("Straße ΟΔΟΣ", "STRASSE οδος"),
        ("ﬁne ①", "FINE 1"),
        ("今天天气很好。", "今天 天气 很好"),
        ("ขอบคุณมาก", "ขอบคุณ มาก"),
        ("10 000", "10\u00a0000", "10,000"),
        ("« — … »", "", "&nbsp;&#x2014;"),
    ],
)
def test_spellings_of_one_text_have_one_normal_form(spellings: tuple[str, ...]) -> None:
    assert len(set(letters(pa.array(spellings)).to_pylist())) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [("in 2014", "in 2015"), ("été", "ete"), ("a b", "a c"), ("नमस्ते", "नमस्त"), ("你好", "您好")],
)
def test_texts_that_differ_have_different_normal_forms(left: str, right: str) -> None:
    first, second = letters(pa.array([left, right])).to_pylist()
    assert first != second


@pytest.mark.parametrize(
    ("text", "spaced", "words"),
    [
        ("L'homme, dit-il.", "l homme dit il", 4),
        ("你好，世界 abc", "你 好 世 界 abc", 3),  # two characters of a script without spaces are a word
        ("你好吗", "你 好 吗", 2),
        ("안녕 세계", "안녕 세계", 2),  # Korean has spaces
        ("Amen!", "amen", 1),
        ("...", "", 0),
    ],
)
def test_words_are_counted_in_every_script(text: str, spaced: str, words: int) -> None:
    found = normal_forms(pa.array([text]))
    assert (found.spaced[0].as_py(), found.words[0].as_py()) == (spaced, words)
    assert found.letters == letters(pa.array([text]))


def test_no_texts_have_no_forms() -> None:
    assert len(normal_forms(pa.array([], pa.string())).words) == 0
