"""`rnnsearch lock`: write the digests of a profile's sources to a lock file beside it."""

import sys
from collections.abc import Mapping, Sequence

from rnnsearch.flows.bring import bring
from rnnsearch.flows.command_fetch import chosen, teller
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.recipe import recipe_of
from rnnsearch.flows.settings import PROFILES, SettingsError, find_profile, load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.flows.sources.lockfile import Pin, lock_path, read_lock, write_lock
from rnnsearch.flows.terminal import emit
from rnnsearch.storage.errors import explained
from rnnsearch.storage.store import Store


def lock_sources(
    update: Sequence[str], profile: str, overrides: Sequence[str], location: str, *, as_json: bool
) -> None:
    """Write the lock file of a profile and print its path.

    A source that is locked at its present address stays as it is, unless it is in `update`: then it is fetched again.
    The digest of another is the one that this store learned; without one it is fetched.
    """
    path = find_profile(profile)
    if path.parent == PROFILES:
        raise UsageError(
            f"{profile} is a profile of the package, whose folder holds no lock files; copy {path} and lock the copy"
        )
    settings = load_settings(profile, overrides, locked=False)
    if update:
        chosen(settings, update)
    stages = {stage.name: stage for stage in build(settings)}
    target = lock_path(path)
    try:
        old = read_lock(target)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    store = Store.open(location)
    pins: dict[str, Pin] = {}
    try:
        for name, source in settings.sources.items():
            if (reason := _needs_none(source)) is not None:
                if name in update:
                    raise UsageError(f"{name} cannot be locked: {reason}")
                continue
            kept = None if name in update else _kept(source, old.get(name))
            pin = kept or _learned(store, stages[f"download/{name}"], source, again=name in update)
            pins[name] = pin
            sys.stderr.write(f"{name}: {_said(old.get(name), pin)}\n")
    finally:
        store.close()
    try:
        write_lock(target, pins)
    except OSError as error:
        raise explained(error, f"write {target}") from error
    if as_json:
        emit({"lock": target, "sources": {name: pin._asdict() for name, pin in pins.items()}})
    else:
        sys.stdout.write(f"{target}\n")


def _needs_none(source: SourceConfig) -> str | None:
    """Why a source needs no lock, or None."""
    if source.sha256 is not None:
        return "the profile has its sha256; change it there"
    if source.local is not None:
        return "it is a file of this machine, whose content is read at each run"
    return None


def _kept(source: SourceConfig, pin: Pin | None) -> Pin | None:
    return pin if pin is not None and pin.url in (source.url, *source.mirrors) else None


def _learned(store: Store, stage: Stage, source: SourceConfig, *, again: bool) -> Pin:
    """The pin of a source from the ledger, or from a new download."""
    seen: Mapping[str, object] = {}
    if not again:
        attempts = store.ledger.attempts(recipe_of(stage, {}).key, stage.name)
        seen = next((each.observations for each in reversed(attempts) if "sha256" in each.observations), {})
    seen = seen or bring(stage, store, teller(stage.name), again=again).observations
    return Pin(source.url, str(seen["sha256"]), int(str(seen["bytes"])), str(seen["origin"]))


def _said(old: Pin | None, new: Pin) -> str:
    if old is None:
        return f"sha256 {new.sha256[:12]}, {new.size:,} bytes"
    if old.sha256 == new.sha256:
        return f"sha256 {new.sha256[:12]}, as before"
    return f"sha256 {old.sha256[:12]} → {new.sha256[:12]}, {old.size:,} → {new.size:,} bytes"
