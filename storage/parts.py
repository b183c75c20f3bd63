"""The parts of a code digest as they are stored, and which of them differ between two."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_SHORT = 16  # digits of a digest that are enough to tell changes apart


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


def changed_parts(
    old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """The definitions whose own syntax differs, by their present name, with the old and the new digest.

    None where one side has no such definition. A definition that was only moved or renamed is left out, and so is
    one that only refers to others that changed.
    """
    before = {name: parse_part(text) for name, text in old.items()}
    now = {name: parse_part(text) for name, text in new.items()}
    former = _match(before, now)
    present = {was: name for name, was in former.items()}
    changes: list[tuple[str, str | None, str | None]] = []
    for name, part in now.items():
        was = former.get(name)
        if was is None:
            changes.append((name, None, part.own))
            continue
        renamed = tuple(present.get(each, each) for each in before[was].references)
        if part.full != before[was].full and (part.own != before[was].own or renamed != part.references):
            changes.append((name, before[was].own, part.own))
    changes.extend((name, part.own, None) for name, part in before.items() if name not in present)
    yield from sorted(changes, key=lambda change: change[0])


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
