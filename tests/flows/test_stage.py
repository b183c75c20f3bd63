"""Stages on a real Ray: what is computed, what is not computed again, and that nothing stale is served."""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import ray
import torch
from corpus_server import Site

import rnnsearch
from rnnsearch.flows import shards
from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.recipe import recipe_of
from rnnsearch.flows.settings import PROFILES
from rnnsearch.flows.shapes import Ref
from rnnsearch.flows.stage import StageError, as_task, run_stage
from rnnsearch.model.checkpoint import write_model
from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.network import Network
from rnnsearch.pipeline.config import CleanConfig
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.schemas import SPECIALS
from rnnsearch.storage import leases
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.leases import LeaseLostError
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Lab, Ran

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

Made = tuple[Path, "Ran"]

SELECTED = {"overlap", "select", "shortlist", "encode/20", "order/20"}  # what follows the threshold


def _blob(store: Store, digest: str) -> Path:
    path = store.backend.local_path(f"blobs/{digest[:2]}/{digest}")
    assert path is not None
    return path


def _files(store: Store, ran: "Ran", stage: str, output: str) -> Sequence[FileEntry]:
    return store.read_artifact(ran.outputs[stage][output]).files


def _records(store: Store) -> set[str]:
    """Names of all that a store keeps for good."""
    return {name for folder in ("blobs", "ledger", "shards") for name in store.backend.names(folder)}


def test_every_stage_is_computed_once_and_then_a_hit_that_writes_nothing(
    lab: "Lab", made: Made, store: Store
) -> None:
    first = made[1]
    assert first.computed == set(first.uses)
    assert first.shards("tokenize/train") == (5, 5)
    before = _records(store)
    second = lab.run(store)
    assert second.computed == set()
    assert second.outputs == first.outputs
    assert _records(store) == before


def test_a_finished_stage_leaves_no_unfinished_work_and_no_lease(
    lab: "Lab", made: Made, store: Store
) -> None:
    kept = {path.name for path in made[0].iterdir()}
    assert "ledger" in kept  # it is the store that is looked at
    assert list(made[0].glob("**/epoch-*")) == []
    assert store.leases.held() == []


def test_another_budget_computes_the_threshold_and_what_follows_it_and_no_more(
    lab: "Lab", made: Made, store: Store
) -> None:
    ran = lab.run(store, "select.budget.pairs=400")
    assert ran.computed == {"threshold", *SELECTED}
    assert ran.uses["threshold"].reason == "select.budget.pairs 500 → 400"
    assert ran.shards("threshold") == (0, 5), "the ranking of a shard does not ask for the budget"
    back = lab.run(store)
    assert (back.computed, back.outputs) == (set(), made[1].outputs)


def test_a_stage_that_gives_the_same_bytes_leaves_everything_below_it_cached(
    lab: "Lab", store: Store
) -> None:
    first = lab.run(store, "select.budget.pairs=100_000")
    second = lab.run(store, "select.budget.pairs=200_000")  # both are more than there is
    assert second.computed == {"threshold"}
    assert second.outputs == first.outputs


def _delete(path: Path) -> None:
    path.unlink()


def _flip(path: Path) -> None:
    _overwrite(path, bytes([path.read_bytes()[100] ^ 1]))


def _flip_and_restore_dates(path: Path) -> None:
    state = path.stat()
    _flip(path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)


def _truncate(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size - 1)


def _overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(data)


HARM = pytest.mark.parametrize("harm", [_delete, _flip, _flip_and_restore_dates, _truncate])


@HARM
def test_a_damaged_shard_is_noticed_and_it_alone_is_computed_again(
    lab: "Lab", made: Made, store: Store, harm: Callable[[Path], None]
) -> None:
    assert lab.run(store).computed == set()  # this host has verified every blob of the copy
    harm(_blob(store, _files(store, made[1], "tokenize/train", "pairs")[2].digest))
    ran = lab.run(store)
    assert ran.computed == {"tokenize/train"}
    assert ran.uses["tokenize/train"].reason == "output pairs is missing or damaged"
    assert ran.shards("tokenize/train") == (1, 5)
    assert ran.outputs == made[1].outputs
    assert lab.run(store).computed == set()


@pytest.mark.parametrize(
    ("stage", "output", "shards"),
    [
        ("download/lines-en", "file", (None, None)),
        ("ingest/other", "pairs", (None, None)),
        ("language-models", "models", (None, None)),
        ("shortlist", "target", (0, 5)),  # of a fold the merge alone
        ("threshold", "rows", (0, 5)),
    ],
)
def test_a_damaged_file_of_any_stage_heals_to_the_same_digests_without_touching_others(
    lab: "Lab", made: Made, store: Store, stage: str, output: str, shards: tuple[int | None, int | None]
) -> None:
    _flip(_blob(store, _files(store, made[1], stage, output)[0].digest))
    ran = lab.run(store)
    assert ran.computed == {stage}
    assert ran.shards(stage) == shards
    assert ran.outputs == made[1].outputs


def test_an_artifact_whose_list_of_files_is_gone_is_put_together_from_its_shards(
    lab: "Lab", made: Made, store: Store
) -> None:
    _blob(store, made[1].outputs["gate"]["kept"]).unlink()
    ran = lab.run(store)
    assert ran.computed == {"gate"}
    assert ran.shards("gate") == (0, 5)
    assert ran.outputs == made[1].outputs


def test_two_damaged_stages_one_below_the_other_both_heal(lab: "Lab", made: Made, store: Store) -> None:
    for stage, output in (("clean/train", "kept"), ("encode/20", "kept")):
        _delete(_blob(store, _files(store, made[1], stage, output)[0].digest))
    ran = lab.run(store)
    assert ran.computed == {"clean/train", "encode/20"}
    assert ran.outputs == made[1].outputs


class Shuffled(Cluster):
    """Submits tasks in another order, so that they end in another order."""

    def map(self, function: Any, tasks: Sequence[Any], processors: float = 1.0) -> Iterator[tuple[int, Any]]:
        order = list(range(len(tasks)))
        random.Random(7).shuffle(order)
        order.reverse()
        for position, result in super().map(function, [tasks[each] for each in order], processors):
            yield order[position], result


@ray.remote(num_cpus=3)
class Occupant:
    """Takes three of the four processors."""

    def ready(self) -> bool:
        return True


@contextmanager
def one_worker() -> Iterator[None]:
    """Leave one processor to the tests."""
    occupant = Occupant.remote()
    assert ray.get(occupant.ready.remote())
    try:
        yield
    finally:
        ray.kill(occupant)


def test_shards_are_the_same_bytes_with_one_and_with_four_workers_in_whatever_order_they_end(
    lab: "Lab", made: Made, tmp_path: Path
) -> None:
    with one_worker():
        assert ray.available_resources()["CPU"] == 1
        alone = lab.run(Store.open(tmp_path / "alone"))
    store = Store.open(tmp_path / "shuffled")
    shuffled = lab.run(store, session=lab.session(store, Shuffled()))
    assert alone.outputs == made[1].outputs
    assert shuffled.outputs == made[1].outputs


def _random_model(store: Store, outputs: Mapping[str, Mapping[str, str]], folder: Path) -> str:
    """A network of these shortlists, with weights large enough to have opinions, as an artifact."""
    files = [store.read_artifact(outputs["shortlist"][side]).files[0] for side in ("source", "target")]
    source, target = ((file.rows or 0) + len(SPECIALS) for file in files)
    config = NetworkConfig(units=9, embedding=7, alignment_units=8, maxout_units=5)
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: torch.randn(parameter.shape, generator=generator) * 2.5 / parameter.shape[-1] ** 0.5
        for name, parameter in Network(config, source, target).named_parameters()
    }
    write_model(folder, config, (source, target), weights, None)
    blobs = [(path.name, store.put_file(path)) for path in sorted(folder.iterdir())]
    return store.write_artifact(
        [FileEntry(name, blob.digest, blob.size, None) for name, blob in blobs]
    ).digest


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_translations_are_the_same_with_one_and_with_four_workers_in_whatever_order_they_end(
    lab: "Lab", made: Made, tmp_path: Path, precision: str
) -> None:
    def translated(folder: str, cluster: Cluster) -> Sequence[tuple[str, ...]]:
        store = Store.open(shutil.copytree(made[0], tmp_path / folder))
        upstream = {**made[1].outputs}
        upstream["train/rnnsearch"] = {"model": _random_model(store, upstream, tmp_path / f"{folder}-model")}
        session = lab.session(store, cluster)
        stages = lab.stages(f"search.precision={precision}", until="translate/rnnsearch/no-unk")
        for stage in stages[-2:]:
            upstream[stage.name], cached = run_stage(stage, session, upstream)
            assert not cached
        uses = store.runs.get(session.run).uses
        assert [(use.stage, use.shards_computed) for use in uses] == [
            ("translate/rnnsearch/all", 5),
            ("translate/rnnsearch/no-unk", 5),
        ]
        tables = [
            store.get_table(file.digest)
            for stage in stages[-2:]
            for file in store.read_artifact(upstream[stage.name]["hypotheses"]).files
        ]
        sentences = [text for table in tables for text in table["hypothesis"].to_pylist()]
        assert len(sentences) == 2 * 40
        assert len(set(sentences)) > 20, "the model says the same to everything"
        return [tuple(upstream[stage.name].values()) for stage in stages[-2:]]

    with one_worker():
        alone = translated("alone", Cluster())
    assert translated("shuffled", Shuffled()) == alone


class Cut(Cluster):
    """Stops after two tasks of a map, as a killed driver does; what the workers have recorded stays."""

    def map(self, function: Any, tasks: Sequence[Any], processors: float = 1.0) -> Iterator[tuple[int, Any]]:
        yield from super().map(function, tasks[:2], processors)
        if len(tasks) > 2:
            raise RuntimeError("cut")


def test_a_stage_that_was_cut_goes_on_at_the_shards_that_are_missing(
    lab: "Lab", made: Made, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store")
    lab.run(store, until="gate")
    with pytest.raises(RuntimeError, match="cut"):
        lab.run(store, session=lab.session(store, Cut()), until="tokenize/train")
    stage = lab.stages(until="tokenize/train")[-1]
    recipe = recipe_of(stage, made[1].outputs)
    assert store.ledger.attempts(recipe.key, stage.name) == []
    assert store.leases.held() == []
    assert len(store.shards.history("tokenize")) == 2
    ran = lab.run(store, until="tokenize/train")
    assert ran.computed == {"tokenize/train"}
    assert ran.shards("tokenize/train") == (3, 5)
    assert ran.outputs["tokenize/train"] == made[1].outputs["tokenize/train"]


def test_a_shard_that_one_stage_computed_serves_every_stage_that_asks_for_the_same(
    lab: "Lab", made: Made, store: Store
) -> None:
    shards_ = {stage: made[1].shards(stage) for stage in ("normalize/dev", "normalize/test")}
    assert shards_["normalize/dev"] == (5, 5)
    computed, total = shards_["normalize/test"]
    assert total == 5
    assert computed is not None
    assert computed < 5, "a corpus that gives nothing to dev gives the same empty shard to test"


def test_one_line_changed_in_place_recomputes_one_shard_of_each_map_and_one_partial_of_each_fold(
    lab: "Lab", made: Made, own_profile: Path, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store")
    profile = str(own_profile)
    first = lab.run(store, profile=profile)
    path = own_profile.with_name("smoke.en")
    state = path.stat()
    lines = path.read_text().split("\n")
    line = _a_line_of_no_consequence(store, first, lines)
    before, after = lines[line], _backwards(lines[line])
    assert len(before) == len(after)
    assert before != after
    lines[line] = after
    with path.open("r+") as file:
        file.write("\n".join(lines))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (state.st_size, state.st_mtime_ns, state.st_ino)

    second = lab.run(store, profile=profile)
    counts = {stage: second.shards(stage) for stage in second.computed if second.uses[stage].shards_total}
    print(f"computed again: {counts}")
    assert counts == {
        "survey": (1, 5),
        "holdout-keys": (1, 5),
        "holdout": (1, 5),
        "clean/train": (1, 5),
        "duplicates": (1, 5),
        "gate": (1, 5),
        "tokenize/train": (1, 5),
        "selection-sample": (1, 5),
        "score": (1, 5),
        "threshold": (1, 5),
        "select": (1, 5),
        "overlap": (1, 5),
        "shortlist": (1, 5),
        "encode/20": (1, 5),
    }
    runs = second.computed - set(counts)
    assert runs == {"download/lines-en", "ingest/lines", "order/20"}
    changed = {
        (stage, output)
        for stage, outputs in second.outputs.items()
        for output, digest in outputs.items()
        if first.outputs[stage][output] != digest
    }
    assert ("holdout-keys", "keys") not in changed
    assert ("shortlist", "source") not in changed
    assert ("order/20", "examples") in changed


def _backwards(line: str) -> str:
    """The same words in another order, the full stop at its place: the counts of words stay."""
    return " ".join(reversed(line.removesuffix(".").split(" "))) + "."


def _a_line_of_no_consequence(store: Store, ran: "Ran", lines: Sequence[str]) -> int:
    """The number of a kept training line of plain words, not in the sample for the language models."""
    sample = shards.whole_table(store, ran.outputs["selection-sample"]["sample"])
    kept = shards.whole_table(store, ran.outputs["select"]["kept"])
    sampled = sample.filter(pc.equal(sample["corpus"].cast(pa.string()), "lines"))["line"].to_pylist()
    for row in kept.select(["corpus", "line", "source"]).to_pylist():
        if row["corpus"] == "lines" and row["line"] not in sampled:
            text = lines[row["line"]]
            words = text.removesuffix(".").split(" ")
            if row["source"] == " ".join([*words, "."]) and all(map(str.isalpha, words)) and len(words) > 4:
                return int(row["line"])
    raise AssertionError("the smoke profile has no such line")


def test_two_runs_of_one_recipe_at_once_compute_it_once(lab: "Lab", tmp_path: Path) -> None:
    folder = tmp_path / "store"
    lab.run(Store.open(folder), until="tokenize/train")
    start = threading.Barrier(2)

    def go() -> "Ran":
        store = Store.open(folder)
        session = lab.session(store)
        start.wait(60)
        return lab.run(store, "tokenize.escape=true", session=session, until="tokenize/train")

    with ThreadPoolExecutor(2) as pool:
        one, two = (each.result() for each in [pool.submit(go), pool.submit(go)])
    assert one.outputs == two.outputs
    assert sorted(len(each.computed) for each in (one, two)) == [0, 1]
    (stage,) = one.computed | two.computed
    assert stage == "tokenize/train"
    assert len(Store.open(folder).ledger.history(stage)) == 2  # with escaping and without


def test_a_second_run_waits_for_the_holder_of_the_lease_and_takes_its_result(
    lab: "Lab", made: Made, store: Store
) -> None:
    stage = lab.stages(until="tokenize/dev")[-1]
    recipe = recipe_of(stage, made[1].outputs)
    attempt = store.ledger.latest(recipe.key, stage.name)
    assert attempt is not None
    store.ledger.delete(recipe.key, stage.name)
    session = lab.session(store)
    with ThreadPoolExecutor(1) as pool:
        with store.leases.hold(recipe.key):
            waiting = pool.submit(run_stage, stage, session, made[1].outputs)
            time.sleep(1.5)
            assert not waiting.done()
            store.ledger.record(recipe, attempt.outputs)
        outputs, cached = waiting.result(60)
    assert cached
    assert outputs == attempt.outputs


class Robbed(Cluster):
    """While it works another process takes its leases over, as if this one had slept for too long."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def map(self, function: Any, tasks: Sequence[Any], processors: float = 1.0) -> Iterator[tuple[int, Any]]:
        for held in self.store.leases.held():
            name = leases._name(held.name)
            seen = self.store.backend.read_versioned(name)
            assert seen is not None
            theirs = replace(held, epoch=held.epoch + 1, token="another")
            assert self.store.backend.replace_if(name, leases._seal(theirs), seen.version)
        yield from super().map(function, tasks, processors)


def test_a_stage_whose_lease_another_run_has_taken_over_records_nothing(
    lab: "Lab", made: Made, store: Store
) -> None:
    session = lab.session(store, Robbed(store))
    with pytest.raises(LeaseLostError, match="held by another process now"):
        lab.run(store, "select.budget.pairs=400", session=session)
    budgets = [each.recipe.config["select"]["budget"] for each in store.ledger.history("threshold")]
    assert [budget["pairs"] for budget in budgets] == [500]


class Watched(Cluster):
    """Counts the stages that are at work side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    def map(self, function: Any, tasks: Sequence[Any], processors: float = 1.0) -> Iterator[tuple[int, Any]]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.5)
        yield from super().map(function, tasks, processors)
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("at_once", [1, 2])
def test_as_many_stages_work_at_once_as_the_placement_says(
    lab: "Lab", made: Made, store: Store, at_once: int
) -> None:
    cluster = Watched()
    session = replace(lab.session(store, cluster), slots=threading.Semaphore(at_once))
    stages = [stage for stage in lab.stages("tokenize.escape=true") if stage.kind == "tokenize"]
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(as_task(stage, session).fn, made[1].outputs) for stage in stages]
        assert all(each.result(60) for each in done)
    assert cluster.most == at_once


EDITED = """
import io, json, sys
from pathlib import Path
import rnnsearch
from rnnsearch.flows.cluster import Cluster
from rnnsearch.flows.console import RunConsole
from rnnsearch.flows.dag import build
from rnnsearch.flows.settings import PlacementConfig, load_settings
from rnnsearch.flows.recipe import freeze_code
from rnnsearch.flows.stage import Session, StageError, run_stage
from rnnsearch.storage.store import Store
edit = sys.argv[1] == "edit"
stages = build(load_settings("smoke"))
freeze_code(stages)
cluster, found = Cluster(2), []
for location in sys.argv[2:]:
    store = Store.open(location)
    session = Session(store=store, run=store.runs.start({}).id, cluster=cluster, placement=PlacementConfig(),
                      console=RunConsole(io.StringIO()))
    outputs, error = {}, ""
    for stage in stages:
        if stage.name == "gate" and edit:  # the workers have imported it for `clean`
            path = Path(rnnsearch.__path__[0]) / "pipeline" / "sieve.py"
            text = path.read_text()
            assert "first < 0" in text
            path.write_text(text.replace("first < 0", "first < 1"))
        try:
            outputs[stage.name] = dict(run_stage(stage, session, outputs)[0])
        except StageError as refused:
            error = str(refused)
            break
        if stage.name == "gate":
            break
    found.append({"gate": outputs.get("gate"), "error": error})
cluster.close()
print(json.dumps(found))
"""


def test_code_that_changes_while_a_run_is_at_work_is_never_mistaken_for_what_made_a_result(
    tmp_path: Path, clean_environment: Mapping[str, str]
) -> None:
    shutil.copytree(rnnsearch.__path__[0], tmp_path / "rnnsearch")
    environment = {**clean_environment, "PYTHONPATH": str(tmp_path)}

    def drive(what: str, *stores: str) -> Sequence[Mapping[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-c", EDITED, what, *(str(tmp_path / store) for store in stores)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    (edited,) = drive("edit", "store")
    assert edited["gate"] is None
    assert "the code of gate changed since this run began" in edited["error"]
    assert "run again" in edited["error"]
    again, anew = drive("run", "store", "another")
    assert again["gate"] == anew["gate"]


def test_a_stage_whose_function_refuses_its_text_raises_that_error_and_leaves_nothing_trusted(
    lab: "Lab", tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store")
    with pytest.raises(TextError, match=r"holdout wants 20,040 keys .* of corpus 'lines', where") as refused:
        lab.run(store, "holdout.dev=20_000", until="holdout")
    assert type(refused.value) is TextError
    assert store.ledger.history("holdout-keys") == []
    assert store.leases.held() == []
    ran = lab.run(store, until="holdout")
    assert ran.computed == {"holdout-keys", "holdout"}


def test_an_unpinned_download_whose_ingest_failed_is_asked_for_again(
    lab: "Lab", serve: Callable[..., Site], tmp_path: Path
) -> None:
    whole = (PROFILES / "smoke.en").read_bytes()
    site = serve(body=b"maintenance, come back later\n")
    store = Store.open(tmp_path / "store")
    there = f"sources.lines-en.url='{site.url('smoke.en')}'"
    with pytest.raises(TextError, match=r"^source lines-en: unequal numbers of lines"):
        lab.run(store, there, until="ingest/lines")
    site.body = whole
    ran = lab.run(store, there, until="ingest/lines")
    assert len(site.seen) == 2
    assert ran.uses["download/lines-en"].reason == "what it gave could not be read; it is asked for again"
    assert ran.computed == {"download/lines-en", "ingest/lines"}
    assert lab.run(store, there, until="ingest/lines").computed == set()


def test_the_same_texts_and_profile_in_another_folder_are_all_hits(
    lab: "Lab", made: Made, store: Store, own_profile: Path
) -> None:
    ran = lab.run(store, profile=str(own_profile))
    assert ran.computed == set()
    assert ran.outputs == made[1].outputs


def test_sources_named_in_another_order_than_their_sides_are_told_apart_by_their_names(
    lab: "Lab", made: Made, store: Store
) -> None:
    ran = lab.run(store, "corpora.lines.source=['lines-key','lines-fr','lines-en']", until="ingest/lines")
    assert ran.outputs["ingest/lines"] == made[1].outputs["ingest/lines"]


def test_an_error_inside_one_shard_of_a_map_is_raised_as_itself(lab: "Lab", made: Made, store: Store) -> None:
    with pytest.raises(TextError, match="leak"):
        lab.run(store, "leakage.action=stop", "leakage.minimum_words=1")
    assert all(
        attempt.recipe.config["leakage"]["action"] != "stop" for attempt in store.ledger.history("gate")
    )
    assert lab.run(store).outputs == made[1].outputs


@pytest.mark.parametrize(
    ("stage", "output", "beside"),
    [("duplicates", "rows", "clean/train"), ("threshold", "rows", "tokenize/train")],
)
def test_a_fold_that_decides_row_by_row_writes_one_file_for_each_shard_in_their_order(
    made: Made, stage: str, output: str, beside: str
) -> None:
    store = Store.open(made[0])
    walked = _files(store, made[1], beside, "kept" if beside.startswith("clean") else "pairs")
    files = _files(store, made[1], stage, output)
    assert [file.path for file in files] == [shards.shard_name(place) for place in range(5)]
    assert [file.path for file in walked] == [file.path for file in files]
    if stage == "threshold":
        assert [file.rows for file in files] == [file.rows for file in walked]
        (summary,) = _files(store, made[1], stage, "summary")
        assert summary.path == "summary.parquet"


def test_inputs_of_unequal_numbers_of_shards_are_an_error_that_counts_them(
    lab: "Lab", made: Made, store: Store
) -> None:
    stage = next(each for each in lab.stages() if each.name == "select")
    crooked = replace(
        stage, sharded={"pairs": (Ref("ingest/other", "pairs"),), "rows": stage.sharded["rows"]}
    )
    message = r"select walks inputs of unequal numbers of shards: \{'pairs': 1, 'rows': 5\}"
    with pytest.raises(StageError, match=message):
        run_stage(crooked, lab.session(store), made[1].outputs)
    assert len(store.ledger.history("select")) == 1


def test_no_stage_begins_when_the_run_is_ending(lab: "Lab", made: Made, store: Store) -> None:
    session = lab.session(store)
    session.stopping.set()
    with pytest.raises(StageError, match="the run is ending"):
        run_stage(lab.stages()[0], session, {})


def test_an_attempt_tells_where_it_ran_what_it_saw_and_who_made_its_inputs(lab: "Lab", made: Made) -> None:
    store, stage = Store.open(made[0]), "tokenize/train"
    attempt = store.ledger.history(stage)[-1]
    assert attempt.rows == {"pairs": sum(file.rows or 0 for file in _files(store, made[1], stage, "pairs"))}
    assert attempt.observations["made_by"] == {"pairs": "gate:kept"}
    assert attempt.observations["seconds"] > 0
    assert attempt.placement["executor"] == "local"
    assert {"host", "system", "python"} <= set(attempt.environment)
    parts = store.code_parts(attempt.recipe.code)
    assert parts is not None
    assert "rnnsearch.pipeline.tokenization:tokenize_shard" in parts


# How a worker fills the parameters of a pure function.


def _takes(pairs: pa.Table, words: pa.Table, place: Path, config: CleanConfig) -> tuple[Any, ...]:
    return pairs, words, place, config


def _wants(pairs: pa.Table, budget: pa.Table) -> Sequence[pa.Table]:
    return [pairs, budget]


def test_a_function_is_given_what_its_parameters_name_and_as_they_are_annotated(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    tables = [pa.table({"n": [1, 2]}), pa.table({"n": [3]})]
    parts = [shards.stored(store, shards.shard_name(place), table) for place, table in enumerate(tables)]
    whole = store.write_artifact(parts).digest
    given, config = pa.table({"n": [9]}), {"clean": CleanConfig(straight_quotes=True).model_dump()}
    pairs, words, place, clean = shards.call(
        store, _takes, {"pairs": given}, {"words": whole, "place": whole, "unused": whole}, config
    )
    assert pairs is given
    assert words["n"].to_pylist() == [1, 2, 3]
    assert sorted(path.name for path in place.iterdir()) == ["shard-00000.parquet", "shard-00001.parquet"]
    assert clean == CleanConfig(straight_quotes=True)
    assert shards.needs(_takes) == shards.Needs(frozenset({"pairs", "words", "place"}), frozenset({"clean"}))


def test_a_parameter_that_nobody_gives_names_the_function_that_wants_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with pytest.raises(TypeError, match=r"test_stage:_wants wants 'budget', which its stage does not give"):
        shards.call(store, _wants, {"pairs": pa.table({})}, {}, {})


def test_the_outputs_of_a_fold_are_a_table_json_or_a_file_for_each_shard(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    table = pa.table({"n": [1]})
    values: Mapping[str, Any] = {"one": table, "scores": b"{}", "rows": [table, table]}
    names = {
        name: [file.path for file in shards.output_files(store, name, value)]
        for name, value in values.items()
    }
    assert names == {
        "one": ["one.parquet"],
        "scores": ["scores.json"],
        "rows": ["shard-00000.parquet", "shard-00001.parquet"],
    }


def test_shards_sort_by_name_as_they_stand(tmp_path: Path) -> None:
    places = [0, 9, 10, 99, 100, 99_999]
    assert sorted(map(shards.shard_name, places)) == list(map(shards.shard_name, places))
