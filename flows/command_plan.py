"""`rnnsearch plan`: the DAG with hits, misses and reasons. No server, no network, no torch."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rnnsearch.flows.dag import build
from rnnsearch.flows.inputs import check_inputs
from rnnsearch.flows.notes import profile_notes
from rnnsearch.flows.plan import Planned, Status, cost, plan
from rnnsearch.flows.settings import Settings, SettingsError, load_settings
from rnnsearch.flows.terminal import duration, emit, output_console
from rnnsearch.storage.store import Store

_MARKS: Mapping[Status, tuple[str, str]] = {
    "hit": ("cached", "green"),
    "hit_if_same": ("cached?", "cyan"),
    "miss": ("compute", "yellow"),
}


def show_plan(
    stage: str | None, profile: str, overrides: Sequence[str], location: str, as_json: bool
) -> None:
    """Print the plan of a profile, or of one of its stages. Changes nothing, and makes no store."""
    settings = load_settings(profile, overrides)
    check_inputs(settings)
    stages = build(settings)
    if stage is not None and stage not in {each.name for each in stages}:
        raise SettingsError(
            f"the profile {profile} has no stage {stage!r}; it has {', '.join(s.name for s in stages)}"
        )
    store = Store.peek(location)
    planned = list(plan(stages, store, stage))
    if stage is not None:
        planned = [each for each in planned if each.stage == stage]
    if as_json:
        emit([{**each.__dict__, "hit": each.hit} for each in planned])
        return
    console = output_console()
    console.print(Text(f"{settings.title}: {len(stages)} stages, store {location}"))
    for note in profile_notes(settings):
        console.print(Text(f"note: {note}", overflow="fold"))
    if stage is None:
        _print_sources(console, settings)
    _print_stages(console, planned)
    counts = {status: sum(each.status == status for each in planned) for status in _MARKS}
    parts = [f"{counts['hit']} cached", f"{counts['miss']} to compute"]
    if counts["hit_if_same"]:
        parts.insert(1, f"{counts['hit_if_same']} cached if the bytes are the same")
    console.print(Text(f"{', '.join(parts)}{_cost_told(planned)}"))
    if store is None:
        console.print(Text("no run yet: `rnnsearch run`"))


def _cost_told(planned: Sequence[Planned]) -> str:
    found = cost(planned)
    if found is None:
        return ""
    if found.least == found.most:
        return f"; about {duration(found.least)} by the last times"
    return f"; at least {duration(found.least)}, at most {duration(found.most)} by the last times"


def _print_sources(console: Console, settings: Settings) -> None:
    table = Table("corpus", "from", "size", "pairs", "words", box=None, pad_edge=False, header_style="bold")
    for name, corpus in settings.corpora.items():
        sources = [settings.sources[source] for source in corpus.sources]
        size = sum(source.size or 0 for source in sources)
        pairs = f"{corpus.declared_pairs:,}" if corpus.declared_pairs else ""
        words = f"{corpus.declared_words:,}" if corpus.declared_words else ""
        where = Text("\n".join(source.url for source in sources), overflow="fold")
        table.add_row(name, where, f"{size / 1e6:,.1f} MB" if size else "", pairs, words)
    console.print(table)


def _print_stages(console: Console, planned: Sequence[Planned]) -> None:
    table = Table("stage", "shape", "", "last time", "why", box=None, pad_edge=False, header_style="bold")
    for each in planned:
        took = duration(each.seconds) if each.seconds is not None else ""
        table.add_row(
            each.stage,
            each.shape,
            Text(*_MARKS[each.status]),
            took,
            Text("\n".join(each.reasons), overflow="fold"),
        )
    console.print(table)
