"""The Parquet writer: equal rows, equal bytes."""

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.errors import DamagedError, StoreError
from rnnsearch.storage.parquet import read_shape, read_table, write_table

SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("weights", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.float32()))))),
    ],
    metadata={"schema": "rows", "version": "1"},
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    rng = random.Random(3)
    return [
        {
            "corpus": rng.choice(["demo", "other", "third"]),
            "line": line,
            "text": rng.choice([None, "", "é " * rng.randrange(9), "plain"]),
            "ids": [rng.randrange(99) for _ in range(rng.randrange(6))],
            "score": rng.choice([None, 0.1 * line]),
            "weights": rng.choice([None, [], [[0.5], []]]),
        }
        for line in range(1000)
    ]


def _table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _split(rows: list[dict[str, object]], cuts: list[int]) -> pa.Table:
    """The same rows in batches, each with a dictionary of its own."""
    edges = [0, *cuts, len(rows)]
    parts = [_table(rows[low:high]) for low, high in itertools.pairwise(edges)]
    return pa.concat_tables(parts)


@pytest.mark.parametrize("cuts", [[1], [500], [0, 0, 7, 7, 999], list(range(1, 1000, 13))])
@pytest.mark.parametrize("group", [1 << 16, 100])
def test_equal_rows_make_equal_bytes_however_they_were_batched(
    rows: list[dict[str, object]], cuts: list[int], group: int
) -> None:
    whole, split = _table(rows), _split(rows, cuts)
    assert split["line"].num_chunks > 1
    assert write_table(split, group) == write_table(whole, group)


def test_equal_rows_make_equal_bytes_when_they_fill_many_pages() -> None:
    words = [f"{number} " * (number % 97) for number in range(30_000)]
    columns = {
        "text": words,
        "n": list(range(30_000)),
        "ids": [[number] * (number % 5) for number in range(30_000)],
    }
    whole = pa.table(columns)
    split = pa.concat_tables(
        [whole.slice(0, 1), whole.slice(1, 776), whole.slice(777, 20_000), whole.slice(20_777)]
    )
    assert write_table(split) == write_table(whole)


def test_equal_rows_make_equal_bytes_when_the_dictionary_has_unused_or_other_ordered_values(
    rows: list[dict[str, object]],
) -> None:
    codes = {"third": 0, "unused": 1, "other": 2, "demo": 3}
    indices = pa.array([codes[str(row["corpus"])] for row in rows], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(list(codes)))
    table = _table(rows)
    assert write_table(table.set_column(0, SCHEMA.field(0), column)) == write_table(table)


def test_equal_rows_make_equal_bytes_when_they_are_a_slice_a_filter_or_were_read_back(
    rows: list[dict[str, object]],
) -> None:
    table = _table(rows)
    wanted = write_table(_table(rows[100:200]))
    assert write_table(table.slice(100, 100)) == wanted
    assert write_table(table.filter([100 <= line < 200 for line in range(1000)])) == wanted
    assert write_table(table.take(list(range(100, 200)))) == wanted
    assert write_table(read_table(wanted)) == wanted
    assert write_table(read_table(write_table(table, 64)).slice(100, 100)) == wanted


def test_the_order_of_the_metadata_does_not_matter(rows: list[dict[str, object]]) -> None:
    table = _table(rows)
    turned = table.replace_schema_metadata({"version": "1", "schema": "rows"})
    assert write_table(turned) == write_table(table)


def test_rows_schema_and_metadata_come_back(rows: list[dict[str, object]]) -> None:
    table = _table(rows)
    back = read_table(write_table(table))
    assert back.to_pylist() == table.to_pylist()
    assert back.schema.equals(SCHEMA, check_metadata=True)
    assert read_shape(write_table(table)) == (1000, SCHEMA)


def test_an_empty_table_is_a_file(tmp_path: Path) -> None:
    empty = SCHEMA.empty_table()
    assert read_table(write_table(empty)).num_rows == 0
    assert write_table(pa.concat_tables([empty, empty])) == write_table(empty)


def test_bytes_do_not_depend_on_the_hash_seed_or_the_threads() -> None:
    code = (
        "import pyarrow as pa\n"
        "from rnnsearch.storage.digests import hash_bytes\n"
        "from rnnsearch.storage.parquet import write_table\n"
        "words = pa.array([str(i % 7) for i in range(1000)]).dictionary_encode()\n"
        "print(hash_bytes(write_table(pa.table({'a': words, 'b': range(1000)}))))\n"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    }
    assert len(seen) == 1


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not parquet at all" * 9])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedError, match="no Parquet file"):
        read_table(data)
    with pytest.raises(DamagedError, match="no Parquet file"):
        read_shape(data)


def test_a_dictionary_inside_a_list_is_refused() -> None:
    inner = pa.array(["a", "b"]).dictionary_encode()
    table = pa.table({"x": pa.ListArray.from_arrays([0, 1, 2], inner)})
    with pytest.raises(StoreError, match="column x has a dictionary inside"):
        write_table(table)


def test_the_bytes_of_this_table_are_known() -> None:
    """Golden for the pinned pyarrow: another version may write other bytes, and is in every recipe that writes."""
    if pa.__version__ != "26.0.1":
        pytest.skip(f"the digest is known for pyarrow 26.0.1, not {pa.__version__}")
    table = pa.table({"line": pa.array([0, 1, 2], pa.int64()), "text": ["a", "b", None]})
    assert hash_bytes(write_table(table)) == GOLDEN


GOLDEN = "cfda85e1007ae2fdbff25c779a1171feed94ebcb69ebea939a2ed3636574ca5a"
