"""Run one download stage outside a run: for `rnnsearch fetch` and `rnnsearch lock`. Starts neither Prefect nor Ray."""

import time
from collections.abc import Callable

from rnnsearch.flows.attempts import record_attempt
from rnnsearch.flows.download import download
from rnnsearch.flows.execution import Made
from rnnsearch.flows.job import Job, Place
from rnnsearch.flows.proof import check, proof_of
from rnnsearch.flows.recipe import look_up, recipe_of
from rnnsearch.flows.shapes import Stage
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.store import Store


def bring(stage: Stage, store: Store, progress: Callable[[str], None], *, again: bool = False) -> Attempt:
    """Return an attempt of a download stage, fetching the source if its output is not in the store.

    With `again` the source is always fetched, and the new attempt replaces the old one. Raises SourceError.
    """
    recipe = recipe_of(stage, {})
    with store.leases.hold(
        recipe.key, needs=(), on_wait=lambda _: progress("waits for another run")
    ) as lease:
        found = look_up(store, recipe, stage.roots, keep=True)
        if found.attempt is not None and not again:
            return found.attempt
        began = time.monotonic()
        job = Job(
            location=store.location,
            stage=stage.name,
            key=recipe.key,
            epoch=lease.epoch,
            inputs={},
            config=recipe.config,
            place=Place(),
            proof=proof_of(stage.roots),
            code=recipe.code,
            unkeyed={**stage.unkeyed, "again": again},
        )
        check(job.proof)
        finished = download(job, lambda step: progress(step.text))
        check(job.proof)
        made = Made(
            outputs={name: store.write_artifact(files).digest for name, files in finished.files.items()},
            files=finished.files,
            observations=finished.observations,
        )
        seconds = time.monotonic() - began
        return record_attempt(store, stage, recipe, lease, made, seconds=seconds, placement={})
