"""The work of the stages that set something beside our test set, without a run: artifacts in, artifacts out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rnnsearch.flows.beside import evaluate_alignment, external
from rnnsearch.flows.job import Job, Place
from rnnsearch.flows.proof import Proof
from rnnsearch.flows.shards import shard_name, stored
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.schemas import ALIGNMENTS, PAIRS
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def file(store: Store, name: str, text: str) -> Digest:
    blob = store.put_bytes(text.encode())
    return store.write_artifact([FileEntry(name, blob.digest, blob.size, None)]).digest


def shards(store: Store, tables: Sequence[pa.Table]) -> Digest:
    return store.write_artifact(
        [stored(store, shard_name(k), table) for k, table in enumerate(tables)]
    ).digest


def aligned(*rows: tuple[int, int, str]) -> pa.Table:
    columns = {
        "corpus": pa.array(["test"] * len(rows)).dictionary_encode(),
        "line": list(range(len(rows))),
        "source_words": [source for source, _, _ in rows],
        "target_words": [target for _, target, _ in rows],
        "links": [links for _, _, links in rows],
        "entropy": [0] * len(rows),
    }
    return pa.table(columns).cast(ALIGNMENTS)


def pairs(targets: Sequence[str], first: int) -> pa.Table:
    columns = {
        "corpus": pa.array(["test"] * len(targets)).dictionary_encode(),
        "line": list(range(first, first + len(targets))),
        "key": pa.nulls(len(targets), pa.string()),
        "source": ["a"] * len(targets),
        "target": list(targets),
    }
    return pa.table(columns).cast(PAIRS)


def job(store: Store, inputs: Mapping[str, Digest], config: Mapping[str, Any] | None = None) -> Job:
    return Job(
        location=store.location,
        stage="stage",
        key=Digest("0" * 64),
        epoch=1,
        inputs=inputs,
        config=config or {},
        place=Place(),
        proof=Proof((), Digest(""), {}, {}),
    )


@pytest.mark.parametrize("trained", [True, False])
def test_the_other_directions_links_come_from_a_system_beside_ours_or_from_a_file(
    store: Store, trained: bool
) -> None:
    ours = shards(store, [aligned((2, 3, "0-0 1-2")), aligned((1, 1, "0-0"))])
    theirs = (
        shards(store, [aligned((3, 2, "0-0 2-1")), aligned((1, 1, ""))])
        if trained
        else file(store, "links", "0-0 2-1\n\n")
    )
    gold = file(store, "gold", "0-0 1p2\n\n")
    made = evaluate_alignment(job(store, {"alignments": ours, "backward": theirs, "gold": gold}))
    scores = json.loads(store.get_bytes(made["scores"][0].digest))
    assert scores["agreement"] == 0.8  # two links in common, of three and two
    assert (scores["gold"]["sentences"], scores["gold"]["error_rate"]) == (1, 0)


@pytest.mark.parametrize("tokens", [True, False])
def test_another_systems_lines_are_cut_into_the_shards_of_the_test_set(store: Store, tokens: bool) -> None:
    test = shards(store, [pairs(["l' eau .", "oui"], 0), pairs(["non"], 2)])
    text = file(store, "moses.fr", "l' eau .\n\nnon !\n" if tokens else "l'eau.\n\nnon !\n")
    sections = {"clean": CleanConfig().model_dump(), "tokenize": TokenizeConfig().model_dump()}
    made = external(
        job(store, {"file": text, "tokens": test}, {"tokens": tokens, **({} if tokens else sections)})
    )
    tables = [store.get_table(entry.digest) for entry in made["hypotheses"]]
    assert [entry.path for entry in made["hypotheses"]] == [shard_name(0), shard_name(1)]
    assert [table["hypothesis"].to_pylist() for table in tables] == [["l' eau .", ""], ["non !"]]
    assert [table["line"].to_pylist() for table in tables] == [[0, 1], [2]]
