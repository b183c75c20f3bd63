"""Pairs from a query on an SQLite file, which is never written, not even a journal beside it.

A profile may come from anybody, so its query may do nothing but read this one file, and it has a limit of work.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from rnnsearch.pipeline.config import SqliteFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, looked_into, require_kind
from rnnsearch.pipeline.formats.sides import Pair, Sides, gathered

_REQUIRED = {"source", "target"}
_ALLOWED = {"source", "target", "key"}
# No recursion: a query without it ends, though perhaps late.
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_LARGEST = 1 << 24  # bytes of a value
_REFUSED = frozenset({"load_extension", "readfile", "writefile", "edit"})
_STRIDE = 1_000_000  # instructions of SQLite's machine between two looks
MOST_WORK = 20_000  # such strides from one pair to the next: minutes; a sort of 40 million rows takes fewer


class Rule(NamedTuple):
    """One replacement on one side."""

    pattern: re.Pattern[str]
    replacement: str


def read_sqlite(
    path: Path, config: SqliteFormat, rows: int, longest: int, most_work: int = MOST_WORK
) -> Iterator[Sides]:
    """At most `rows` pairs at a time, in the order of the query.

    Raises FormatError where the query fails, would do more than read, works for longer than `most_work` million
    instructions without giving a row, gives other columns than `source`, `target` and perhaps `key`, or gives
    something that is not text.
    """
    place = Place(path, alone=True)
    with looked_into(place) as found:
        require_kind(place, found.kind, ("sqlite",))
    yield from gathered(_pairs(path, config, most_work), rows, longest)


def _pairs(path: Path, config: SqliteFormat, most_work: int) -> Iterator[Pair]:
    rules = {
        side: [Rule(re.compile(pattern), text) for where, pattern, text in config.replace if where == side]
        for side in ("source", "target")
    }
    work = 0

    def tired() -> bool:
        nonlocal work
        work += 1
        return work > most_work

    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
            connection.set_authorizer(_authorized)
            connection.set_progress_handler(tired, _STRIDE)
            cursor = connection.execute(config.query)
            names = [column[0] for column in cursor.description or ()]
            if not _REQUIRED <= set(names) <= _ALLOWED or len(names) != len(set(names)):
                raise FormatError(
                    f"the query on {path} gives the columns {', '.join(names) or 'none'}; it must give "
                    "source, target and perhaps key: write SELECT … AS source, … AS target"
                )
            for line, row in enumerate(cursor):
                work = 0
                given = {name: _text(value, name, path, line) for name, value in zip(names, row, strict=True)}
                yield Pair(
                    _replaced(given["source"] or "", rules["source"]),
                    _replaced(given["target"] or "", rules["target"]),
                    given.get("key"),
                )
    except sqlite3.Error as error:
        if work > most_work:
            raise FormatError(f"{path}: the query gave no row for a long time; simplify it") from error
        if any(word in str(error) for word in ("authoriz", "prohibited")):
            raise FormatError(
                f"{path}: the query would do more than read this file; write one SELECT without recursion"
            ) from error
        raise FormatError(f"{path}: the query failed: {error}") from error


def _authorized(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (name or "").lower() in _REFUSED:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _text(value: Any, name: str, path: Path, line: int) -> str | None:
    if isinstance(value, str) or (value is None and name == "key"):
        return value
    raise FormatError(
        f"{path}: row {line:,} of the query has {type(value).__name__} as {name}, not text; "
        "write CAST(… AS TEXT) or leave such rows out"
    )


def _replaced(text: str, rules: Sequence[Rule]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
