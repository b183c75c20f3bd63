"""Corpus text is foreign: escaped, kept to its own direction, its invisible characters shown."""

import re
from collections.abc import Callable

from markupsafe import Markup, escape

# Invisible characters that change what is seen around them, with the short names of the Unicode standard.
CONTROLS = {
    "\u00ad": "SHY",
    "\u061c": "ALM",
    "\u200b": "ZWSP",
    "\u200c": "ZWNJ",
    "\u200d": "ZWJ",
    "\u200e": "LRM",
    "\u200f": "RLM",
    "\u2028": "LS",
    "\u2029": "PS",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\ufeff": "BOM",
}
_NAMED = re.compile("[" + "".join(CONTROLS) + "\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]|~$])")


def _replaced(text: str, mark: Callable[[str, str], str], rest: Callable[[str], str]) -> str:
    parts, end = [], 0
    for hit in _NAMED.finditer(text):
        name = CONTROLS.get(hit.group(), f"U+{ord(hit.group()):04X}")
        parts += [rest(text[end : hit.start()]), mark(name, hit.group())]
        end = hit.end()
    return "".join([*parts, rest(text[end:])])


def html_text(text: str, language: str = "") -> Markup:
    """Corpus text for a page: inside `<bdi>`, escaped, each invisible character as a small named mark."""

    def mark(name: str, character: str) -> str:
        return f'<span class="mark" title="U+{ord(character):04X}">{name}</span>'

    attribute = f' lang="{escape(language)}"' if language else ""
    return Markup(f"<bdi{attribute}>{_replaced(text, mark, lambda s: str(escape(s)))}</bdi>")  # noqa: S704 - escaped here


def breaks(signature: str) -> Markup:
    """A signature that may be broken after each of its parts."""
    return escape(signature).replace("|", Markup("|<wbr>"))


def plain_text(text: str) -> str:
    """Corpus text for a figure: each invisible character as its name in brackets."""
    return _replaced(text, lambda name, _: f"[{name}]", str)


def markdown_text(text: str) -> str:
    """Corpus text within a line or a table cell of Markdown: nothing in it is markup."""
    flat = plain_text(" ".join(text.split("\n")))
    return _MARKDOWN.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
