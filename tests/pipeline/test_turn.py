import pyarrow as pa

from rnnsearch.pipeline.schemas import PAIRS
from rnnsearch.pipeline.turn import turn_shard

TABLE = pa.table(
    {
        "corpus": pa.array(["a", "b"]).dictionary_encode(),
        "line": [3, 4],
        "key": ["x", None],
        "source": ["the cat", "a dog"],
        "target": ["le chat", "un chien"],
    }
).cast(PAIRS)


def test_the_sides_change_places_and_nothing_else_does() -> None:
    turned = turn_shard(TABLE).pairs
    assert turned.schema.equals(PAIRS, check_metadata=True)
    assert turned["source"].to_pylist() == ["le chat", "un chien"]
    assert turned["target"].to_pylist() == ["the cat", "a dog"]
    assert turned.select(["corpus", "line", "key"]).equals(TABLE.select(["corpus", "line", "key"]))
    assert turn_shard(turned).pairs.equals(TABLE)
