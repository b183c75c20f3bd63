"""Lineage up, down, and of a row."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.errors import MissingError, StoreError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.lineage import (
    Branch,
    RunUse,
    downstream,
    ends_of,
    find_subject,
    read_graph,
    trace_row,
    upstream,
    uses_of,
)
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import RunState, StageUse
from rnnsearch.storage.store import Store

RecipeMaker = Callable[..., Recipe]


@pytest.fixture
def chain(store: Store, recipe: RecipeMaker) -> dict[str, Attempt]:
    """raw → clean → (count, train); train also takes count."""

    def table(lines: list[int], **columns: list[str]) -> FileEntry:
        corpus = pa.array(["demo"] * len(lines)).dictionary_encode()
        data = pa.table({"corpus": corpus, "line": pa.array(lines, pa.int64()), **columns})
        return FileEntry("shard-00000.parquet", *store.put_table(data, row_group_size=2), len(lines))

    def artifact(*files: FileEntry) -> Digest:
        return store.write_artifact(files).digest

    raw = store.ledger.record(
        recipe("ingest"), {"pairs": artifact(table([0, 1, 2, 3], source=["a", "b", "c", ""]))}
    )
    clean = store.ledger.record(
        recipe("clean", inputs=raw.outputs),
        {
            "kept": artifact(table([0, 1, 2], source=["a", "b", "c"])),
            "dropped": artifact(table([3], reason=["empty"])),
        },
    )
    kept = {"pairs": clean.outputs["kept"]}
    words = FileEntry("words.parquet", *store.put_table(pa.table({"word": ["a"]})), 1)
    count = store.ledger.record(recipe("count", inputs=kept), {"counts": artifact(words)})
    model = FileEntry("model.bin", *store.put_bytes(b"model"), None)
    train = store.ledger.record(
        recipe("train/x", inputs={**kept, "counts": count.outputs["counts"]}), {"model": artifact(model)}
    )
    return {"raw": raw, "clean": clean, "count": count, "train": train}


def _names(branches: tuple[Branch, ...]) -> list[object]:
    return [
        (
            branch.name,
            branch.attempt.stage if branch.attempt else None,
            branch.repeated,
            _names(branch.branches),
        )
        for branch in branches
    ]


def test_up_to_the_beginning(store: Store, chain: dict[str, Attempt]) -> None:
    assert _names(upstream(read_graph(store), chain["train"])) == [
        ("counts", "count", False, [("pairs", "clean", False, [("pairs", "ingest", False, [])])]),
        ("pairs", "clean", True, []),
    ]


def test_down_to_the_end(store: Store, chain: dict[str, Attempt]) -> None:
    assert _names(downstream(read_graph(store), chain["raw"])) == [
        (
            "pairs",
            "clean",
            False,
            [("kept", "count", False, [("counts", "train/x", False, [])]), ("kept", "train/x", True, [])],
        )
    ]


def test_an_input_without_a_record_ends_the_branch(store: Store, recipe: RecipeMaker) -> None:
    attempt = store.ledger.record(recipe(inputs={"pairs": hash_bytes(b"gone")}), {})
    assert _names(upstream(read_graph(store), attempt)) == [("pairs", None, False, [])]


def test_of_several_makers_the_preferred_or_the_newest_standing_is_told(
    store: Store, chain: dict[str, Attempt], recipe: RecipeMaker
) -> None:
    adopted = store.ledger.adopt(recipe("clean", code=hash_bytes(b"new")), chain["clean"], "why")
    graph = read_graph(store)
    kept = chain["clean"].outputs["kept"]
    link = graph.maker(kept)
    assert link is not None
    assert link.attempt == adopted
    link = graph.maker(kept, {(chain["clean"].key, 1)})
    assert link is not None
    assert link.attempt == chain["clean"]
    store.ledger.undo(adopted.key, "clean")
    link = read_graph(store).maker(kept)
    assert link is not None
    assert link.attempt == chain["clean"]


def test_a_word_finds_what_it_names(store: Store, chain: dict[str, Attempt]) -> None:
    run = store.runs.start({})
    for each in ("raw", "clean", "train"):
        store.runs.record_stage(run.id, StageUse(chain[each].stage, chain[each].key, 1, False, "", 0.0))
    store.runs.tag(run.id, "paper")
    graph = read_graph(store)
    for word in (run.id, "paper"):
        subject = find_subject(store, graph, word)
        assert subject.run is not None
        assert subject.attempts == (chain["raw"], chain["clean"], chain["train"])
    assert ends_of(subject.attempts) == (chain["train"],)
    assert find_subject(store, graph, "train/x").attempts == (chain["train"],)
    assert find_subject(store, graph, chain["count"].key[:10]).attempts == (chain["count"],)
    model = chain["train"].outputs["model"]
    assert find_subject(store, graph, model[:10]) == ((chain["train"],), None, model, False)
    for word in ("nothing", "abc"):
        with pytest.raises(MissingError, match="nothing in"):
            find_subject(store, graph, word)


def test_a_word_that_names_several_things_is_refused(store: Store, recipe: RecipeMaker) -> None:
    made = store.ledger.record(recipe(), {"kept": hash_bytes(b"x")})
    store.ledger.record(recipe("other"), {"kept": Digest(made.key[:20] + "0" * 44)})
    with pytest.raises(StoreError, match="1 recipes and 1 artifacts"):
        find_subject(store, read_graph(store), made.key[:12])


def test_a_row_is_followed_through_the_stages(store: Store, chain: dict[str, Attempt]) -> None:
    attempts = list(chain.values())
    seen = list(trace_row(store, attempts, "demo", 3))
    assert [(each.stage, each.output, each.row) for each in seen] == [
        ("ingest", "pairs", {"corpus": "demo", "line": 3, "source": ""}),
        ("clean", "dropped", {"corpus": "demo", "line": 3, "reason": "empty"}),
    ]
    assert [each.output for each in trace_row(store, attempts, "demo", 1)] == ["pairs", "kept"]
    assert list(trace_row(store, attempts, "other", 1)) == []
    assert list(trace_row(store, attempts, "demo", 99)) == []


def _run(store: Store, *attempts: Attempt, state: RunState = "finished", hit: bool = False) -> str:
    run = store.runs.start({})
    for each in attempts:
        store.runs.record_stage(run.id, StageUse(each.stage, each.key, each.number, hit, "", 0.0))
    store.runs.finish(run.id, state)
    return run.id


def test_a_stage_is_that_of_the_last_finished_run_unless_another_run_is_named(
    store: Store, chain: dict[str, Attempt], recipe: RecipeMaker
) -> None:
    first = _run(store, *chain.values())
    trial = store.ledger.record(recipe("train/x", config={"seed": 2}), {"model": hash_bytes(b"trial")})
    failed = _run(store, trial, state="failed")
    _run(store, chain["raw"])  # finished, without this stage
    graph = read_graph(store)
    subject = find_subject(store, graph, "train/x")
    assert subject.attempts == (chain["train"],)
    assert subject.run is not None
    assert subject.run.id == first
    assert find_subject(store, graph, "train/x", failed).attempts == (trial,)
    with pytest.raises(MissingError, match="did not use count"):
        find_subject(store, graph, "count", failed)


def test_a_stage_that_no_finished_run_used_is_its_newest_attempt(
    store: Store, chain: dict[str, Attempt]
) -> None:
    _run(store, *chain.values(), state="failed")
    subject = find_subject(store, read_graph(store), "train/x")
    assert (subject.attempts, subject.run) == ((chain["train"],), None)


@pytest.fixture
def namesakes(store: Store, recipe: RecipeMaker) -> dict[str, Attempt]:
    """a → b → c, where a and b give equal bytes; c read those of b."""
    digest = store.write_artifact([FileEntry("file", *store.put_bytes(b"same"), None)]).digest
    a = store.ledger.record(recipe("a"), {"out": digest})
    made = {"made_by": {"pairs": "a:out"}}
    b = store.ledger.record(recipe("b", inputs={"pairs": digest}), {"out": digest}, observations=made)
    made = {"made_by": {"pairs": "b:out"}}
    c = store.ledger.record(
        recipe("c", inputs={"pairs": digest}), {"out": hash_bytes(b"c")}, observations=made
    )
    return {"a": a, "b": b, "c": c}


def test_down_follows_what_was_read_and_not_a_namesake_of_equal_bytes(
    store: Store, namesakes: dict[str, Attempt]
) -> None:
    graph = read_graph(store)
    below = [("out", "c", False, [])]
    assert _names(downstream(graph, namesakes["b"])) == below
    assert _names(downstream(graph, namesakes["a"])) == [("out", "b", False, below)]


def test_down_of_records_without_makers_draws_no_stage_as_its_own_child(
    store: Store, recipe: RecipeMaker
) -> None:
    digest = hash_bytes(b"same")
    same = store.ledger.record(recipe("same", inputs={"pairs": digest}), {"out": digest})
    assert downstream(read_graph(store), same) == ()


def test_down_stays_within_the_attempts_of_a_run(store: Store, chain: dict[str, Attempt]) -> None:
    within = {(chain[name].key, 1) for name in ("clean", "count")}
    assert _names(downstream(read_graph(store), chain["raw"], None, within)) == [
        ("pairs", "clean", False, [("kept", "count", False, [])])
    ]


def test_the_runs_that_used_an_artifact_or_a_stage_are_listed_with_how(
    store: Store, chain: dict[str, Attempt]
) -> None:
    first = _run(store, chain["raw"], chain["clean"])
    second = _run(store, chain["clean"], state="failed", hit=True)
    graph = read_graph(store)
    clean = chain["clean"].key
    assert uses_of(store, graph, "clean") == (
        RunUse(first, "finished", "clean", "computed", clean),
        RunUse(second, "failed", "clean", "cached", clean),
    )
    assert uses_of(store, graph, chain["raw"].outputs["pairs"]) == (
        RunUse(first, "finished", "ingest", "computed", chain["raw"].key),
        RunUse(first, "finished", "clean", "read", clean),
        RunUse(second, "failed", "clean", "read", clean),
    )
    assert uses_of(store, graph, "train/x") == ()
