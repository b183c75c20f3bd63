"""gc: what no kept run reaches goes, all else stays, also beside a run."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rnnsearch.storage import gc
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.backends import FileState
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.errors import MissingError
from rnnsearch.storage.gc import StageBytes, collect, plan_gc
from rnnsearch.storage.leases import LeaseBusyError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import Run, StageUse
from rnnsearch.storage.store import Store
from rnnsearch.storage.verify import verify

RecipeMaker = Callable[..., Recipe]


class House:
    """A small pipeline of two stages: `clean` over two shards, then the fold `count`."""

    def __init__(self, store: Store, recipe: RecipeMaker) -> None:
        self.store = store
        self._recipe = recipe

    def run(self, name: str, *, state: str = "finished", raw: str = "raw") -> Run:
        """A run whose setting of `clean` is `name`."""
        store = self.store
        run = store.runs.start({"name": name})
        source = self._stage(run, "ingest", {}, {}, [f"{raw}0".encode(), f"{raw}1".encode()])
        cleaned = self._stage(run, "clean", {"name": name}, source.outputs, [f"{name}0".encode(), b"shared"])
        self._stage(run, "count", {}, cleaned.outputs, [f"counts of {name}".encode()], partials=True)
        if state != "running":
            store.runs.finish(run.id, state)  # type: ignore[arg-type]
            store.pins.release()  # as at the end of its process
        return run

    def _stage(
        self,
        run: Run,
        stage: str,
        config: dict[str, str],
        inputs: object,
        files: list[bytes],
        *,
        partials: bool = False,
    ) -> Attempt:
        store = self.store
        recipe = self._recipe(stage, config=config, inputs=dict(inputs))  # type: ignore[call-overload]
        known = store.ledger.latest(recipe.key, stage)
        hit = known is not None and all(store.keep(digest) for digest in known.outputs.values())
        if not hit:
            for artifact in recipe.inputs.values():
                for entry in store.read_artifact(artifact).files:
                    data = store.get_bytes(entry.digest)
                    part = store.put_bytes(b"part of " + data if partials else config["name"].encode() + data)
                    shard = replace(recipe, stage=f"{stage} shard", inputs={"shard": entry.digest})
                    store.shards.record(shard, {"out": part.digest}, part_of=recipe.key)
            blobs = [store.put_bytes(data) for data in files]
            entries = [FileEntry(f"shard-{n:05}", blob.digest, blob.size, 1) for n, blob in enumerate(blobs)]
            known = store.ledger.record(recipe, {"out": store.write_artifact(entries).digest})
        assert known is not None
        store.runs.record_stage(run.id, StageUse(stage, known.key, known.number, hit, "", 0.0))
        return known


@pytest.fixture
def house(store: Store, recipe: RecipeMaker) -> House:
    return House(store, recipe)


def _intact(store: Store, run: Run) -> bool:
    attempts = [store.ledger.attempt(use.key, use.attempt, use.stage) for use in store.runs.get(run.id).uses]
    return all(store.intact(digest) for attempt in attempts if attempt for digest in attempt.outputs.values())


def test_nothing_goes_while_all_runs_are_kept(house: House) -> None:
    for name in "abc":
        house.run(name)
    plan = plan_gc(house.store, keep_last=3)
    assert (plan.blobs, plan.attempts, plan.shards, plan.stages, plan.bytes) == ((), (), (), (), 0)
    assert collect(house.store, keep_last=3).blobs == ()


def test_what_only_old_runs_reach_goes_and_shared_blobs_stay(house: House) -> None:
    old, new = house.run("a"), house.run("b")
    store = house.store
    plan = plan_gc(store, keep_last=1)
    assert plan.runs == (new.id,)
    assert {attempt.stage for attempt in plan.attempts} == {"clean", "count"}
    before = set(store.blobs.digests())
    assert collect(store, keep_last=1) == plan
    assert set(store.blobs.digests()) == before - set(plan.blobs)
    assert _intact(store, new)
    assert not _intact(store, old)
    assert store.get_bytes(hash_bytes(b"shared")) == b"shared"
    with pytest.raises(MissingError):
        store.get_bytes(hash_bytes(b"a0"))
    assert store.blobs.thrown_away() == []
    assert collect(store, keep_last=1).blobs == ()


def test_the_plan_looks_at_no_blob_that_goes_one_by_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.run("a")
    house.run("b")
    looked: list[str] = []
    stat = house.store.backend.stat

    def noted(name: str) -> FileState | None:
        looked.append(name)
        return stat(name)

    monkeypatch.setattr(house.store.backend, "stat", noted)
    plan = plan_gc(house.store, keep_last=1)
    manifests = {digest for attempt in plan.attempts for digest in attempt.outputs.values()}
    assert set(plan.blobs) - manifests
    assert not {name.rpartition("/")[2] for name in looked} & (set(plan.blobs) - manifests)


def _content(store: Store) -> dict[Path, bytes]:
    """Every file but those of this host's cache, such as the index."""
    files = (path for path in Path(store.location).rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if not path.is_relative_to(store.backend.cache)}


def test_the_plan_tells_bytes_by_stage_and_changes_nothing(house: House) -> None:
    house.run("a")
    house.run("b")
    store = house.store
    before = _content(store)
    plan = plan_gc(store, keep_last=1)
    assert _content(store) == before
    stages = {stage.stage: stage for stage in plan.stages}
    assert set(stages) == {"clean", "count", "clean shard (shards)", "count shard (shards)"}
    manifest = next(each for each in plan.attempts if each.stage == "count").outputs["out"]
    size = store.blobs.size(manifest)
    assert size is not None
    assert stages["count"] == StageBytes("count", 1, 2, size + len(b"counts of a"))
    assert plan.bytes == sum(store.blobs.size(digest) or 0 for digest in plan.blobs)


@pytest.mark.parametrize("why", ["tag", "running", "lease", "pin", "last finished"])
def test_a_reason_to_keep_keeps(house: House, why: str) -> None:
    store = house.store
    old = house.run("a", state="running" if why == "running" else "finished")
    house.run("b", state="failed" if why == "last finished" else "finished")
    count = store.runs.get(old.id).use("count")
    assert count is not None
    attempt = store.ledger.latest(count.key)
    assert attempt is not None
    if why == "tag":
        store.runs.tag(old.id, "paper")
    if why == "pin":
        assert store.keep(attempt.outputs["out"])
    if why == "lease":
        with store.leases.hold("work", needs=[attempt.outputs["out"]]):
            collect(store, keep_last=1)
    else:
        collect(store, keep_last=1)
    assert store.intact(attempt.outputs["out"])
    assert _intact(store, old) or why in {"lease", "pin"}  # these keep one artifact, not the run


def test_what_gc_took_is_neither_missed_nor_served(house: House) -> None:
    old = house.run("a")
    house.run("b")
    store = house.store
    collect(store, keep_last=1)
    use = store.runs.get(old.id).use("clean")
    assert use is not None
    assert store.ledger.latest(use.key) is None
    assert [attempt.withdrawn for attempt in store.ledger.attempts(use.key)] == ["collected"]
    assert verify(store).sound
    assert _intact(store, house.run("a"))  # it is made again


def test_partial_values_of_kept_stages_stay_for_the_next_run(house: House) -> None:
    house.run("a")
    house.run("b")
    store = house.store
    collect(store, keep_last=1)
    left = {shard.stage: shard for shard in store.shards.history("count shard")}
    assert store.blobs.intact(left["count shard"].outputs["out"])
    assert store.blobs.intact(hash_bytes(b"part of b0"))
    assert not store.blobs.intact(hash_bytes(b"part of a0"))
    assert not store.blobs.intact(hash_bytes(b"araw0"))  # its input stays, but its setting is no kept stage's


def test_the_work_of_a_killed_stage_stays_until_it_is_resumed(house: House, recipe: RecipeMaker) -> None:
    run = house.run("a")
    store = house.store
    use = store.runs.get(run.id).use("ingest")
    assert use is not None
    source = store.ledger.latest(use.key)
    assert source is not None
    killed = recipe("clean", config={"name": "c"}, inputs=source.outputs)
    done = store.put_bytes(b"half of the work")
    shard = replace(killed, stage="clean shard", inputs={"shard": hash_bytes(b"raw0")})
    store.shards.record(shard, {"out": done.digest}, part_of=killed.key)
    store.pins.release()
    collect(store, keep_last=1)
    assert store.blobs.intact(done.digest)


def test_blobs_without_a_record_stay_while_a_run_lives(house: House) -> None:
    store = house.store
    digest = store.put_bytes(b"just written").digest
    assert collect(store).blobs == ()  # its process lives
    store.pins.release()  # as of a worker that ended
    with store.leases.hold("work"):
        assert digest not in collect(store).blobs
    run = store.runs.start({})
    assert digest not in collect(store).blobs
    store.runs.finish(run.id, "failed")
    assert collect(store).blobs == (digest,)
    assert store.blobs.size(digest) is None


def test_a_pin_of_a_dead_process_keeps_nothing(store: Store) -> None:
    code = (
        "import sys; from rnnsearch.storage.store import Store; "
        "s = Store.open(sys.argv[1]); s.put_bytes(b'x'); s.put_bytes(b'x')"
    )
    subprocess.run([sys.executable, "-c", code, store.location], check=True)
    assert len(list((Path(store.location) / "tmp").iterdir())) == 1
    assert collect(store).blobs == (hash_bytes(b"x"),)
    Store.open(store.location)
    assert list((Path(store.location) / "tmp").iterdir()) == []


def test_a_write_while_gc_is_at_work_brings_back_or_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the worst moment, after the throwing away: a put, a hit, a read and a new run of what was condemned."""
    store = house.store
    house.run("a")
    house.run("b")
    other = Store.open(store.location)
    judge = gc._finish
    seen: list[Run] = []

    def between(*arguments: object) -> object:
        assert store.blobs.thrown_away()
        seen.append(house.run("a", state="running"))
        assert other.put_bytes(b"araw0").digest == hash_bytes(b"araw0")
        return judge(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(gc, "_finish", between)
    collect(store, keep_last=1)
    assert all(use.hit for use in store.runs.get(seen[0].id).uses)
    assert _intact(store, seen[0])
    assert store.get_bytes(hash_bytes(b"araw0")) == b"araw0"
    assert store.blobs.thrown_away() == []


def test_what_was_looked_at_just_before_it_was_thrown_away_comes_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned and found intact after the plan was made: its process does not look again."""
    store = house.store
    old = house.run("a")
    house.run("b")
    use = store.runs.get(old.id).use("count")
    assert use is not None
    attempt = store.ledger.latest(use.key)
    assert attempt is not None
    (artifact,) = attempt.outputs.values()
    files = store.read_artifact(artifact).files
    other = Store.open(store.location)
    plan = gc._plan

    def then_looked_at(*arguments: object) -> object:
        made = plan(*arguments)  # type: ignore[arg-type]
        assert artifact in made.blobs
        assert other.keep(artifact)
        assert other.put_bytes(b"araw1").size == 5
        return made

    monkeypatch.setattr(gc, "_plan", then_looked_at)
    done = collect(store, keep_last=1)
    wanted = {artifact, files[0].digest, hash_bytes(b"araw1")}
    assert wanted <= set(store.blobs.digests())
    assert not wanted & set(done.blobs)
    assert use.key not in {attempt.key for attempt in done.attempts}


def test_a_gc_that_was_killed_harms_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    store = house.store
    old, new = house.run("a"), house.run("b")
    monkeypatch.setattr(gc, "_finish", lambda *_: os._exit(9) if os.getpid() == child else None)
    child = os.fork()
    if child == 0:
        child = os.getpid()
        collect(store, keep_last=1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] >> 8 == 9
    monkeypatch.undo()
    assert store.blobs.thrown_away()
    assert _intact(store, new)
    assert _intact(store, old)  # looking at it brings it back
    assert collect(store, keep_last=1).blobs
    assert not _intact(store, old)
    assert store.blobs.thrown_away() == []


def test_one_gc_works_at_a_time(house: House) -> None:
    with house.store.leases.hold("gc"), pytest.raises(LeaseBusyError):
        collect(house.store)


def test_gc_beside_a_working_pipeline_loses_nothing(house: House) -> None:
    store = house.store
    stop = threading.Event()
    done: list[Digest] = []

    def sweep() -> None:
        while not stop.is_set():
            done.extend(collect(Store.open(store.location), keep_last=1).blobs)
            time.sleep(0.01)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        runs = [house.run(name) for name in "abacab" * 2]
    finally:
        stop.set()
        thread.join()
    assert done
    assert _intact(store, runs[-1])
    found = verify(store)
    assert found.damaged == found.records == ()
    assert _intact(store, house.run("c"))
