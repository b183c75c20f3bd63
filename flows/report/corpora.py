"""From raw pairs to training pairs, corpus by corpus, and how long the sentences are."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnnsearch.flows.report.data import CorpusFlow, Dataset, Dropped, FlowStep, Lengths
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.observables import lengths

SAMPLED_SHARDS = 16  # of the training pairs, evenly spaced, for the distribution of lengths
LONGEST = 80  # tokens; all above fall in the last class

Loss = dict[str, Counter[str]]  # corpus -> reason -> pairs


def corpus_flows(view: RunView) -> tuple[CorpusFlow, ...]:
    """What became of the pairs of each corpus. Only the rows that left are read."""
    corpora = view.names("ingest")
    held = _held_out(view)
    steps: list[tuple[str, str, Loss | None]] = [("not held out", "holdout", held)]
    for name, stage in (("clean", "clean/train"), ("gated", "gate"), ("selected", "select")):
        if view.planned(stage):
            steps.append((name, stage, _lost(view, stage)))
    limits = [
        (f"≤ {words} words", f"encode/{words}", _lost(view, f"encode/{words}"))
        for words in sorted((int(name) for name in view.names("encode") if name.isdigit()), reverse=True)
    ]
    flows = []
    for corpus in corpora:
        made = list(_ingested(view, corpus))
        left = made[-1].pairs
        for name, stage, lost in steps:
            made.append(_step(name, left, corpus, lost, view.evidence(stage)))
            left = made[-1].pairs
        made += [_step(name, left, corpus, lost, view.evidence(stage)) for name, stage, lost in limits]
        flows.append(CorpusFlow(corpus=corpus, steps=tuple(made)))
    return tuple(flows)


def datasets(view: RunView, flows: Iterable[CorpusFlow]) -> tuple[Dataset, ...]:
    """Train, dev and test as they were used."""
    found = []
    trained_on = tuple(_training_corpora(flows))
    train = "select" if "select" in view.attempts else "tokenize/train"
    for role, stage, output in (
        ("train", train, "kept" if train == "select" else "pairs"),
        ("dev", "tokenize/dev", "pairs"),
        ("test", "tokenize/test", "pairs"),
    ):
        if stage in view.attempts:
            corpora = _corpora(view, stage, output) if role != "train" else trained_on
            pairs = view.rows(stage, output)
            found.append(Dataset(role=role, corpora=corpora, pairs=pairs, evidence=view.evidence(stage)))
    return tuple(found)


def training_lengths(view: RunView) -> tuple[Lengths, ...]:
    """Lengths of the training pairs, source and target, from evenly spaced shards."""
    stage, output = ("select", "kept") if "select" in view.attempts else ("tokenize/train", "pairs")
    files = view.files(stage, output)
    step = max(1, -(-len(files) // SAMPLED_SHARDS))
    tables = list(view.tables_of(stage, files[::step], ("source", "target")))
    if not tables:
        return ()
    pairs = pa.concat_tables(tables)
    evidence = view.evidence(stage)
    return tuple(text_lengths(side, "train", pairs, side, evidence) for side in ("source", "target"))


def text_lengths(side: str, label: str, table: pa.Table, column: str, evidence: str) -> Lengths:
    """The distribution of the numbers of tokens in a column of sentences."""
    spaces = pc.count_substring(table[column], " ").to_numpy().astype(np.int64)
    empty = pc.equal(table[column], pa.scalar("")).to_numpy()
    found = lengths(np.where(empty, 0, spaces + 1), LONGEST)
    return Lengths(side=side, label=label, counts=found.counts, mean=round(found.mean, 3), evidence=evidence)


def _ingested(view: RunView, corpus: str) -> Iterable[FlowStep]:
    """What the files of a corpus hold, and what was read where the reader dropped some of it."""
    stage = f"ingest/{corpus}"
    evidence = view.evidence(stage)
    pairs = view.rows(stage, "pairs")
    lost = _lost(view, stage) or {}
    if pairs is None or corpus not in lost:
        yield FlowStep(name="raw", pairs=pairs, evidence=evidence)
        return
    raw = pairs + lost[corpus].total()
    yield FlowStep(name="raw", pairs=raw, evidence=evidence)
    yield _step("read", raw, corpus, lost, evidence)


def _step(name: str, before: int | None, corpus: str, lost: Loss | None, evidence: str) -> FlowStep:
    if before is None or lost is None:
        return FlowStep(name=name, pairs=None, evidence=evidence)
    reasons = lost.get(corpus, Counter())
    dropped = tuple(Dropped(reason=reason, pairs=pairs) for reason, pairs in sorted(reasons.items()))
    return FlowStep(name=name, pairs=before - reasons.total(), dropped=dropped, evidence=evidence)


def _lost(view: RunView, stage: str) -> Loss | None:
    if stage not in view.attempts:
        return None
    found: Loss = {}
    for table in view.tables(stage, "dropped", ("corpus", "reason")):
        _count(found, table)
    return found


def _held_out(view: RunView) -> Loss | None:
    found = _lost(view, "holdout")
    if found is None:
        return None
    for split in ("dev", "test"):
        for table in view.tables("holdout", split, ("corpus",)):
            _count(
                found, table.append_column("reason", pa.array([f"is {split}"] * table.num_rows, pa.string()))
            )
    return found


def _count(found: Loss, rows: pa.Table) -> None:
    plain = rows.cast(pa.schema([("corpus", pa.string()), ("reason", pa.string())]))
    for row in plain.group_by(["corpus", "reason"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["corpus"], Counter())[row["reason"]] += row["count_all"]


def _corpora(view: RunView, stage: str, output: str) -> tuple[str, ...]:
    names: set[str] = set()
    for table in view.tables(stage, output, ("corpus",)):
        names |= {name for name in table["corpus"].unique().to_pylist() if name is not None}
    return tuple(sorted(names))


def _training_corpora(flows: Iterable[CorpusFlow]) -> Iterable[str]:
    """Corpora of which something is left before the length limit."""
    for flow in flows:
        steps = [step for step in flow.steps if not step.name.startswith("≤")]
        if steps and steps[-1].pairs:
            yield flow.corpus
