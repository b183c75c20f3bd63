"""Pairs from a query on an SQLite file, which is never written, not even a journal beside it."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rnnsearch.pipeline.config import SqliteFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.plain import Sides

_REQUIRED = {"source", "target"}
_ALLOWED = {"source", "target", "key"}


class Rule(NamedTuple):
    """One replacement on one side."""

    pattern: re.Pattern[str]
    replacement: str


def read_sqlite(path: Path, config: SqliteFormat, rows: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time, in the order of the query.

    Raises FormatError where the query fails, gives other columns than `source`, `target` and perhaps `key`,
    or gives something that is not text.
    """
    rules = {
        side: [Rule(re.compile(pattern), text) for where, pattern, text in config.replace if where == side]
        for side in ("source", "target")
    }
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as connection:
            cursor = connection.execute(config.query)
            names = [column[0] for column in cursor.description or ()]
            if not _REQUIRED <= set(names) <= _ALLOWED or len(names) != len(set(names)):
                raise FormatError(
                    f"the query on {path} gives the columns {', '.join(names) or 'none'}; it must give "
                    "source, target and perhaps key: write SELECT … AS source, … AS target"
                )
            line = 0
            while part := cursor.fetchmany(rows):
                columns = {name: _texts(part, names.index(name), name, path, line) for name in names}
                key = pa.array(columns["key"], pa.string()) if "key" in columns else None
                yield Sides(
                    _replaced(columns["source"], rules["source"]),
                    _replaced(columns["target"], rules["target"]),
                    key,
                )
                line += len(part)
    except sqlite3.Error as error:
        raise FormatError(f"{path}: the query failed: {error}") from error


def _texts(part: Sequence[Sequence[Any]], column: int, name: str, path: Path, first: int) -> list[str | None]:
    values = [row[column] for row in part]
    for line, value in enumerate(values, first):
        if not (isinstance(value, str) or (value is None and name == "key")):
            raise FormatError(
                f"{path}: row {line:,} of the query has {type(value).__name__} as {name}, not text; "
                f"write CAST(… AS TEXT) or leave such rows out"
            )
    return values


def _replaced(texts: list[str | None], rules: list[Rule]) -> pa.Array:
    for pattern, replacement in rules:
        texts = [pattern.sub(replacement, text) for text in texts if text is not None]
    return pa.array(texts, pa.string())
