"""What happens beside a run, or to its store between two: gc, other runs, damage, adoption, a wrong clock."""

import ast
import json
import re
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil
import pytest
from arena import SETTINGS, Arena, Case, until
from stores import Reference, done_again, finished, last_run, left_over, look, outputs

import rnnsearch
from rnnsearch.flows.settings import PROFILES
from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.reach import places, read_records
from rnnsearch.storage.store import Store

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.flow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

Opening = Callable[[str], Path | None]
WORDS = ("--profile", str(PROFILES / "smoke.toml"), *(word for each in SETTINGS for word in ("--set", each)))
SMALLER = (*SETTINGS, "select.budget.pairs=400")


@pytest.fixture(scope="module")
def smaller(arena: Arena, opening: Opening) -> Reference:
    """An undisturbed run of another budget, over a store in which all of the usual one is done."""
    case = arena.case(opening("all done"))
    ended = arena.run(case, settings=SMALLER)
    assert ended.code == 0, ended
    return Reference(outputs(case.store), frozenset())


@pytest.mark.sample
def test_a_gc_that_deletes_beside_a_run_leaves_all_that_the_run_needs(
    arena: Arena, opening: Opening, smaller: Reference
) -> None:
    case = arena.case(opening("all done"))
    run = arena.start(case, settings=SMALLER)
    store = Store.open(case.store)
    while len(store.runs.ids()) < 2:
        assert not run.ended(), run.wait()
        time.sleep(0.01)
    store.runs.tag(store.runs.ids()[-1], "kept")
    collected = []
    while not run.ended():
        ended = arena.run(case, "gc", "--apply", "--keep-last", "0", "--json")
        assert ended.code == 0, ended
        collected.append(sum(each["blobs"] for each in json.loads(ended.out)["stages"]))
        time.sleep(1)  # without a pause it would take half of the machine from the run
    ended = run.wait()
    print(f"{len(collected)} times gc, which deleted {sum(collected)} blobs: {collected}")
    assert ended.code == 0, ended
    assert sum(collected) > 0  # of the run before, which nothing keeps
    assert outputs(case.store) == smaller.outputs
    assert all(store.intact(digest) for made in smaller.outputs.values() for digest in made.values())
    assert look(case.store).wrong == ()
    assert left_over(case) == []
    case.remove()


def test_a_gc_beside_a_run_of_everything_leaves_it_whole(arena: Arena, reference: Reference) -> None:
    case = arena.case()
    run = arena.start(case)
    times = 0
    while not run.ended():
        if (case.store / "runs").is_dir():
            ended = arena.run(case, "gc", "--apply", "--keep-last", "1")
            assert ended.code == 0, ended
            times += 1
            time.sleep(1)
    ended = run.wait()
    print(f"{times} times gc")
    assert ended.code == 0, ended
    assert outputs(case.store) == reference.outputs
    assert look(case.store).wrong == ()
    assert left_over(case) == []
    case.remove()


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        pytest.param("train/rnnsearch", SETTINGS, marks=pytest.mark.sample),
        ("gate", SETTINGS),
        ("shortlist", SETTINGS),
        ("train/rnnsearch", (*SETTINGS, "search.beam=2")),
    ],
)
def test_of_two_runs_at_once_one_computes_and_the_other_waits_and_is_a_hit(
    arena: Arena, opening: Opening, reference: Reference, stage: str, settings: tuple[str, ...]
) -> None:
    case = arena.case(opening(stage))
    before = finished(case.store)
    runs = [arena.start(case), arena.start(case, settings=settings)]
    ends = [run.wait() for run in runs]
    assert [ended.code for ended in ends] == [0, 0], ends
    store = Store.open(case.store)
    first, second = store.runs.list()[-2:]
    uses = [run.use(stage) for run in (first, second)]
    assert sorted(use.hit for use in uses if use) == [False, True]
    assert len({(use.key, use.attempt) for use in uses if use}) == 1
    assert done_again(before, finished(case.store)) == []
    usual = [run for run in (first, second) if not run.request["overrides"][len(SETTINGS) :]]
    assert all(outputs(case.store, run) == reference.outputs for run in usual)
    assert look(case.store).wrong == ()
    assert left_over(case) == []
    case.remove()


@pytest.mark.sample
def test_a_holder_killed_with_its_lease_is_followed_at_once(
    arena: Arena, opening: Opening, reference: Reference
) -> None:
    case = arena.case(opening("train/rnnsearch"))
    started = f"{'train/rnnsearch':<32} started"
    holder = arena.start(case)
    until(started, holder)
    heir = arena.start(case)
    until("evaluate/rnnencdec", heir)
    time.sleep(1.5)
    assert started not in heir.said()[1]
    holder.kill()
    began = time.monotonic()
    until(started, heir)
    seconds = time.monotonic() - began
    print(f"followed after {seconds:.1f} s")
    assert seconds < 3
    ended = heir.wait()
    assert ended.code == 0, ended
    assert outputs(case.store) == reference.outputs
    assert left_over(case) == []
    case.remove()


def test_a_holder_that_sleeps_too_long_cannot_harm_its_heir(
    arena: Arena, opening: Opening, reference: Reference
) -> None:
    """It is stopped, not dead: another run takes over when the lease's time is up; then it wakes."""
    case = arena.case(opening("gate"))
    case.plan("driver", "fsync", "ledger", 1, "sleep")
    holder = arena.start(case)
    while case.fired() is None:
        assert not holder.ended(), holder.wait()
        time.sleep(0.01)
    (case.folder / "plan").unlink()
    began = time.monotonic()
    heir = arena.run(case)
    print(f"another run took over, and ended {time.monotonic() - began:.0f} s after")
    assert heir.code == 0, heir
    attempts = finished(case.store)
    psutil.Process(holder.pid).resume()
    late = holder.wait()
    print(late.err[-600:])
    assert "Traceback" not in late.err, late
    assert done_again(attempts, finished(case.store)) in ([], [f"stage gate {_key(case, 'gate')[:12]}"])
    last = arena.run(case)
    assert last.code == 0, last
    assert outputs(case.store) == reference.outputs
    assert look(case.store).wrong == ()
    assert left_over(case) == []
    case.remove()


def _key(case: Case, stage: str) -> Digest:
    (key,) = Store.open(case.store).ledger.keys(stage)
    return key


DAMAGED = ("gate", "selection-sample", "language-models", "train/rnnsearch", "translate/rnnencdec/all")


@pytest.mark.sample
def test_verify_names_what_is_damaged_and_repair_brings_it_back(
    arena: Arena, opening: Opening, reference: Reference
) -> None:
    case = arena.case(opening("all done"))
    store = Store.open(case.store)
    hurt = set()
    for number, stage in enumerate(DAMAGED):
        for digest in reference.outputs[stage].values():
            files = store.read_artifact(digest).files
            for entry in files[number % 2 :: 2] or files:
                if entry.digest not in hurt:  # twice flipped is whole
                    _hurt(case.store / blob_name(entry.digest), number)
                    hurt.add(entry.digest)
    concerned = {stage for stage in _users(store, hurt) if "(shards)" not in stage}
    attempt = next((case.store / "ledger" / "shortlist").glob("*/00001.json"))
    attempt.chmod(0o644)
    attempt.write_bytes(attempt.read_bytes().replace(b"a", b"b", 1))
    seen = arena.run(case, "verify")
    print(seen.out)
    assert seen.code == 1, seen
    for stage in DAMAGED:
        assert re.search(rf"(damaged|missing): \w+ .*{stage}", seen.out), stage
    assert "damaged record: ledger/shortlist/" in seen.out
    mended = arena.run(case, "verify", "--repair")
    print(mended.err[-2000:])
    assert mended.code == 0, mended
    assert "Traceback" not in mended.err
    computed = {use.stage for use in last_run(case.store).uses if not use.hit}
    assert (
        {"gate", "language-models", "train/rnnsearch", "shortlist"} <= computed <= {*concerned, "shortlist"}
    )
    for stage in concerned:
        assert re.search(rf"^{stage} \w+ came back as it was$", mended.err, re.MULTILINE), stage
    assert arena.run(case, "verify").code == 0
    again = arena.run(case)
    assert again.code == 0, again
    assert all(use.hit for use in last_run(case.store).uses)
    assert outputs(case.store) == reference.outputs
    assert left_over(case) == []
    case.remove()


def _users(store: Store, digests: Collection[Digest]) -> set[str]:
    """The stages, and `… (shards)`, that made any of these blobs: empty shards are in many places."""
    records = read_records(store)
    every = places(records, records.attempts, records.shards)
    return {place.stage for digest, place in every if digest in digests}


def _hurt(path: Path, how: int) -> None:
    """Flip a byte, cut, or remove."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    match how % 3:
        case 0:
            path.write_bytes(data)
        case 1:
            path.write_bytes(data[: len(data) // 2])
        case _:
            path.unlink(missing_ok=True)


def test_damage_while_a_run_is_on_is_noticed_and_healed_by_the_next(
    arena: Arena, opening: Opening, reference: Reference
) -> None:
    case = arena.case(opening("train/rnnsearch"))
    run = arena.start(case)
    until(f"{'train/rnnsearch':<32} started", run)
    store = Store.open(case.store)
    hurt = {
        entry.digest
        for digest in reference.outputs["tokenize/test"].values()
        for entry in store.read_artifact(digest).files
    }
    concerned = _users(store, hurt)
    for digest in hurt:
        _hurt(case.store / blob_name(digest), 0)
    ended = run.wait()
    print(ended.err[-1000:])
    assert ended.code == 1, ended
    assert "was changed after it was stored" in ended.err
    assert "Traceback" not in ended.err
    before = finished(case.store)
    again = arena.run(case)
    assert again.code == 0, again
    assert outputs(case.store) == reference.outputs
    redone = done_again(before, finished(case.store))
    print(redone)
    what = {each.rpartition(" ")[0] for each in redone}
    assert "stage tokenize/test" in what
    assert what <= {
        f"shard of {each.removesuffix(' (shards)')}" if each.endswith(" (shards)") else f"stage {each}"
        for each in concerned
    }
    assert left_over(case) == []
    case.remove()


def test_an_adoption_stands_for_changed_code_until_it_is_undone(
    arena: Arena, opening: Opening, reference: Reference
) -> None:
    case = arena.case(opening("all done"))
    package = case.folder / "changed" / "rnnsearch"
    shutil.copytree(Path(rnnsearch.__path__[0]), package, ignore=shutil.ignore_patterns("__pycache__"))
    module = package / "pipeline" / "shortlist.py"
    tree = ast.parse(module.read_text())
    function = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "count_words"
    )
    function.body[1:1] = ast.parse("len('a change that changes nothing')").body
    module.write_text(ast.unparse(tree))

    def rnnsearch_(*words: str) -> str:
        ended = arena.start(case, *words, package=package.parent, alone=True).wait()
        assert ended.code == 0, ended
        return ended.out

    def planned() -> dict[str, bool]:
        return {each["stage"]: each["hit"] for each in json.loads(rnnsearch_("plan", *WORDS, "--json"))}

    assert next(stage for stage, hit in planned().items() if not hit) == "shortlist"
    why = "only the words of a constant that nobody reads"
    rnnsearch_("adopt", "shortlist", *WORDS, "--why", why)
    assert all(planned().values())
    rnnsearch_("run", *WORDS)
    assert all(use.hit for use in last_run(case.store).uses)
    assert outputs(case.store) == reference.outputs
    assert why in rnnsearch_("lineage", "shortlist")
    assert why in rnnsearch_("adopt", "shortlist", *WORDS, "--undo")
    assert next(stage for stage, hit in planned().items() if not hit) == "shortlist"
    assert look(case.store).wrong == ()
    case.remove()


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_wrong_changes_nothing(
    arena: Arena, opening: Opening, reference: Reference, days: int
) -> None:
    case = arena.case(opening("gate"))
    before = finished(case.store)
    wrong = {"CHAOS_CLOCK": str(days * 86_400)}
    killed = arena.start(case, environment=wrong)
    until(f"{'gate':<32} started", killed)
    killed.kill()
    killed.wait()
    ended = arena.start(case, environment=wrong).wait()
    assert ended.code == 0, ended
    made = last_run(case.store)
    assert made.state == "finished"
    assert abs(made.started - time.time() - days * 86_400) < 3600
    again = arena.run(case)
    assert again.code == 0, again
    assert all(use.hit for use in last_run(case.store).uses)
    assert last_run(case.store).id > made.id  # the newest run is the last, whatever the clock says
    assert outputs(case.store) == reference.outputs
    assert done_again(before, finished(case.store)) == []
    kept = arena.run(case, "gc", "--apply", "--keep-last", "1")
    assert kept.code == 0, kept
    assert arena.run(case).code == 0
    assert all(use.hit for use in last_run(case.store).uses)
    assert left_over(case) == []
    case.remove()
