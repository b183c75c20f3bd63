"""Where we do other than the paper: settings of a run, and places in the code that say `ours:`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rnnsearch
from rnnsearch.flows.report.data import Departure, Setting
from rnnsearch.flows.report.paper import SETTINGS, TABLE_2

# In a comment to the end of the line; in a docstring in brackets, or in backticks to the end of the sentence.
_MARK = re.compile(
    r"""(?: \#[^"\n]*?\bours:[ ]*(?P<comment>.+)
          | \(ours:\s+(?P<bracket>[^)]+)\)
          | `ours:`\s+(?P<sentence>(?:[^."]|\.(?!\s|"))+) )""",
    re.VERBOSE,
)
_ISLANDS = ("pipeline", "model", "flows", "storage")


def changed_settings(settings: Mapping[str, Any], system: str) -> tuple[Setting, ...]:
    """The settings of a system in which a run differs from the paper, each with the paper's."""
    own = settings.get("systems", {}).get(system, {})
    found = []
    for name, section, said, accepted in ((s.name, s.section, s.said, s.accepted) for s in SETTINGS):
        part = own.get(section) if section in {"network", "train"} else settings.get(section)
        if not isinstance(part, Mapping) or name not in part:
            continue
        if name == "alignment_units" and own.get("network", {}).get("kind") != "rnnsearch":
            continue  # nothing is aligned with it
        if part[name] not in accepted:
            found.append(Setting(name=f"{section}.{name}", paper=said, ours=_spelled(part[name])))
    row = next((row for row in TABLE_2 if row.name == own.get("row")), None)
    updates = own.get("train", {}).get("updates")
    if row is not None and updates is not None and updates != row.updates:
        found.append(Setting(name="train.updates", paper=f"{row.updates:,}", ours=f"{updates:,}"))
    return tuple(found)


def marked_departures() -> tuple[Departure, ...]:
    """The comments of this package that begin with `ours:`, by file and line."""
    return tuple(_marked(Path(rnnsearch.__file__).parent))


def _marked(package: Path) -> Iterator[Departure]:
    for island in _ISLANDS:
        paths = [path for kind in ("*.py", "*.toml") for path in (package / island).rglob(kind)]
        for path in sorted(paths):
            source = path.read_text(encoding="utf-8")
            for hit in _MARK.finditer(source):
                text = next(part for part in hit.groups() if part)
                before = source[source.rfind("\n", 0, hit.start()) + 1 : hit.start()]
                yield Departure(where=_where(package, path, before), text=" ".join(text.split()))


def _where(package: Path, path: Path, code: str) -> str:
    """The file, and the name that the line sets, if it sets one."""
    name = re.match(r"\s*(\w+)\s*[:=]", code)
    place = path.relative_to(package).as_posix()
    return f"{place}: {name[1]}" if name else place


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
