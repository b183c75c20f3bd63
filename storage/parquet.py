"""The one Parquet writer: equal rows of equal schema make equal bytes, however they were batched.

Chunks are combined and dictionaries made anew in order of first appearance; the options below are fixed. The file
names the version of the library that wrote it, so `pyarrow` is among the libraries of every stage that writes.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rnnsearch.storage.blobs import Blob, Blobs
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import DamagedError, StoreError

ROWS_PER_GROUP = 1 << 16

_COLUMN_LIMIT = 1 << 31  # bytes: above it Arrow cannot combine a column of strings into one chunk


class Shape(NamedTuple):
    """What a Parquet file says of itself."""

    rows: int
    schema: pa.Schema


def put_table(blobs: Blobs, table: pa.Table, row_group_size: int = ROWS_PER_GROUP) -> Blob:
    """Store a table as Parquet: equal rows of equal schema give equal digests."""
    return blobs.put_bytes(write_table(table, row_group_size))


def get_table(blobs: Blobs, digest: Digest) -> pa.Table:
    """The table of a blob, verified; MissingError or DamagedError."""
    return read_table(blobs.get_bytes(digest))


def write_table(table: pa.Table, row_group_size: int = ROWS_PER_GROUP) -> bytes:
    """The Parquet file of a table; its schema's metadata is kept."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        canonical(table),
        sink,
        row_group_size=row_group_size,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        store_schema=True,
    )
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """The table of a Parquet file; DamagedError if it is none."""
    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"these {len(data)} bytes are no Parquet file: {error}") from error


def read_shape(data: bytes) -> Shape:
    """The rows and schema of a Parquet file, from its footer; DamagedError if it is none."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"these {len(data)} bytes are no Parquet file: {error}") from error
    return Shape(file.metadata.num_rows, file.schema_arrow)


def canonical(table: pa.Table) -> pa.Table:
    """The same rows in one chunk a column, with dictionaries in order of first appearance and sorted metadata."""
    columns = [_canonical_column(table.column(index), field) for index, field in enumerate(table.schema)]
    metadata = table.schema.metadata
    schema = table.schema.with_metadata(dict(sorted(metadata.items())) if metadata else None)
    return pa.Table.from_arrays(columns, schema=schema)


def _canonical_column(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    if column.nbytes >= _COLUMN_LIMIT:
        raise StoreError(
            f"column {field.name} has {column.nbytes} bytes; a file takes fewer than {_COLUMN_LIMIT}: cut it"
        )
    kind = field.type
    if pa.types.is_dictionary(kind):
        values = column.cast(kind.value_type).combine_chunks()
        return values.dictionary_encode().cast(kind)
    if _has_dictionary(kind):
        raise StoreError(
            f"column {field.name} has a dictionary inside {kind}; only whole columns may be dictionaries"
        )
    return column.combine_chunks()


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))
