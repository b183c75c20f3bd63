"""All that decides a stage's output, its key, and what differs between two of them."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes
from rnnsearch.storage.parts import changed_parts

_VERSION = 1

ChangeKind = Literal["config", "input", "code", "python", "library"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What decides a stage's output. Equal recipes make equal bytes (for training: at equal placement)."""

    stage: str  # as in `clean/train`
    code: Digest  # of what the stage's roots reach
    config: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    inputs: Mapping[str, Digest] = field(default_factory=dict)  # artifacts by name
    python: str  # "3.11"
    libraries: Mapping[str, str] = field(default_factory=dict)  # versions of those that change bytes

    @functools.cached_property
    def key(self) -> Digest:
        """The digest of the whole."""
        return hash_bytes(canonical_json(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "recipe": _VERSION,
            "stage": self.stage,
            "code": self.code,
            "config": dict(self.config),
            "inputs": dict(self.inputs),
            "python": self.python,
            "libraries": dict(self.libraries),
        }


def parse_recipe(body: Mapping[str, Any]) -> Recipe:
    """The recipe of `to_json`'s values; KeyError if one is missing."""
    return Recipe(
        stage=body["stage"],
        code=body["code"],
        config=body["config"],
        inputs=body["inputs"],
        python=body["python"],
        libraries=body["libraries"],
    )


class Change(NamedTuple):
    """One difference between two recipes; values as JSON text, None where one side has none."""

    kind: ChangeKind
    name: str  # `budget.words`, an input, `module:symbol`, a library
    old: str | None
    new: str | None


def compare_recipes(old: Recipe, new: Recipe) -> tuple[Change, ...]:
    """What differs, key by key: config, inputs, code (as a whole), Python, libraries."""
    return (
        *_compare("config", flat(old.config), flat(new.config)),
        *_compare("input", old.inputs, new.inputs),
        *_compare("code", {"": old.code}, {"": new.code}),
        *_compare("python", {"": old.python}, {"": new.python}),
        *_compare("library", old.libraries, new.libraries),
    )


def compare_code(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    """The definitions whose own syntax differs between two code digests' parts, by present name.

    What was only moved or renamed, or refers to others that changed, is left out.
    """
    return tuple(Change("code", each.name, each.old, each.new) for each in changed_parts(old, new))


def nearest_recipe(recipe: Recipe, others: Iterable[Recipe]) -> Recipe | None:
    """The one of `others` with the fewest differences; the last of equals; None if there is none."""
    best: tuple[int, Recipe] | None = None
    for other in others:
        distance = _distance(other, recipe)
        if best is None or distance <= best[0]:
            best = (distance, other)
    return None if best is None else best[1]


def _distance(old: Recipe, new: Recipe) -> int:
    """How many differences `compare_recipes` finds, without writing the values as text."""
    return (
        _differing(_leaves(old.config), _leaves(new.config))
        + _differing(old.inputs, new.inputs)
        + _differing(old.libraries, new.libraries)
        + (old.code != new.code)
        + (old.python != new.python)
    )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    return sum(name not in old or name not in new or old[name] != new[name] for name in {*old, *new})


def _leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested mapping with their types, for 1 and true are no equal settings."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = (type(value), value)
    return found


def _compare(kind: ChangeKind, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Change(kind, name, old.get(name), new.get(name))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested mapping as one, with dots between the keys and JSON text as values."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return found
