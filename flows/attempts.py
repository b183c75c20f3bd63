"""Record an attempt of a stage: its outputs, where it ran and what was observed. Needs neither Prefect nor Ray."""

import platform
import socket
from collections.abc import Mapping
from typing import Any

from rnnsearch.flows.execution import Made
from rnnsearch.flows.job import Files, clear_work
from rnnsearch.flows.recipe import code_of
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.witness import package_as_run
from rnnsearch.storage.leases import Lease
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store


def record_attempt(
    store: Store,
    stage: Stage,
    recipe: Recipe,
    lease: Lease,
    made: Made,
    *,
    seconds: float,
    placement: Mapping[str, Any],
) -> Attempt:
    """Write the ledger entry after everything else, then remove the unfinished work of the recipe.

    Raises LeaseLostError where another process holds the lease by now.
    """
    store.put_code(code_of(stage.roots))
    lease.check()
    attempt = store.ledger.record(
        recipe,
        made.outputs,
        rows=_rows(made.files),
        placement=placement,
        observations={**made.observations, "seconds": round(seconds, 3), "made_by": _makers(stage)},
        environment={
            "host": socket.gethostname(),
            "system": platform.platform(),
            "python": platform.python_version(),
            **package_as_run(),
        },
    )
    clear_work(store, recipe.key)
    return attempt


def _makers(stage: Stage) -> Mapping[str, str]:
    """The stage and output that each input came from: two stages may make the same bytes, and keys hold only these."""
    return {name: f"{ref.stage}:{ref.output}" for name, ref in stage.inputs()}


def _rows(files: Files) -> Mapping[str, int]:
    return {
        name: sum(file.rows for file in entries if file.rows is not None)
        for name, entries in files.items()
        if any(file.rows is not None for file in entries)
    }
