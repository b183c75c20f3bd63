"""`rnnsearch fetch`: download the sources of a profile into the store before a run."""

import sys
from collections.abc import Callable, Iterable, Sequence

from rnnsearch.flows.bring import bring
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import Settings, load_settings
from rnnsearch.flows.terminal import emit
from rnnsearch.storage.store import Store


def fetch_sources(
    sources: Sequence[str],
    again: Sequence[str],
    profile: str,
    overrides: Sequence[str],
    location: str,
    *,
    as_json: bool,
) -> None:
    """Fetch the named sources of a profile, or all; sources in `again` are fetched even if stored."""
    settings = load_settings(profile, overrides)
    wanted = chosen(settings, (*sources, *again))
    stages = {stage.name: stage for stage in build(settings)}
    store = Store.open(location)
    found = []
    try:
        for name in wanted:
            stage = stages[f"download/{name}"]
            before = store.ledger.history(stage.name)[-1:]
            attempt = bring(stage, store, teller(name), again=name in again)
            seen = attempt.observations
            fresh = attempt.number != (before[0].number if before else 0) or attempt.key != before[0].key
            changed = bool(before) and before[0].observations.get("sha256") != seen.get("sha256")
            state = "changed" if fresh and changed else "fetched" if fresh else "there"
            found.append({"source": name, "state": state, **{key: seen.get(key) for key in _SHOWN}})
            sys.stderr.write(f"{name}: {_SAID[state]}, {seen.get('bytes', 0):,} bytes\n")
    finally:
        store.close()
    if as_json:
        emit(found)
    else:
        for each in found:
            sys.stdout.write(f"{each['source']} {each['sha256']}\n")


_SHOWN = ("sha256", "bytes", "origin")
_SAID = {
    "there": "was there already",
    "fetched": "fetched",
    "changed": "fetched, and other bytes than before",
}


def chosen(settings: Settings, names: Iterable[str]) -> Sequence[str]:
    """The sources of these names, each once, or all; UsageError for one that the profile lacks."""
    wanted = list(dict.fromkeys(names)) or list(settings.sources)
    for name in wanted:
        if name not in settings.sources:
            raise UsageError(f"the profile has no source {name!r}; it has {', '.join(settings.sources)}")
    return wanted


def teller(name: str) -> Callable[[str], None]:
    """Return a function that shows progress on one line of a terminal."""

    def tell(note: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{name}: {note}\r")

    return tell
