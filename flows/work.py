"""Which code does the work of each kind of stage. The driver's table; workers import only what they are sent.

`dag.py` names the same functions as strings, so that `plan` need not import them; a test holds the two together.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rnnsearch.flows import beside, download, run_stages
from rnnsearch.flows.align import align_shard
from rnnsearch.flows.sweep import sweep
from rnnsearch.flows.train_stage import train
from rnnsearch.flows.translate import translate_shard
from rnnsearch.pipeline import (
    clean,
    duplicates,
    encode,
    evaluation,
    holdout,
    leakage,
    overlap,
    selection,
    shortlist,
    survey,
)
from rnnsearch.pipeline.tokenization import tokenize_shard
from rnnsearch.pipeline.turn import turn_shard


class MapWork(NamedTuple):
    """A pure function of one shard."""

    function: Callable[..., Any]


class FoldWork(NamedTuple):
    """A pure partial step for each shard and a pure merge."""

    partial: Callable[..., Any]
    merge: Callable[..., Any]


class RunWork(NamedTuple):
    """One long piece of work: on the driver (it reports progress), or as one task on the cluster."""

    function: Callable[..., Any]
    on_cluster: bool
    needs_cluster: bool = False  # the driver's work itself uses Ray


WORK: Mapping[str, MapWork | FoldWork | RunWork] = {
    "download": RunWork(download.download, on_cluster=False),
    "ingest": RunWork(run_stages.ingest, on_cluster=True),
    "holdout-keys": FoldWork(holdout.candidate_keys, holdout.choose_keys),
    "holdout": MapWork(holdout.hold_out),
    "survey": FoldWork(survey.survey_shard, survey.sum_survey),
    "clean": MapWork(clean.clean_shard),
    "normalize": MapWork(clean.normalize_shard),
    "duplicates": FoldWork(duplicates.pair_hashes, duplicates.find_duplicates),
    "leakage": FoldWork(leakage.evaluation_sentences, leakage.gather_sentences),
    "gate-dev": MapWork(leakage.gate_dev),
    "gate": MapWork(leakage.gate_shard),
    "tokenize": MapWork(tokenize_shard),
    "selection-vocabulary": FoldWork(selection.in_domain_text, selection.in_domain_vocabulary),
    "selection-sample": FoldWork(selection.pool_sample, selection.cut_sample),
    "language-models": RunWork(run_stages.language_models, on_cluster=True),
    "score": MapWork(selection.score_shard),
    "threshold": FoldWork(selection.ranking, selection.choose_rows),
    "select": MapWork(selection.select_shard),
    "overlap": FoldWork(overlap.find_overlap, overlap.sum_overlap),
    "shortlist": FoldWork(shortlist.count_words, shortlist.choose_words),
    "encode": MapWork(encode.encode_shard),
    "order": RunWork(run_stages.order, on_cluster=True),
    "train": RunWork(train, on_cluster=False, needs_cluster=True),
    "translate": MapWork(translate_shard),
    "external": RunWork(beside.external, on_cluster=True),
    "turn": MapWork(turn_shard),
    "align": MapWork(align_shard),
    "evaluate-alignment": RunWork(beside.evaluate_alignment, on_cluster=True),
    "sweep": RunWork(sweep, on_cluster=True),
    "evaluate": FoldWork(evaluation.sentence_statistics, evaluation.evaluate),
}
