"""The parts of a code digest and their sources as they are stored, and which of them differ between two."""

import difflib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rnnsearch.storage.digests import canonical_json, hash_bytes
from rnnsearch.storage.errors import DamagedError

_SHORT = 16  # digits of a digest that are enough to tell changes apart
_LEVEL = 9  # of zlib: sources are written once


class Part(NamedTuple):
    """One definition that a stage reaches."""

    own: str  # the digest of its own syntax, with numbers for references
    full: str  # the digest with every reference replaced by the full digest of what it refers to
    references: tuple[str, ...] = ()  # the present names of these, by number

    def to_text(self) -> str:
        """The part in one line."""
        return " ".join((self.own[:_SHORT], self.full[:_SHORT], *self.references))


def parse_part(text: str) -> Part:
    """The part of `to_text`; a bare digest, as older stores have, stands for both."""
    own, _, rest = text.partition(" ")
    full, *references = rest.split(" ") if rest else [own]
    return Part(own, full, tuple(references))


class PartChange(NamedTuple):
    """A definition that differs between two code digests."""

    name: str  # the present one, or the former one of what is gone
    former: str | None  # its name on the old side; None: there is none
    old: str | None  # the digest of its own syntax
    new: str | None


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[PartChange]:
    """The definitions whose own syntax differs, by their present name.

    A definition that was only moved or renamed is left out, and so is one that only refers to others that changed.
    """
    before = {name: parse_part(text) for name, text in old.items()}
    now = {name: parse_part(text) for name, text in new.items()}
    former = _match(before, now)
    present = {was: name for name, was in former.items()}
    changes: list[PartChange] = []
    for name, part in now.items():
        was = former.get(name)
        if was is None:
            changes.append(PartChange(name, None, None, part.own))
            continue
        renamed = tuple(present.get(each, each) for each in before[was].references)
        if part.full != before[was].full and (part.own != before[was].own or renamed != part.references):
            changes.append(PartChange(name, was, before[was].own, part.own))
    changes.extend(
        PartChange(name, name, part.own, None) for name, part in before.items() if name not in present
    )
    yield from sorted(changes, key=lambda change: change.name)


class Sourced(NamedTuple):
    """A code digest as it is stored: its parts, and the text of each."""

    parts: Mapping[str, str]
    sources: Mapping[str, str]


def changed_lines(old: Sourced, new: Sourced) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each changed definition by its present name, with a unified diff of its text; one that is gone by its old name.

    Definitions of which no text is stored, such as the names of classes, are left out.
    """
    for change in changed_parts(old.parts, new.parts):
        was = old.sources.get(change.former, "") if change.former is not None else ""
        now = new.sources.get(change.name, "") if change.new is not None else ""
        before, after = (text.rstrip("\n").splitlines() for text in (was, now))
        if lines := tuple(difflib.unified_diff(before, after, lineterm=""))[2:]:
            yield change.name, lines


def pack_sources(sources: Mapping[str, str]) -> bytes:
    """The text of each definition, compressed, with a digest in front: equal sources give equal bytes."""
    packed = zlib.compress(canonical_json(dict(sources)), _LEVEL)
    return hash_bytes(packed).encode() + b"\n" + packed


def unpack_sources(data: bytes) -> Mapping[str, str]:
    """What `pack_sources` packed; DamagedError for other bytes."""
    digest, _, packed = data.partition(b"\n")
    if hash_bytes(packed).encode() != digest:
        raise DamagedError("the stored sources are damaged; `rnnsearch verify --repair` removes them")
    return dict(json.loads(zlib.decompress(packed)))


def _match(before: Mapping[str, Part], now: Mapping[str, Part]) -> dict[str, str]:
    """The old name of each new one: of equal content first, then of equal name."""
    found: dict[str, str] = {}
    old, new = dict(before), dict(now)

    def pair(name: str, was: str) -> None:
        found[name] = was
        del new[name], old[was]

    for name in [name for name, part in new.items() if name in old and old[name].full == part.full]:
        pair(name, name)
    for name, part in list(new.items()):
        same = next((was for was, other in old.items() if other.full == part.full), None)
        if same is not None:
            pair(name, same)
    for name in [name for name, part in new.items() if name in old and old[name].own == part.own]:
        pair(name, name)
    counts = [Counter(part.own for part in side.values()) for side in (old, new)]
    places = {part.own: was for was, part in old.items()}
    for name, part in list(new.items()):
        if counts[0][part.own] == counts[1][part.own] == 1:
            pair(name, places[part.own])
    for name in [name for name in new if name in old]:
        pair(name, name)
    return found
