"""How long `rnnsearch plan` takes on a store with many ledger entries: under a second beside imports on 10,000.

    python tests/bench/plan.py [ENTRIES]

Prints seconds, the best of five, of the whole command and of the plan itself (in processor time, without imports),
when everything is a hit and when something changed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from rnnsearch.flows.dag import build
from rnnsearch.flows.plan import plan
from rnnsearch.flows.recipe import Outputs, code_of, recipe_of
from rnnsearch.flows.settings import load_settings
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.store import Store

PROGRAM = Path(sys.executable).with_name("rnnsearch")


def fill(store: Store, entries: int) -> int:
    """Record made-up attempts of the smoke profile with one setting after another; returns how many there are."""
    made, number = 0, 0
    while made < entries:
        number += 1
        known: dict[str, Outputs] = {}
        for stage in build(load_settings("smoke", [f"clean.straight_quotes={number % 2 == 0}".lower()])):
            recipe = recipe_of(stage, known)
            store.put_code(code_of(stage.roots))
            outputs = {}
            for name in stage.outputs:
                blob = store.put_bytes(f"{stage.name} {name} {number if made else 0}".encode())
                entry = FileEntry("file", blob.digest, blob.size, None)
                outputs[name] = store.write_artifact([entry]).digest
            store.ledger.record(recipe, outputs, observations={"seconds": 1.0})
            known[stage.name] = outputs
            made += 1
    return made


def seconds(location: Path, *options: str) -> float:
    """The best time of the whole command."""
    command: Sequence[str] = [str(PROGRAM), "plan", "--profile", "smoke", "--store", str(location), *options]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)


def own_seconds(location: Path, *overrides: str) -> float:
    """Lowest CPU seconds of the plan itself, on a freshly opened store."""
    stages = build(load_settings("smoke", overrides))
    times = []
    for _ in range(5):
        began = time.process_time()
        list(plan(stages, Store.peek(location)))
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("entries", type=int, nargs="?", default=10_000)
    wanted = parser.parse_args().entries
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder) / "store"
        with patch("os.fsync"):  # what is measured is reading
            made = fill(Store.open(location), wanted)
        print(f"{made:,} ledger entries")
        print(f"plan{seconds(location):24.2f} s")
        print(f"plan, a setting changed{seconds(location, '--set', 'ingest.rows_per_shard=7'):5.2f} s")
        print(f"plan of one stage{seconds(location, 'evaluate/rnnsearch'):11.2f} s")
        print(f"the plan itself{own_seconds(location):13.2f} s")
        print(f"the same, a setting changed{own_seconds(location, 'ingest.rows_per_shard=7'):5.2f} s")


if __name__ == "__main__":
    main()
