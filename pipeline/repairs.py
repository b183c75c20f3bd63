"""Repairs of damaged text, each by name and off by default: the paper repaired nothing.

They come before all normalisation, in this order: entities, mojibake, control characters. Mojibake is text in UTF-8
that was read as another encoding (`l’Ã©tÃ©`), once or several times; ftfy finds and reverses it.
"""

import html
import re
from collections.abc import Callable

import ftfy
import pyarrow as pa
import pyarrow.compute as pc
from ftfy.fixes import fix_c1_controls

from rnnsearch.pipeline.config import CleanConfig

ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});"  # RE2 and re
CONTROL = "[\u0080-\u0084\u0086-\u009f]"  # C1 but U+0085, which ends lines: cp1252's quotes and dashes
_NOT_ASCII = "[^\x00-\x7f]"
_URL = re.compile(r"(\S*(?://|www\.)\S*)")
_MOJIBAKE = ftfy.TextFixerConfig(unescape_html=False, fix_c1_controls=False)


def repaired(texts: pa.Array, config: CleanConfig) -> pa.Array:
    """A column of sentences (no nulls), repaired as `config` says."""
    for _ in range(config.unescape):
        texts = _changed(texts, ENTITY, unescape)
    if config.repair_mojibake:
        texts = _changed(texts, _NOT_ASCII, repair_mojibake)
    return _changed(texts, CONTROL, fix_c1_controls) if config.repair_controls else texts


def unescape(text: str) -> str:
    """The text with its HTML entities replaced once; those inside addresses stay (`?a=1&lt;=2`)."""
    parts = _URL.split(text)
    parts[::2] = map(html.unescape, parts[::2])
    return "".join(parts)


def repair_mojibake(text: str) -> str:
    """The text in the encoding that it was written in, as far as ftfy is sure."""
    return ftfy.fix_encoding(text, _MOJIBAKE)


def _changed(texts: pa.Array, where: str, repair: Callable[[str], str]) -> pa.Array:
    """The texts with those repaired that match the pattern `where` of RE2."""
    hit = pc.match_substring_regex(texts, where)
    changed = [repair(text) for text in texts.filter(hit).to_pylist()]
    return pc.replace_with_mask(texts, hit, pa.array(changed, pa.string()))
