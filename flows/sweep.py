"""Stage `sweep`: beam width against quality and latency, on the first sentences of dev."""

import json
import time

import torch

from rnnsearch.flows.job import Finished, Job
from rnnsearch.flows.settings import SweepConfig
from rnnsearch.flows.shards import section, whole_table
from rnnsearch.flows.translate import translate_shard
from rnnsearch.model.config import SearchConfig
from rnnsearch.pipeline.beams import beam_score
from rnnsearch.pipeline.config import EvaluateConfig, TokenizeConfig
from rnnsearch.storage.artifacts import FileEntry


def sweep(job: Job) -> Finished:
    """Translate the same sentences with each width; what that took is an observation, not a result."""
    store, inputs = job.store, job.inputs
    wanted, search = section(job.config, SweepConfig), section(job.config, SearchConfig)
    evaluate, tokenize = section(job.config, EvaluateConfig), section(job.config, TokenizeConfig)
    pairs = whole_table(store, inputs["pairs"]).slice(0, wanted.sentences)
    model = store.local_folder(inputs["model"])
    source, target = whole_table(store, inputs["source"]), whole_table(store, inputs["target"])
    translate_shard(pairs.slice(0, 1), model, source, target, search)  # the model is read and made ready once
    scores, seconds = [], {}
    for beam in wanted.beams:
        config = search.model_copy(update={"beam": beam})
        began = time.perf_counter()
        found = translate_shard(pairs, model, source, target, config).hypotheses
        seconds[str(beam)] = round(time.perf_counter() - began, 4)
        scores.append(beam_score(found, pairs, evaluate, tokenize, config.model_dump(mode="json")))
    blob = store.put_bytes((json.dumps(scores, indent=1) + "\n").encode())
    files = {"scores": [FileEntry("scores.json", blob.digest, blob.size, None)]}
    return Finished(
        files, {"beam_seconds": seconds, "sentences": pairs.num_rows, "threads": torch.get_num_threads()}
    )
