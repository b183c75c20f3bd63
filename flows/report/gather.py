"""From a store to ReportData. What a run lacks is left out and said."""

import dataclasses

import pyarrow as pa

from rnnsearch.flows.report.corpora import corpus_flows, datasets, text_lengths, training_lengths
from rnnsearch.flows.report.data import Lengths, ReportData, System
from rnnsearch.flows.report.departures import marked_departures
from rnnsearch.flows.report.lineage import costs, evidence
from rnnsearch.flows.report.scorecard import check_claims
from rnnsearch.flows.report.sentences import gather_aligned, gather_every, gather_long
from rnnsearch.flows.report.systems import gather_comparisons, gather_systems
from rnnsearch.flows.report.view import RunView
from rnnsearch.flows.report.warnings import gather_findings, gather_overlap, gather_warnings
from rnnsearch.storage.store import Store


def gather(store: Store, run_id: str) -> ReportData:
    """Everything that the report of a run shows. MissingError if there is no such run; else it never fails.

    Any state of a run will do: a stage that is not there is "not run".
    """
    view = RunView(store, run_id)
    systems = gather_systems(view)
    sentences = {
        system.name: table
        for system in systems
        if (table := view.table(f"evaluate/{system.name}", "sentences")) is not None
    }
    flows = corpus_flows(view)
    aligned = _best_aligned(systems, sentences)
    overlap, findings = gather_overlap(view, systems), gather_findings(view)
    report = ReportData(
        profile=str(view.request.get("profile", "")),
        title=str(view.settings("title") or ""),
        run=run_id,
        state=view.run.state,
        source_language=view.settings("tokenize", "source_language") or "en",
        target_language=view.settings("tokenize", "target_language") or "fr",
        datasets=datasets(view, flows),
        systems=systems,
        comparisons=gather_comparisons(view, sentences),
        flows=flows,
        lengths=_lengths(view, sentences),
        aligned=gather_aligned(view, aligned, sentences[aligned.name]) if aligned else (),
        every_aligned=gather_every(view, aligned, sentences[aligned.name]) if aligned else (),
        long_sentences=gather_long(sentences),
        costs=costs(view),
        departures=marked_departures(),
        evidence=evidence(view),
        findings=findings,
        overlap=overlap,
        warnings=gather_warnings(view, systems, overlap, findings),
    )
    return dataclasses.replace(report, claims=check_claims(report), missing=tuple(view.missing))


def _lengths(view: RunView, sentences: dict[str, pa.Table]) -> tuple[Lengths, ...]:
    found = list(training_lengths(view))
    stages = {name: view.evidence(f"evaluate/{name}") for name in sentences}
    for name, table in list(sentences.items())[:1]:
        found.append(text_lengths("source", "test", table, "source", stages[name]))
        found.append(text_lengths("target", "reference", table, "reference", stages[name]))
    found += [
        text_lengths("target", name, table, "hypothesis", stages[name]) for name, table in sentences.items()
    ]
    return tuple(found)


def _best_aligned(systems: tuple[System, ...], sentences: dict[str, pa.Table]) -> System | None:
    """The best system that has alignments."""
    scored = [
        (score.bleu.value, system)
        for system in systems
        if system.attention is not None and system.name in sentences and (score := system.score("all"))
    ]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None
