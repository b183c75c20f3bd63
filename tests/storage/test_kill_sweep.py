"""`kill -9` before every single change that a small stage makes to its store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SWEEP = r"""
import json, os, signal, sys
from pathlib import Path

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.code import code_digest
from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store
from rnnsearch.storage.verify import verify

CODE = code_digest(["rnnsearch.storage.digests"])


def work(location):
    # A stage over three shards, as the bridge does it: the attempt is written last.
    store = Store.open(location)
    run = store.runs.start({})
    recipe = Recipe(stage="clean/train", code=CODE.digest, python="3")
    computed = 0
    attempt = store.ledger.latest(recipe.key, recipe.stage)
    hit = attempt is not None and store.keep(attempt.outputs["kept"])
    if not hit:
        with store.leases.hold(recipe.key) as lease:
            entries = []
            for number in range(3):
                part = Recipe(stage="clean", code=CODE.digest, python="3", inputs={"shard": hash_bytes(b"%d" % number)})
                known = store.shards.latest(part.key, part.stage)
                if known is None or not store.blobs.intact(known.outputs["kept"]):
                    computed += 1
                    blob = store.put_bytes(b"%d" % number * 1000)
                    known = store.shards.record(part, {"kept": blob.digest}, part_of=recipe.key)
                digest = known.outputs["kept"]
                entries.append(FileEntry(f"shard-{number}", digest, store.blobs.size(digest), 1))
            artifact = store.write_artifact(entries)
            store.put_code(CODE)
            lease.check()
            attempt = store.ledger.record(recipe, {"kept": artifact.digest})
    store.runs.record_stage(run.id, StageUse(recipe.stage, recipe.key, attempt.number, hit, "", 0.0))
    store.runs.finish(run.id, "finished")
    return {"digest": attempt.outputs["kept"], "computed": computed, "hit": hit}


def watch(root, fatal):
    # Kill this process just before its change number `fatal` of the store.
    seen = []

    def hook(event, arguments):
        if event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            changes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            changes = event in {"os.link", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.rmdir"}
        paths = [str(each) for each in arguments[:2] if isinstance(each, (str, os.PathLike))]
        if changes and any(path.startswith(root) for path in paths):
            seen.append(event)
            if len(seen) == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return seen


def child(location, fatal):
    # What `work` returned and how many changes it made, or None if it was killed.
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = watch(location, fatal)
        done = work(location)
        os.write(write, json.dumps([done, seen]).encode())
        os._exit(0)
    os.close(write)
    data = b""
    while piece := os.read(read, 1 << 16):
        data += piece
    os.close(read)
    os.waitpid(pid, 0)
    return json.loads(data) if data else None


base = Path(sys.argv[1])
undisturbed, changes = child(str(base / "undisturbed"), 0)
reports = []
for fatal in range(1, len(changes) + 1):
    location = str(base / str(fatal))
    killed = child(location, fatal)
    before = Store.open(location) if (Path(location) / "store.json").exists() else None
    finished = len(before.shards.history("clean")) if before else 0
    recorded = bool(before and before.ledger.history("clean/train"))
    again, _ = child(location, 0)
    store = Store.open(location)
    store.pins.release()
    reports.append(
        {
            "killed": killed is None,
            "same": again["digest"] == undisturbed["digest"],
            "again": again["computed"] - (0 if recorded else 3 - finished),
            "hit": again["hit"] == recorded,
            "sound": verify(store).sound,
            "orphans": len(verify(store).orphaned),
            "leases": len(store.leases.held()),
            "left": sorted(os.listdir(Path(location) / "tmp")) + [
                path.name for path in Path(location).glob("local/*/tmp/*")
            ],
            "states": [run.state for run in store.runs.list()],
        }
    )
print(json.dumps({"changes": changes, "reports": reports}))
"""


@pytest.mark.slow
def test_after_a_kill_before_any_change_one_rerun_ends_with_the_same_bytes(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", _SWEEP, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr[-3000:]
    found = json.loads(shown.stdout)
    assert len(found["changes"]) > 60
    assert {"open", "os.link", "os.rename", "os.remove", "os.mkdir"} <= set(found["changes"])
    for number, report in enumerate(found["reports"], 1):
        message = f"killed before change {number} ({found['changes'][number - 1]}): {report}"
        assert report["killed"], message
        assert report["same"], message
        assert report["again"] == 0, message  # no shard that was recorded was computed again
        assert report["hit"], message
        assert report["sound"], message
        assert report["leases"] == 0, message
        assert report["left"] == [], message
        assert report["states"] in (["finished"], ["died", "finished"], ["finished", "finished"]), message
