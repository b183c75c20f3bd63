"""Tables and real text for the tests of the text stages."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from rnnsearch.pipeline.schemas import PAIRS

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

MakePairs = Callable[..., pa.Table]
RealLines = Callable[[str, str], list[str]]


@pytest.fixture
def make_pairs() -> MakePairs:
    """Build a `PAIRS` table from (source, target) or (source, target, key) rows."""

    def build(rows: Sequence[tuple[str, ...]], corpus: str = "c", first: int = 0) -> pa.Table:
        columns = [
            pa.array([corpus] * len(rows), pa.string()).dictionary_encode(),
            pa.array(range(first, first + len(rows)), pa.int64()),
            pa.array([row[2] if len(row) > 2 else None for row in rows], pa.string()),
            pa.array([row[0] for row in rows], pa.string()),
            pa.array([row[1] for row in rows], pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=PAIRS)

    return build


@pytest.fixture
def real_lines() -> RealLines:
    """The lines of one real text, such as ("wmt/europarl-v7.fr-en", "fr"); skips where it is absent."""

    def read(name: str, language: str) -> list[str]:
        path = SHARED / f"{name}.{language}.gz"
        if not path.is_file():
            pytest.skip(f"the real text {path.name} is not beside this checkout")
        return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]

    return read
