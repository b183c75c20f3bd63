"""A worker that has other code than the key of its stage counts ends the stage, and records nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import rnnsearch
from rnnsearch.flows import kinds
from rnnsearch.flows.execution import ProcessTask, compute_process
from rnnsearch.flows.job import Files, Job, Place
from rnnsearch.flows.proof import CodeMismatchError, Proof, check, proof_of, proved
from rnnsearch.flows.recipe import code_of
from rnnsearch.flows.shards import ShardTask, compute_shard
from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

ROOTS = kinds.TURN.roots
TURN = "rnnsearch.pipeline.turn"
OTHER = hash_bytes(b"another source")
PROFILE = Path(rnnsearch.__path__[0]) / "flows" / "profiles" / "smoke.toml"
KERNELS = Path(rnnsearch.__path__[0]) / "model" / "kernels" / "kernels.cpp"


class Read(NamedTuple):
    """The output of `read_beside`."""

    pairs: pa.Table


def read_beside(pairs: pa.Table) -> Read:
    """A stage that reads a file beside the code."""
    PROFILE.read_text(encoding="utf-8")
    return Read(pairs)


def read_beside_in_a_process(job: Job) -> Files:
    """The same as a process."""
    PROFILE.read_text(encoding="utf-8")
    return {"pairs": []}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def _task(store: Store, proof: Proof, function: str = f"{TURN}:turn_shard") -> ShardTask:
    blob = store.put_table(pa.table({"source": ["a"], "target": ["b"]}))
    recipe = Recipe(stage="turn", code=proof.code, inputs={"pairs": blob.digest}, python="3.11")
    return ShardTask(
        location=store.location,
        function=function,
        shard={"pairs": blob.digest},
        whole={},
        config={},
        recipe=recipe,
        part_of=recipe.key,
        proof=proof,
    )


def _sources(**changed: str) -> Mapping[str, str]:
    return {
        **proof_of(ROOTS).modules,
        **{f"rnnsearch.{name.replace('_', '.')}": new for name, new in changed.items()},
    }


def test_a_worker_with_the_code_that_the_key_counts_computes_and_records(store: Store) -> None:
    result = compute_shard(_task(store, proof_of(ROOTS)))
    assert store.get_table(result.files["pairs"].digest)["source"].to_pylist() == ["b"]
    (attempt,) = store.shards.history("turn")
    assert attempt.placement["host"] == result.as_run.host


def test_a_worker_with_another_version_of_the_package_is_refused_and_records_nothing(store: Store) -> None:
    theirs = proof_of(ROOTS)._replace(code=OTHER, modules=_sources(pipeline_turn=OTHER))
    with pytest.raises(
        CodeMismatchError, match=r"has another rnnsearch\.pipeline\.turn than the key .* run again"
    ):
        compute_shard(_task(store, theirs))
    assert store.shards.history("turn") == []


def test_a_source_that_was_edited_after_a_worker_loaded_it_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_loaded(), TURN, OTHER)
    with pytest.raises(CodeMismatchError, match=TURN.replace(".", r"\.")):
        compute_shard(_task(store, proof_of(ROOTS)))
    assert store.shards.history("turn") == []


def test_a_module_that_was_loaded_past_the_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_loaded(), TURN)
    with pytest.raises(CodeMismatchError, match=TURN.replace(".", r"\.")):
        check(proof_of(ROOTS))


def test_a_source_that_differs_in_what_is_not_counted_is_accepted() -> None:
    comments = proof_of(ROOTS)._replace(modules=_sources(pipeline_turn=OTHER))
    check(comments)  # the digest of the definitions is the same


def test_a_file_of_the_package_that_the_key_does_not_count_cannot_be_read(store: Store) -> None:
    proof = proof_of(ROOTS)
    with pytest.raises(CodeMismatchError, match=r"opened .*smoke\.toml, which its key does not count"):
        compute_shard(_task(store, proof, f"{__name__}:read_beside"))
    assert store.shards.history("turn") == []
    assert PROFILE.read_text(encoding="utf-8"), "after the work every file may be read"
    job = Job(
        location=store.location,
        stage="turn",
        key=proof.code,
        epoch=1,
        inputs={},
        config={},
        place=Place(),
        proof=proof,
    )
    with pytest.raises(CodeMismatchError, match=r"smoke\.toml"):
        compute_process(ProcessTask(f"{__name__}:read_beside_in_a_process", job))


@pytest.mark.parametrize("path", [KERNELS, KERNELS.resolve()])
def test_a_file_that_the_key_counts_can_be_read_by_either_name(path: Path) -> None:
    with proved(proof_of(kinds.ALIGN.roots)):
        assert path.read_text(encoding="utf-8")


def test_another_content_of_a_file_that_the_key_counts_is_refused() -> None:
    proof = proof_of(kinds.ALIGN.roots)
    assert set(proof.files) == {"model/kernels/kernels.cpp"}
    with pytest.raises(CodeMismatchError, match=r"has another model/kernels/kernels\.cpp"):
        check(proof._replace(files=dict.fromkeys(proof.files, OTHER)))


def test_modules_that_are_imported_while_the_work_goes_on_are_compared_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CodeMismatchError, match=TURN.replace(".", r"\.")), proved(proof_of(ROOTS)):
        monkeypatch.setitem(_loaded(), TURN, OTHER)


def test_a_proof_names_the_sources_of_every_module_that_the_digest_counts() -> None:
    proof = proof_of(ROOTS)
    assert proof.code == code_of(ROOTS).digest
    assert {part.partition(":")[0] for part in code_of(ROOTS).parts} == set(proof.modules)
    assert all(len(digest) == 64 for digest in proof.modules.values())


def _loaded() -> dict[str, str]:
    from rnnsearch.storage.loading import LOADED

    return LOADED
