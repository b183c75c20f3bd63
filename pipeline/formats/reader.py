"""From local files to tables of pairs, whatever their format (architecture 5, ingest)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.pipeline.config import (
    LONGEST,
    Format,
    GettextFormat,
    JsonLinesFormat,
    ParquetFormat,
    PlainFormat,
    SgmlFormat,
    SqliteFormat,
    TableFormat,
    TmxFormat,
    WmtFormat,
    XliffFormat,
)
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.gettext import read_gettext
from rnnsearch.pipeline.formats.json_lines import read_json_lines
from rnnsearch.pipeline.formats.members import Place, is_archive, looked_into, require_kind
from rnnsearch.pipeline.formats.parquet import read_parquet
from rnnsearch.pipeline.formats.plain import read_plain
from rnnsearch.pipeline.formats.sgml import read_sgml
from rnnsearch.pipeline.formats.sides import Sides
from rnnsearch.pipeline.formats.sqlite import read_sqlite
from rnnsearch.pipeline.formats.table import read_table
from rnnsearch.pipeline.formats.tmx import read_tmx
from rnnsearch.pipeline.formats.wmt import read_wmt
from rnnsearch.pipeline.formats.xliff import read_xliff
from rnnsearch.pipeline.schemas import DROPPED, PAIRS

_FEWEST = 20  # pairs: fewer may all be equal by chance, such as names and numbers
_KEY_EDGES = "^[\ufeff\\s]+|\\s+$"


_KINDS: Mapping[str, tuple[str, ...]] = {
    "plain": ("text",),
    "sgml": ("text", "sgml"),
    "gettext": ("text", "mo"),
    "sqlite": ("sqlite",),
    "tmx": ("tmx",),
    "xliff": ("xliff",),
    "wmt": ("wmt",),
    "tsv": ("text",),
    "csv": ("text",),
    "jsonl": ("text",),
    "parquet": ("parquet",),
}
_QUICK = 1 << 26  # bytes of a tar that is looked through for a member


class Read(NamedTuple):
    """Some pairs of a corpus, PAIRS, and what was dropped beside them, DROPPED."""

    pairs: pa.Table
    dropped: pa.Table


def read_pairs(
    paths: Path | Sequence[Path],
    corpus: str,
    format: Format,  # noqa: A002
    rows_per_shard: int,
    longest: int = LONGEST,
) -> Iterator[Read]:
    """The pairs of a corpus in tables of at most `rows_per_shard` rows.

    `paths` is one file, a folder, or a file for each side: source, target and perhaps key. `line` counts from 0 in
    the order of the file; a dropped unit is counted too, except in gettext, where it counts in the catalogue only.
    A key loses a byte order mark and outer spaces, and an empty one is none. A table is in memory at a time, except
    for gettext, SGML and WMT's XML, whose files are small.

    Raises FormatError: what is wrong, where, and what to do; also where both sides are the same text throughout.
    """
    given = [paths] if isinstance(paths, Path) else list(paths)
    line, all_equal = 0, True
    for sides in _sides(given, format, rows_per_shard, longest):
        pairs = _pairs(corpus, line, sides)
        line += pairs.num_rows
        all_equal = all_equal and bool(pc.all(pc.equal(sides.source, sides.target)).as_py())
        yield Read(pairs, _dropped(corpus, sides))
    if all_equal and line >= _FEWEST:
        raise FormatError(
            f"{given[0]}: source and target are the same text in all {line:,} pairs; name a file for each side"
        )


def side_places(paths: Sequence[Path], format: Format) -> tuple[Place, ...]:  # noqa: A002
    """Where each side of a corpus is. Raises FormatError where the files do not fit the format."""
    if isinstance(format, PlainFormat | SgmlFormat):
        names = [format.source, format.target]
        if isinstance(format, PlainFormat) and (format.key or len(paths) > len(names)):
            names.append(format.key)
        if len(paths) == 1:
            if not all(names[:2]):
                raise FormatError(
                    f"{paths[0]}: the format names no file for a side; set `source` and `target`, "
                    "or give a source for each side"
                )
            if names[0] == names[1]:
                raise FormatError(f"{paths[0]}: name two different files in it, `source` and `target`")
            return tuple(Place(paths[0], name) for name in names)
        if len(paths) != len(names):
            raise FormatError(
                f"{len(names)} sides (source, target and key) have {len(paths)} sources; give one for each"
            )
        places = tuple(Place(path, name, alone=True) for path, name in zip(paths, names, strict=True))
        _refuse_one_file(places[0], places[1])
        return places
    if len(paths) > 1:
        raise FormatError(f"format {format.format!r} reads one source, not {len(paths)}")
    return (Place(paths[0], getattr(format, "member", ""), alone=True),)


def check_files(paths: Sequence[Path], format: Format) -> None:  # noqa: A002
    """Raise FormatError where first bytes or names show that `read_pairs` would. Quick: a large tar is not walked."""
    for place in side_places(paths, format):
        if place.path.is_file() and (place.path.stat().st_size <= _QUICK or place.alone):
            with looked_into(place) as found:
                require_kind(place, found.kind, _KINDS[format.format])


def _sides(paths: Sequence[Path], config: Format, rows: int, longest: int) -> Iterator[Sides]:
    places = side_places(paths, config)
    match config:
        case PlainFormat():
            return read_plain(places, rows, longest)
        case SgmlFormat():
            return read_sgml(places[0], places[1], rows, longest)
        case GettextFormat():
            return read_gettext(places[0], rows, longest)
        case SqliteFormat():
            return read_sqlite(places[0].path, config, rows, longest)
        case TmxFormat():
            return read_tmx(places[0], config, rows, longest)
        case XliffFormat():
            return read_xliff(places[0], rows, longest)
        case WmtFormat():
            return read_wmt(places[0], config, rows, longest)
        case TableFormat():
            return read_table(places[0], config, rows, longest)
        case JsonLinesFormat():
            return read_json_lines(places[0], config, rows, longest)
        case ParquetFormat():
            return read_parquet(places[0].path, config, rows, longest)


def _refuse_one_file(source: Place, target: Place) -> None:
    there = source.path.is_file() and target.path.is_file()
    same = source.path.samefile(target.path) if there else source.path == target.path
    if same and (source.name == target.name or not (there and is_archive(source.path))):
        raise FormatError(f"{source.path} is given as both source and target; give a file for each side")


def _pairs(corpus: str, first: int, sides: Sides) -> pa.Table:
    rows = len(sides.source)
    lines = np.arange(first, first + rows) if sides.lines is None else np.asarray(sides.lines)
    key = pa.nulls(rows, pa.string()) if sides.key is None else _key(sides.key)
    columns = [_named(corpus, rows), pa.array(lines.astype(np.int64)), key, sides.source, sides.target]
    return pa.Table.from_arrays(columns, schema=PAIRS)


def _dropped(corpus: str, sides: Sides) -> pa.Table:
    lines = pa.array([each.line for each in sides.dropped], pa.int64())
    reasons = pa.array([each.reason for each in sides.dropped], DROPPED.field("reason").type)
    nothing = [pa.nulls(len(lines), DROPPED.field(name).type) for name in ("partner", "threshold")]
    return pa.Table.from_arrays([_named(corpus, len(lines)), lines, reasons, *nothing], schema=DROPPED)


def _named(corpus: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([corpus], pa.string()))


def _key(keys: pa.Array) -> pa.Array:
    bare = pc.replace_substring_regex(keys, _KEY_EDGES, "")
    return pc.if_else(pc.equal(bare, ""), pa.scalar(None, pa.string()), bare)
