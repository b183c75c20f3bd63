"""Test sentences that a report shows: soft alignments (Figure 3) and long ones (Table 3)."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rnnsearch.flows.report.data import Aligned, LongSentence, Packed, Rendering, System
from rnnsearch.flows.report.view import RunView
from rnnsearch.pipeline.alignment import as_matrix
from rnnsearch.pipeline.bleu import EvaluationError
from rnnsearch.pipeline.schemas import EOS, words

MOST_ALIGNED = 40
LIKE_THE_PAPER = 12  # of them as in Figure 3: no unknown words, 10 to 20 source words
LONGEST_ALIGNED = 50  # words a side: a larger heatmap says nothing
MOST_LONG = 3
LONG = 30  # source words at least, as in Table 3

_COLUMNS = (
    "corpus",
    "line",
    "source",
    "reference",
    "hypothesis",
    "source_words",
    "source_unknown",
    "reference_unknown",
)
Row = Mapping[str, Any]


def gather_aligned(view: RunView, system: System, sentences: pa.Table) -> tuple[Aligned, ...]:
    """Alignments of one system on some test sentences, chosen by hash: first such as the paper shows, then others."""
    rows = sentences.select(_COLUMNS).to_pylist()
    fitting = [row for row in _shuffled(rows) if _fits(row)]
    first = [row for row in fitting if _unknown_free(row) and 10 <= row["source_words"] <= 20]
    chosen = first[:LIKE_THE_PAPER]
    taken = {_identity(row) for row in chosen}
    chosen += [row for row in fitting if _identity(row) not in taken][: MOST_ALIGNED - len(chosen)]
    wanted = {_identity(row): row for row in chosen}
    weights: dict[tuple[str, int], Sequence[Sequence[float]]] = {}
    for table in view.tables(f"translate/{system.name}/all", "hypotheses", ("corpus", "line", "alignment")):
        places = zip(table["corpus"].to_pylist(), table["line"].to_pylist(), strict=True)
        for position, place in enumerate(places):
            if place in wanted and (found := table["alignment"][position].as_py()):
                weights[place] = found
    return tuple(
        aligned
        for place, row in wanted.items()
        if place in weights and (aligned := _aligned(view, system.name, row, weights[place])) is not None
    )


def gather_every(view: RunView, system: System, sentences: pa.Table) -> tuple[Packed, ...]:
    """The alignments of one system on all test sentences, in the order of the test set."""
    rows = {_identity(row): row for row in sentences.select(_COLUMNS).to_pylist()}
    found = []
    for table in view.tables(f"translate/{system.name}/all", "hypotheses", ("corpus", "line", "alignment")):
        alignments = table["alignment"].combine_chunks()
        places = zip(table["corpus"].to_pylist(), table["line"].to_pylist(), strict=True)
        for position, place in enumerate(places):
            row = rows.get(place)
            if row is None or not alignments[position].is_valid:
                continue
            columns = len(words(row["source"])) + 1
            flat = alignments[position].values.flatten().to_numpy(zero_copy_only=False)
            written = len(words(row["hypothesis"]))
            if len(flat) % columns or len(flat) // columns < written:
                continue  # said where the sentences of the page are gathered
            found.append(
                Packed(
                    corpus=row["corpus"],
                    line=row["line"],
                    source=row["source"],
                    target=row["hypothesis"],
                    reference=row["reference"],
                    weights=";".join(map(_packed, flat.reshape(-1, columns)[:written])),
                )
            )
    return tuple(found)


def _packed(weights: npt.NDArray[np.float32]) -> str:
    percent = np.rint(100 * weights).astype(int)
    strongest = int(weights.argmax())
    places = [strongest, *(int(place) for place in np.flatnonzero(percent) if place != strongest)]
    return " ".join(f"{place}:{percent[place]}" for place in places)


def gather_long(sentences: Mapping[str, pa.Table]) -> tuple[LongSentence, ...]:
    """Long test sentences with what each system made of them; those with the fewest unknown words first."""
    if not sentences:
        return ()
    tables = {name: table.select(_COLUMNS).to_pylist() for name, table in sentences.items()}
    rows = next(iter(tables.values()))
    long = [row for row in _shuffled(rows) if row["source_words"] >= LONG]
    chosen = sorted(long, key=lambda row: row["source_unknown"] + row["reference_unknown"])[:MOST_LONG]
    outputs = {name: {_identity(row): row["hypothesis"] for row in found} for name, found in tables.items()}
    return tuple(
        LongSentence(
            corpus=row["corpus"],
            line=row["line"],
            words=row["source_words"],
            source=row["source"],
            reference=row["reference"],
            translations=tuple(
                Rendering(system=name, text=known[_identity(row)])
                for name, known in outputs.items()
                if _identity(row) in known
            ),
        )
        for row in chosen
    )


def _aligned(view: RunView, system: str, row: Row, weights: Sequence[Sequence[float]]) -> Aligned | None:
    source, target = (*words(row["source"]), EOS), words(row["hypothesis"])
    try:
        matrix = as_matrix(weights, len(target), len(source) - 1)[: len(target)]  # without the row of </s>
    except EvaluationError as error:
        view.missing.append(f"alignment of {row['corpus']}, line {row['line']}: {error}")
        return None
    return Aligned(
        system=system,
        corpus=row["corpus"],
        line=row["line"],
        source=source,
        target=tuple(target),
        reference=row["reference"],
        weights=tuple(tuple(round(weight, 4) for weight in line) for line in matrix.tolist()),
        unknown_free=_unknown_free(row),
    )


def _shuffled(rows: Sequence[Row]) -> list[Row]:
    """In the order of a hash of their identity: random, and the same for every run on these sentences."""
    return sorted(rows, key=lambda row: hashlib.sha256(f"{row['corpus']}:{row['line']}".encode()).digest())


def _fits(row: Row) -> bool:
    return 0 < row["source_words"] <= LONGEST_ALIGNED and 0 < len(words(row["hypothesis"])) <= LONGEST_ALIGNED


def _unknown_free(row: Row) -> bool:
    return bool(row["source_unknown"] == 0 and row["reference_unknown"] == 0)


def _identity(row: Row) -> tuple[str, int]:
    return row["corpus"], row["line"]
