"""Pairs from the columns of a Parquet file, a row group at a time."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rnnsearch.pipeline.config import ParquetFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.json_lines import value_at
from rnnsearch.pipeline.formats.members import Place, looked_into, require_kind
from rnnsearch.pipeline.formats.sides import Pair, Sides, Unit, gathered
from rnnsearch.pipeline.formats.tmx import NO_SOURCE, NO_TARGET


def read_parquet(path: Path, config: ParquetFormat, rows: int, longest: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time; a row with a null side is dropped. Raises FormatError on other columns."""
    place = Place(path, alone=True)
    with looked_into(place) as found:
        require_kind(place, found.kind, ("parquet",))
    yield from gathered(_units(path, config, rows), rows, longest)


def _units(path: Path, config: ParquetFormat, rows: int) -> Iterator[Unit]:
    wanted = [name for name in (config.source, config.target, config.key) if name]
    try:
        with pq.ParquetFile(path) as file:
            leaves = [file.schema.column(leaf).path for leaf in range(len(file.schema))]
            if lacking := [name for name in wanted if name not in leaves]:
                raise FormatError(f"{path} has no column {lacking[0]!r}; it has {', '.join(leaves)}")
            for batch in file.iter_batches(batch_size=rows, columns=wanted):
                yield from (_unit(row, config) for row in batch.to_pylist())
    except pa.ArrowException as error:
        raise FormatError(f"{path} is not a whole Parquet file: {error}") from error


def _unit(row: dict[str, object], config: ParquetFormat) -> Unit:
    source, target = value_at(row, config.source), value_at(row, config.target)
    if source is None:
        return NO_SOURCE
    return (
        NO_TARGET
        if target is None
        else Pair(source, target, value_at(row, config.key) if config.key else None)
    )
