"""The lock file of a profile: the digests that were learned, as pins for every store (`mine.toml`: `mine.lock`)."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rnnsearch.flows.sources.config import SourceConfig

_HEADER = "# Written by `rnnsearch lock`: what each source gave. Keep it beside the profile, and in version control.\n"


class Pin(NamedTuple):
    """What a source gave when it was locked."""

    url: str  # of the profile: the pin holds for this address and no other
    sha256: str
    size: int  # bytes
    origin: str  # the address or mirror that gave the file


def lock_path(profile: Path) -> Path:
    """The lock file of a profile's file; it need not be there."""
    return profile.with_suffix(".lock")


def read_lock(path: Path) -> Mapping[str, Pin]:
    """The pins of a lock file by source; none where there is no file. ValueError where it is damaged."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file ({error}); {_REMEDY}") from error
    sources = values.get("sources", {})
    if not isinstance(sources, dict):
        raise ValueError(f"{path}: sources is not a table; {_REMEDY}")
    return {name: _pin(path, name, entry) for name, entry in sources.items()}


def write_lock(path: Path, pins: Mapping[str, Pin]) -> None:
    """Write a lock file, whole or not at all. OSError where that fails."""
    lines = [_HEADER]
    for name, pin in pins.items():
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
        lines.append(f"\n[sources.{key}]\n")
        lines.append(f"url = {_quoted(pin.url)}\nsha256 = {_quoted(pin.sha256)}\nsize = {pin.size}\n")
        if pin.origin != pin.url:
            lines.append(f"origin = {_quoted(pin.origin)}\n")
    fresh = path.with_name(f"{path.name}.part")
    fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(path)


def pinned_by(source: SourceConfig, pin: Pin | None) -> SourceConfig:
    """Return the source with the pin's digest and size, where it has no digest of its own and the same address."""
    if pin is None or source.sha256 is not None or pin.url not in (source.url, *source.mirrors):
        return source
    return source.model_copy(update={"sha256": pin.sha256, "size": source.size or pin.size})


_REMEDY = "mend it, or remove it and run `rnnsearch lock`"


def _pin(path: Path, name: str, entry: object) -> Pin:
    values = entry if isinstance(entry, dict) else {}
    url, sha256, size = values.get("url"), values.get("sha256"), values.get("size")
    if not (
        isinstance(url, str)
        and isinstance(sha256, str)
        and re.fullmatch("[0-9a-f]{64}", sha256)
        and isinstance(size, int)
        and size >= 0
    ):
        raise ValueError(f"{path}: sources.{name} lacks a url, a sha256 or a size; {_REMEDY}")
    return Pin(url, sha256, size, str(values.get("origin", url)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # a basic string of TOML
