"""What the networks reach on Multi30k in some minutes each, in float32 and in bfloat16; needs its text.

    python tests/bench/multi30k.py FOLDER [--store STORE] [--set KEY=VALUE …]

FOLDER holds `train`, `val` and `test_2016_flickr`, each as `.en.gz` and `.fr.gz`. Runs the profile beside this file as
any profile is run, then its search once more in bfloat16, and prints one line for each system. A store that is kept
has the report: `rnnsearch report --store STORE`.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.report.data import System
from rnnsearch.flows.report.gather import gather
from rnnsearch.flows.settings import load_settings
from rnnsearch.storage.store import Store

PROFILE = Path(__file__).with_suffix(".toml")


def run(data: Path, store: Path, settings: Sequence[str]) -> Mapping[str, System]:
    """Run the profile on the text in `data` and return its systems, by name."""
    sources = load_settings(str(PROFILE)).sources
    places = [
        f"sources.{name}.url={(data / Path(each.url).name).absolute().as_uri()}"
        for name, each in sources.items()
    ]
    command = [
        str(Path(sys.executable).with_name("rnnsearch")),
        "run",
        "-p",
        str(PROFILE),
        "--store",
        str(store),
    ]
    subprocess.run([*command, *(f"--set={each}" for each in (*places, *settings))], check=True)
    opened = Store.open(str(store))
    return {system.name: system for system in gather(opened, last_finished(opened).id).systems}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    chosen = parser.parse_args()
    if chosen.folder is None:
        print("skipped: it takes the folder of Multi30k as its argument, and most of an hour")
        return
    with tempfile.TemporaryDirectory() as temporary:
        store = chosen.store or Path(temporary)
        found = run(chosen.folder, store, chosen.settings)
        half = run(chosen.folder, store, [*chosen.settings, "search.precision=bfloat16"])
    print(
        f"{'system':22}{'updates':>8}{'minutes':>8}{'tokens/s':>9}{'dev nats':>9}{'BLEU':>7}{'95 %':>14}"
        f"{'No-UNK':>8}{'bf16 search':>12}"
    )
    for name, system in found.items():
        training, everything, known = system.training, system.score("all"), system.score("no-unk")
        again = half[name].score("all")
        if training is None or everything is None or known is None or again is None:
            raise SystemExit(f"{name} was not evaluated")
        bleu = everything.bleu
        print(
            f"{name:22}{training.updates:8,}{60 * (training.hours or 0):8.1f}{training.tokens_per_second:9,.0f}"
            f"{training.dev_nll:9.2f}{bleu.value:7.2f}{f'{bleu.low:.1f}–{bleu.high:.1f}':>14}"
            f"{known.bleu.value:8.2f}{again.bleu.value:12.2f}"
        )


if __name__ == "__main__":
    main()
