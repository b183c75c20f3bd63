import pytest

from rnnsearch.pipeline.clean import normalize
from rnnsearch.pipeline.config import CleanConfig

NBSP = "\u00a0"


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        (f"voilÃ{NBSP}!", "voilà!"),
        (f"voilÃ{NBSP} !", "voilà !"),
        ("l’Ã©tÃ© Ã‰cole", "l’été École"),
        ("rÃ©sumÃ© â€œcitÃ©â€\x9d", "résumé “cité”"),
        ("ÃƒÂ©tÃƒÂ©", "été"),  # twice
        ("São Tomé, à la carte", "São Tomé, à la carte"),
        ("naïve Ã", "naïve Ã"),
    ],
)
def test_mojibake_is_read_in_its_own_encoding_before_spaces_are_normalised(broken: str, mended: str) -> None:
    assert normalize(broken, CleanConfig(repair_mojibake=True)) == mended
    assert normalize(mended, CleanConfig(repair_mojibake=True)) == mended


def test_controls_are_meant_as_in_cp1252_and_the_line_end_only_beside_others() -> None:
    config = CleanConfig(repair_controls=True)
    assert normalize("it\x92s \x93x\x94 \x85 y", config) == "it’s “x” … y"
    assert normalize("one\x85two", config) == "one two"
    assert normalize("it\x92s", config.model_copy(update={"straight_quotes": True})) == "it's"


@pytest.mark.parametrize(
    ("text", "once", "twice"),
    [
        ("l&apos;eau &lt;b&gt;", "l'eau <b>", "l'eau <b>"),
        ("&amp;quot;oui&amp;quot;", "&quot;oui&quot;", '"oui"'),
        ("a&nbsp;: &#8217;&#x2019;", f"a{NBSP}: ’’", f"a{NBSP}: ’’"),
        (
            "http://x.org/?a=1&lt=2&copy;=3 &amp;",
            "http://x.org/?a=1&lt=2&copy;=3 &",
            "http://x.org/?a=1&lt=2&copy;=3 &",
        ),
        ("A&B; R&D", "A&B; R&D", "A&B; R&D"),
    ],
)
def test_entities_are_replaced_as_often_as_asked_and_never_in_addresses(
    text: str, once: str, twice: str
) -> None:
    assert normalize(text, CleanConfig(unescape=1)) == once
    assert normalize(text, CleanConfig(unescape=2)) == twice


@pytest.mark.parametrize("text", ["voilÃ©", "l&apos;eau", "&amp;quot;"])
def test_nothing_is_repaired_unless_asked_for(text: str) -> None:
    assert normalize(text, CleanConfig()) == text
    assert normalize("it\x92s", CleanConfig()) == "it s"
