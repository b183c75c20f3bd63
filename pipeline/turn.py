"""The other direction: pairs whose sides have changed places."""

from typing import NamedTuple

import pyarrow as pa


class Turned(NamedTuple):
    """The same rows, source and target exchanged."""

    pairs: pa.Table


def turn_shard(pairs: pa.Table) -> Turned:
    """Exchange the sides of PAIRS."""
    sides = {"source": "target", "target": "source"}
    columns = [pairs[sides.get(name, name)] for name in pairs.column_names]
    return Turned(pa.Table.from_arrays(columns, schema=pairs.schema))
