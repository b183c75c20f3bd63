"""A small run in a store, written as the bridge would write it: what the report and `diff` are tested on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rnnsearch.pipeline.config import EvaluateConfig, LeakageConfig, SearchConfig, TokenizeConfig
from rnnsearch.pipeline.evaluation import evaluate, sentence_statistics
from rnnsearch.pipeline.leakage import evaluation_sentences, gather_sentences
from rnnsearch.pipeline.overlap import find_overlap, sum_overlap
from rnnsearch.pipeline.schemas import CURVE, DROPPED, HYPOTHESES, PAIRS, SHORTLIST, words
from rnnsearch.pipeline.survey import SURVEY
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store

ENGLISH = ["a", "grey", "cat", "sees", "the", "old", "mill", "by", "river", "and", "sleeps", "there"]
FRENCH = ["un", "chat", "gris", "voit", "le", "vieux", "moulin", "près", "du", "fleuve", "et", "dort"]
SYSTEMS = {"rnnencdec": "RNNencdec-30", "rnnsearch": "RNNsearch-30"}
TEST_SENTENCES = 60
CODE = Digest("c0" * 32)  # of which nothing is stored


def text(vocabulary: Sequence[str], seed: int, length: int) -> str:
    """A sentence of our own making."""
    picks = np.random.default_rng(seed).integers(len(vocabulary), size=length)
    return " ".join(vocabulary[k] for k in picks)


def pairs(corpus: str, count: int, first: int = 0) -> pa.Table:
    """Pairs of 3 to 38 words."""
    sizes = [3 + (k * 7) % 36 for k in range(first, first + count)]
    rows = {
        "corpus": pa.array([corpus] * count).dictionary_encode(),
        "line": list(range(first, first + count)),
        "key": pa.array([None] * count, pa.string()),
        "source": [text(ENGLISH, first + k, size) for k, size in enumerate(sizes)],
        "target": [text(FRENCH, first + k, size) for k, size in enumerate(sizes)],
    }
    return pa.table(rows).cast(PAIRS)


def dropped(corpus: str, reasons: Mapping[str, int], partner: str | None = None) -> pa.Table:
    """So many rows for each reason, all with this partner."""
    names = [reason for reason, count in reasons.items() for _ in range(count)]
    columns = [
        pa.array([corpus] * len(names), pa.string()).dictionary_encode(),
        pa.array(range(len(names)), pa.int64()),
        pa.array(names, pa.string()).dictionary_encode(),
        pa.array([partner] * len(names), pa.string()),
        pa.nulls(len(names), pa.int64()),
    ]
    return pa.table(columns, names=DROPPED.names).cast(DROPPED)


def hypotheses(tokens: pa.Table, *, good: int, attention: bool) -> pa.Table:
    """The reference with every `good`-th word wrong, and a diagonal alignment."""
    outputs, alignments = [], []
    for source, target in zip(tokens["source"].to_pylist(), tokens["target"].to_pylist(), strict=True):
        output = ["[UNK]" if k % good == good - 1 else word for k, word in enumerate(words(target))]
        outputs.append(" ".join(output))
        columns = len(words(source)) + 1
        rows = np.full((len(output), columns), 0.2 / columns)
        rows[np.arange(len(output)), np.minimum(np.arange(len(output)), columns - 1)] += 0.8
        alignments.append(rows.tolist() if attention else None)
    columns_ = {
        "corpus": tokens["corpus"],
        "line": tokens["line"],
        "source": tokens["source"],
        "hypothesis": outputs,
        "cost": [1.0] * len(outputs),
        "finished": [True] * len(outputs),
        "fallback": [False] * len(outputs),
        "alignment": alignments,
    }
    arrays = [
        value.combine_chunks()
        if isinstance(value, pa.ChunkedArray)
        else pa.array(value, HYPOTHESES.field(name).type)
        for name, value in columns_.items()
    ]
    return pa.table(arrays, schema=HYPOTHESES)


def curve(updates: int) -> pa.Table:
    """A falling loss."""
    rows = [
        {
            "update": update,
            "loss_per_token": 2 + 40 / update,
            "loss_per_sentence": 40 + 400 / update,
            "gradient_norm": 3.0,
            "clipped_share": 0.5,
            "skipped": 0,
            "padding_share": 0.1,
            "tokens": 1000,
            "sentences": 80,
            "dev_loss_per_token": 2.5 + 40 / update if update % 40 == 0 else None,
            "dev_loss_per_sentence": 60 + 400 / update if update % 40 == 0 else None,
        }
        for update in range(10, updates + 1, 10)
    ]
    return pa.Table.from_pylist(rows, schema=CURVE)


class Bridge:
    """Writes stages into a store as the bridge does: artifacts, ledger, run."""

    def __init__(self, folder: Path, updates: int = 100, code: Digest = CODE) -> None:
        self.store = Store.open(folder)
        self.outputs: dict[tuple[str, str], Digest] = {}
        self.code = code
        systems = {
            name: {
                "max_words": 30,
                "row": row,
                "network": {"kind": name, "units": 256, "embedding": 620},
                "train": {"optimizer": "adam", "updates": updates, "batch": 80},
                "continues": None,
            }
            for name, row in SYSTEMS.items()
        }
        stages = ["ingest/river", "holdout", "clean/train", "gate", "tokenize/test", "shortlist", "encode/30"]
        self.run = self.store.runs.start(
            {
                "profile": "tiny",
                "settings": {
                    "title": "A river",
                    "systems": systems,
                    "search": {"beam": 10},
                    "holdout": {"corpus": "river"},
                    "tokenize": {"source_language": "en", "target_language": "fr"},
                },
                "stages": [*stages, "train/rnnsearch", "translate/rnnsearch/all", "evaluate/rnnsearch"],
            }
        )

    def stage(
        self,
        name: str,
        outputs: Mapping[str, Sequence[pa.Table] | bytes],
        inputs: Mapping[str, tuple[str, str]] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        observations: Mapping[str, Any] | None = None,
        hit: bool = False,
    ) -> None:
        """Record a stage whose outputs are tables, a shard each, or one JSON file."""
        store, made = self.store, {}
        for output, content in outputs.items():
            if isinstance(content, bytes):
                blob = store.put_bytes(content)
                files = [FileEntry(f"{output}.json", blob.digest, blob.size, None)]
            else:
                files = []
                for position, table in enumerate(content):
                    blob = store.put_table(table)
                    files.append(
                        FileEntry(f"shard-{position:05d}.parquet", blob.digest, blob.size, table.num_rows)
                    )
            made[output] = store.write_artifact(files).digest
            self.outputs[name, output] = made[output]
        recipe = Recipe(
            stage=name,
            code=self.code,
            config=config or {},
            inputs={label: self.outputs[ref] for label, ref in (inputs or {}).items()},
            python="3.11",
            libraries={"pyarrow": "26.0.1"},
        )
        attempt = store.ledger.record(
            recipe, made, placement={"processors": 2}, observations={"seconds": 2.5, **(observations or {})}
        )
        store.runs.record_stage(self.run.id, StageUse(name, recipe.key, attempt.number, hit, "", 0.5))


def overlapping(test: pa.Table) -> pa.Table:
    """OVERLAP with a training text of 118 pairs, of which one is a test pair, and with a near copy of the first one."""
    first = test["source"][0].as_py()
    near = pairs("river", 1, 118).set_column(
        3, PAIRS.field("source"), pa.array([f"cats{first.removeprefix('cat')}"])
    )
    sentences = gather_sentences([evaluation_sentences(test)]).sentences
    return sum_overlap(
        [find_overlap(shard, sentences, LeakageConfig()) for shard in (pairs("river", 118), near)]
    ).overlap


def surveyed() -> pa.Table:
    """SURVEY of a corpus of 200 pairs that slipped in 50 of its lines, and in which 3 pairs hold an entity."""
    slip = {"line": 20, "last": 69, "source": "a grey cat", "target": "un chat gris"}
    entity = {"line": 7, "last": 7, "source": "a &amp; b", "target": "a"}
    rows = [("entities", 3, [entity]), ("pairs", 200, []), ("slipped", 50, [slip]), ("too_long", 1, [entity])]
    return pa.Table.from_pylist(
        [
            {"corpus": "river", "check": check, "pairs": count, "examples": examples}
            for check, count, examples in rows
        ],
        schema=SURVEY,
    )


def write_run(folder: Path, *, updates: int = 100, good: int = 9, code: Digest = CODE) -> Bridge:
    """A whole small run of two systems by one `code`; every `good`-th word of RNNsearch is wrong."""
    bridge = Bridge(folder, updates, code)
    test = pairs("river", TEST_SENTENCES, 1000)
    shortlists = {
        "source": pa.table({"word": ENGLISH}, schema=SHORTLIST),
        "target": pa.table({"word": FRENCH[:-1]}, schema=SHORTLIST),
    }
    bridge.stage("ingest/river", {"pairs": [pairs("river", 100), pairs("river", 100, 100)]}, hit=True)
    bridge.stage("survey", {"survey": [surveyed()]}, {"pairs": ("ingest/river", "pairs")})
    bridge.stage(
        "holdout",
        {
            "train": [pairs("river", 130)],
            "dev": [pairs("river", 10, 900)],
            "test": [test],
            "dropped": [dropped("river", {})],
        },
        {"pairs": ("ingest/river", "pairs")},
        hit=True,
    )
    bridge.stage(
        "clean/train",
        {
            "kept": [pairs("river", 120)],
            "dropped": [dropped("river", {"empty": 4}), dropped("river", {"empty": 3, "duplicate": 3})],
        },
        {"pairs": ("holdout", "train")},
    )
    bridge.stage(
        "gate",
        {"kept": [pairs("river", 118)], "dropped": [dropped("river", {"in_test": 2}, "river:1000")]},
        {"pairs": ("clean/train", "kept")},
    )
    bridge.stage("tokenize/train", {"pairs": [pairs("river", 118)]}, {"pairs": ("gate", "kept")})
    bridge.stage("tokenize/test", {"pairs": [test]}, {"pairs": ("holdout", "test")})
    bridge.stage(
        "shortlist",
        {side: [table] for side, table in shortlists.items()},
        {"pairs": ("tokenize/train", "pairs")},
    )
    bridge.stage(
        "encode/30",
        {"kept": [pairs("river", 90)], "dropped": [dropped("river", {"too_long": 28})]},
        {"pairs": ("tokenize/train", "pairs"), "source": ("shortlist", "source")},
    )
    overlap = overlapping(test)
    bridge.stage("overlap", {"overlap": [overlap]}, {"pairs": ("tokenize/train", "pairs")})
    for name in SYSTEMS:
        bridge.stage(
            f"train/{name}",
            {"model": json.dumps({"updates": updates}).encode(), "curve": [curve(updates)]},
            {"examples": ("encode/30", "kept")},
            config={"train": {"updates": updates}},
            observations={
                "hours": 0.25,
                "epochs": 88.9,
                "device": "cpu",
                "updates": updates,
                "tokens_per_second": 900.0,
            },
        )
        found = hypotheses(test, good=good if name == "rnnsearch" else 4, attention=name == "rnnsearch")
        for policy in ("all", "no-unk"):
            bridge.stage(
                f"translate/{name}/{policy}", {"hypotheses": [found]}, {"model": (f"train/{name}", "model")}
            )
        config, tokenize = EvaluateConfig(bootstrap_samples=40, translation_edit_rate=False), TokenizeConfig()
        partial = sentence_statistics(
            hypotheses=found,
            no_unk=found,
            tokens=test,
            raw=test,
            **shortlists,
            overlap=overlap,
            config=config,
            tokenize=tokenize,
        )
        result = evaluate([partial], config, tokenize, SearchConfig())
        bridge.stage(
            f"evaluate/{name}",
            {"sentences": [result.sentences], "scores": result.scores},
            {"hypotheses": (f"translate/{name}/all", "hypotheses")},
            config={"evaluate": config.model_dump(mode="json")},
        )
    bridge.store.runs.finish(bridge.run.id, "finished")
    return bridge
