"""From a local file to tables of pairs, whatever its format (architecture 5)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.config import Format, GettextFormat, PlainFormat, SgmlFormat, SqliteFormat
from rnnsearch.pipeline.formats.gettext import read_gettext
from rnnsearch.pipeline.formats.plain import Sides, read_plain
from rnnsearch.pipeline.formats.sgml import read_sgml
from rnnsearch.pipeline.formats.sqlite import read_sqlite
from rnnsearch.pipeline.schemas import PAIRS


def read_pairs(path: Path, corpus: str, format: Format, rows_per_shard: int) -> Iterator[pa.Table]:  # noqa: A002
    """The pairs of `path`, a file or a folder, as `PAIRS` tables of `rows_per_shard` rows, the last of fewer.

    `line` counts from 0 in the order of the file. One table is in memory at a time, except for gettext and
    SGML, whose files are small. Raises FormatError: what is wrong, where, and what to do.
    """
    line = 0
    for sides in _sides(path, format, rows_per_shard):
        yield _pairs(corpus, line, sides)
        line += len(sides.source)


def _sides(path: Path, config: Format, rows: int) -> Iterator[Sides]:
    match config:
        case PlainFormat():
            return read_plain(path, config, rows)
        case SgmlFormat():
            return read_sgml(path, config, rows)
        case GettextFormat():
            return read_gettext(path, rows)
        case SqliteFormat():
            return read_sqlite(path, config, rows)


def _pairs(corpus: str, first: int, sides: Sides) -> pa.Table:
    rows = len(sides.source)
    name = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([corpus], pa.string()))
    line = pa.array(np.arange(first, first + rows, dtype=np.int64))
    key = pa.nulls(rows, pa.string()) if sides.key is None else sides.key
    return pa.Table.from_arrays([name, line, key, sides.source, sides.target], schema=PAIRS)
