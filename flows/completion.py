"""Shell completion of profiles, stages, runs, systems and setting keys.

Nothing is offered where something is wrong: the command itself says what.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

Offer = Callable[[typer.Context, str], list[str]]


def _offered(names: Callable[[Mapping[str, Any]], Iterable[str]]) -> Offer:
    """Make a completion callback from a function that yields names for the options given so far."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        found: list[str] = []
        with contextlib.suppress(Exception):  # a broken profile, a store that is not there: nothing to offer
            found += [name for name in names(ctx.params) if name.startswith(incomplete)]
        return found

    return complete


def _profiles(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.flows.settings import PROFILES  # noqa: PLC0415

    yield from sorted(path.stem for path in PROFILES.glob("*.toml"))
    yield from sorted(path.name for path in Path().glob("*.toml"))


def _stages(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.flows.dag import build  # noqa: PLC0415
    from rnnsearch.flows.settings import load_settings  # noqa: PLC0415

    for stage in build(load_settings(given.get("profile") or "demo", given.get("override") or ())):
        yield stage.name


def _keys(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.flows.settings import load_settings, setting_names  # noqa: PLC0415

    for name in setting_names(load_settings(given.get("profile") or "demo")):
        yield f"{name}="


def _search_keys(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.model.config import SearchConfig  # noqa: PLC0415

    for name in ("preset", *SearchConfig.model_fields):
        yield f"{name}="


def _runs(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.storage.store import Store  # noqa: PLC0415

    runs = Store.open(given["store"], create=False).runs.list()
    for run in reversed(runs):
        yield run.id
    yield from sorted({tag for run in runs for tag in run.tags})


def _systems(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.flows.command_inspect import last_finished  # noqa: PLC0415
    from rnnsearch.storage.store import Store  # noqa: PLC0415

    store = Store.open(given["store"], create=False)
    run = store.runs.find(given["run"]) if given.get("run") else last_finished(store)
    yield from run.request["settings"]["systems"]


def _outputs(given: Mapping[str, Any]) -> Iterator[str]:
    from rnnsearch.flows.command_export_text import outputs_of  # noqa: PLC0415
    from rnnsearch.flows.command_inspect import last_finished  # noqa: PLC0415
    from rnnsearch.storage.store import Store  # noqa: PLC0415

    store = Store.open(given["store"], create=False)
    run = store.runs.find(given["run"]) if given.get("run") else last_finished(store)
    yield from outputs_of(store, run)


profiles = _offered(_profiles)
stages = _offered(_stages)
keys = _offered(_keys)
search_keys = _offered(_search_keys)
runs = _offered(_runs)
systems = _offered(_systems)
outputs = _offered(_outputs)
