"""For each recipe its attempts, append-only: what came out, where it ran, what was seen.

`ledger/<stage>/<key>/recipe.json` and beside it numbered records. A record is an attempt, an adoption (the attempt
of another key stands for this one), or takes an earlier one back. The same class keeps the recipes of shards, whose
outputs are blobs and not artifacts, under another folder that fans out by the key's first two digits.
"""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from rnnsearch.storage.backends import Backend
from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes, is_digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.index import Index
from rnnsearch.storage.recipes import Recipe, parse_recipe
from rnnsearch.storage.records import is_sealed, seal, unseal

_RECIPE = "recipe.json"

Withdrawal = Literal["undone", "collected", "doubted"]


class Adoption(NamedTuple):
    """Why an attempt of another key stands for this one."""

    key: Digest
    number: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One execution of a recipe."""

    key: Digest
    number: int  # from 1
    recipe: Recipe
    outputs: Mapping[str, Digest]  # by output name: artifacts, or blobs in the ledger of shards
    rows: Mapping[str, int] = field(default_factory=dict)  # by output name, of tables
    placement: Mapping[str, Any] = field(
        default_factory=dict
    )  # where it ran: workers, threads, device, kernels
    observations: Mapping[str, Any] = field(default_factory=dict)  # seconds, tokens/s, hosts, memory
    environment: Mapping[str, Any] = field(default_factory=dict)  # versions, host, commit
    part_of: Digest | None = None  # of a shard: the key of the stage that it was computed for first
    recorded: float = 0.0  # seconds since 1970 by the writer's clock: for display and order, never trusted
    adopted: Adoption | None = None
    withdrawn: Withdrawal | None = None

    @property
    def stage(self) -> str:
        """The stage."""
        return self.recipe.stage


class Ledger:
    """The attempts of one store."""

    def __init__(self, backend: Backend, folder: str, *, fan_out: bool = False) -> None:
        """Keep records below `folder`."""
        self._backend = backend
        self._folder = folder
        self._fan_out = fan_out
        self._index = Index(backend)
        self._recipes: dict[tuple[str, Digest], Recipe] = {}  # they never change

    def record(
        self,
        recipe: Recipe,
        outputs: Mapping[str, Digest],
        *,
        rows: Mapping[str, int] | None = None,
        placement: Mapping[str, Any] | None = None,
        observations: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        part_of: Digest | None = None,
    ) -> Attempt:
        """Append an attempt; to be called last, when all its outputs are stored."""
        return self._append(
            Attempt(
                key=recipe.key,
                number=0,
                recipe=recipe,
                outputs=dict(outputs),
                rows=dict(rows or {}),
                placement=dict(placement or {}),
                observations=dict(observations or {}),
                environment=dict(environment or {}),
                part_of=part_of,
                recorded=time.time(),
            )
        )

    def bring(self, attempt: Attempt) -> Attempt:
        """Append an attempt of another store as it was recorded there; one of the same outputs that stands serves."""
        for known in self.attempts(attempt.key, attempt.stage):
            if known.withdrawn is None and known.outputs == attempt.outputs:
                return known
        return self._append(attempt)

    def adopt(self, recipe: Recipe, attempt: Attempt, why: str) -> Attempt:
        """Let an attempt of an older key of the same stage stand for `recipe`; StoreError if it cannot."""
        if attempt.stage != recipe.stage:
            raise StoreError(
                f"an attempt of {attempt.stage} cannot stand for {recipe.stage}; name one of {recipe.stage}"
            )
        if attempt.key == recipe.key:
            raise StoreError(f"{recipe.stage} has the same recipe already; there is nothing to adopt")
        if not why.strip():
            raise StoreError(
                "an adoption needs a reason: say with --why what makes the old result good for the new recipe"
            )
        adoption = Adoption(attempt.key, attempt.number, why)
        return self._append(
            replace(attempt, key=recipe.key, recipe=recipe, adopted=adoption, recorded=time.time())
        )

    def undo(self, key: Digest, stage: str, why: str = "") -> Attempt:
        """Take back the adoption that now stands for `key`; StoreError if none does."""
        attempt = self.latest(key, stage)
        if attempt is None or attempt.adopted is None:
            raise StoreError(f"no adoption stands for {stage} {key[:12]}; there is nothing to undo")
        self._withdraw(attempt, "undone", why)
        return attempt

    def withdraw_collected(self, attempt: Attempt) -> None:
        """Note that gc deleted an attempt's outputs: it no longer stands, and its absence is no damage."""
        self._withdraw(attempt, "collected", "")

    def withdraw_doubted(self, attempt: Attempt, why: str) -> None:
        """Note that an attempt's outputs must not be used again, though they are what was stored."""
        self._withdraw(attempt, "doubted", why)

    def attempts(self, key: Digest, stage: str | None = None) -> list[Attempt]:
        """All attempts of a key, oldest first, with those taken back; without `stage` every stage is looked at."""
        for name in self.stages() if stage is None else [stage]:
            if found := self._load(name, key):
                return found
        return []

    def latest(self, key: Digest, stage: str | None = None) -> Attempt | None:
        """The newest attempt of a key that stands."""
        standing = [attempt for attempt in self.attempts(key, stage) if attempt.withdrawn is None]
        return standing[-1] if standing else None

    def attempt(self, key: Digest, number: int, stage: str | None = None) -> Attempt | None:
        """The attempt of this number."""
        return next((attempt for attempt in self.attempts(key, stage) if attempt.number == number), None)

    def stages(self) -> list[str]:
        """The stages that have attempts, sorted."""
        return sorted(_stage_of(name) for name in self._backend.children(self._folder))

    def keys(self, stage: str) -> list[Digest]:
        """The keys of a stage, sorted."""
        folder = f"{self._folder}/{_folder_of(stage)}"
        names = self._backend.children(folder)
        if self._fan_out:
            names = [name for part in names for name in self._backend.children(f"{folder}/{part}")]
        return [Digest(name) for name in names if is_digest(name)]

    def recipes(self, stage: str) -> list[Recipe]:
        """The recipes of a stage, in order of their keys; damaged ones are left out."""
        bodies = self._bodies(stage)
        return [self._recipe(stage, _key_in(name), bodies[name]) for name in bodies if _is_recipe(name)]

    def history(self, stage: str) -> list[Attempt]:
        """Every attempt of a stage, oldest first by the writers' clocks."""
        recipes: dict[Digest, Recipe] = {}
        records: dict[Digest, dict[int, Mapping[str, Any]]] = {}
        for name, body in self._bodies(stage).items():
            if _is_recipe(name):
                recipes[_key_in(name)] = self._recipe(stage, _key_in(name), body)
            else:
                records.setdefault(_key_in(name), {})[_number(name.rpartition("/")[2])] = body
        return sorted(
            (
                attempt
                for key, numbered in records.items()
                if key in recipes
                for attempt in _attempts_of(key, recipes[key], numbered)
            ),
            key=lambda attempt: (attempt.recorded, attempt.key, attempt.number),
        )

    def find(self, prefix: str) -> list[Attempt]:
        """The latest attempts of keys that begin with `prefix`."""
        found = [
            self.latest(key, stage)
            for stage in self.stages()
            for key in self.keys(stage)
            if key.startswith(prefix)
        ]
        return [attempt for attempt in found if attempt is not None]

    def damaged(self) -> list[str]:
        """Names of records that are not as they were written."""
        bad = []
        names = self._backend.names(self._folder)
        for name, data in zip(names, self._backend.read_many(names), strict=True):
            if name.endswith(f"/{_RECIPE}"):
                good = data is None or hash_bytes(data) == name.split("/")[-2]
            else:
                good = data is None or is_sealed(data, name)
            if not good:
                bad.append(name)
        return bad

    def delete(self, key: Digest, stage: str) -> None:
        """Remove a key with all its records: for shards, whose ledger is only a memory of work done."""
        folder = self._key_folder(stage, key)
        for name in reversed(self._backend.children(folder)):  # the recipe last
            self._backend.delete(f"{folder}/{name}")

    def _withdraw(self, attempt: Attempt, kind: Withdrawal, why: str) -> None:
        body = {"kind": kind, "number": attempt.number, "why": why, "recorded": time.time()}
        self._append_record(attempt.stage, attempt.key, body)

    def _append(self, attempt: Attempt) -> Attempt:
        folder = self._key_folder(attempt.stage, attempt.key)
        data = canonical_json(attempt.recipe.to_json())
        self._write_recipe(f"{folder}/{_RECIPE}", data)
        body = {
            "kind": "attempt",
            "outputs": attempt.outputs,
            "rows": attempt.rows,
            "placement": attempt.placement,
            "observations": attempt.observations,
            "environment": attempt.environment,
            "part_of": attempt.part_of,
            "recorded": attempt.recorded,
            "adopted": None if attempt.adopted is None else attempt.adopted._asdict(),
        }
        return replace(attempt, number=self._append_record(attempt.stage, attempt.key, body), withdrawn=None)

    def _write_recipe(self, name: str, data: bytes) -> None:
        while not self._backend.create_exclusive(name, data):
            with contextlib.suppress(MissingError):  # gc took it away just now
                if self._backend.read(name) != data:
                    self._backend.put(name, data)  # it was damaged: the key says what it must be
                return

    def _append_record(self, stage: str, key: Digest, body: Mapping[str, Any]) -> int:
        folder = self._key_folder(stage, key)
        data = seal(body)
        number = max((_number(name) for name in self._backend.children(folder)), default=0) + 1
        while not self._backend.create_exclusive(f"{folder}/{number:05}.json", data):
            number += 1
        return number

    def _load(self, stage: str, key: Digest) -> list[Attempt]:
        folder = self._key_folder(stage, key)
        names = [name for name in self._backend.children(folder) if _number(name)]
        if not names:
            return []
        recipes = self._recipes_of(stage, [key])
        if not recipes:
            return []
        whole = [f"{folder}/{name}" for name in names]
        bodies = {
            _number(name.rpartition("/")[2]): body
            for name, data in zip(whole, self._backend.read_many(whole), strict=True)
            if data is not None and (body := _parse_record(name, data)) is not None
        }
        return _attempts_of(key, recipes[0][1], bodies)

    def _bodies(self, stage: str) -> dict[str, Mapping[str, Any]]:
        """The sound recipes and records of a stage by name, through the index."""
        return self._index.bodies(f"{self._folder}/{_folder_of(stage)}", _parse_record)

    def _recipe(self, stage: str, key: Digest, body: Mapping[str, Any]) -> Recipe:
        return self._recipes.setdefault((stage, key), parse_recipe(body))

    def _recipes_of(self, stage: str, keys: Sequence[Digest]) -> list[tuple[Digest, Recipe]]:
        unread = [key for key in keys if (stage, key) not in self._recipes]
        names = [f"{self._key_folder(stage, key)}/{_RECIPE}" for key in unread]
        for key, data in zip(unread, self._backend.read_many(names), strict=True):
            if data is not None and hash_bytes(data) == key:
                self._recipes[stage, key] = parse_recipe(json.loads(data))
        return [(key, self._recipes[stage, key]) for key in keys if (stage, key) in self._recipes]

    def _key_folder(self, stage: str, key: Digest) -> str:
        fan = f"{key[:2]}/" if self._fan_out else ""
        return f"{self._folder}/{_folder_of(stage)}/{fan}{key}"


def _is_recipe(name: str) -> bool:
    return name.endswith(f"/{_RECIPE}")


def _key_in(name: str) -> Digest:
    """The key in a record's whole name."""
    return Digest(name.split("/")[-2])


def _parse_record(name: str, data: bytes) -> Mapping[str, Any] | None:
    """A recipe's or record's body; None where it is damaged: as if it were not there, and `verify` names it."""
    if _is_recipe(name):
        return dict(json.loads(data)) if hash_bytes(data) == _key_in(name) else None
    if not _number(name.rpartition("/")[2]):
        return None
    try:
        return unseal(data, name)
    except DamagedError:
        return None


def _attempts_of(key: Digest, recipe: Recipe, bodies: Mapping[int, Mapping[str, Any]]) -> list[Attempt]:
    """The attempts of a key from its records by number, with those taken back."""
    attempts: dict[int, Attempt] = {}
    for number, body in sorted(bodies.items()):
        if body["kind"] == "attempt":
            attempts[number] = _parse_attempt(key, number, recipe, body)
        elif body["number"] in attempts:
            attempts[body["number"]] = replace(attempts[body["number"]], withdrawn=body["kind"])
    return list(attempts.values())


def _parse_attempt(key: Digest, number: int, recipe: Recipe, body: Mapping[str, Any]) -> Attempt:
    adopted = body["adopted"]
    return Attempt(
        key=key,
        number=number,
        recipe=recipe,
        outputs=body["outputs"],
        rows=body["rows"],
        placement=body["placement"],
        observations=body["observations"],
        environment=body["environment"],
        part_of=body.get("part_of"),  # not in the first records
        recorded=body["recorded"],
        adopted=None if adopted is None else Adoption(**adopted),
    )


def _number(name: str) -> int:
    """The number of a record's file name, or 0 if it is none."""
    stem = name.removesuffix(".json")
    return int(stem) if stem.isdigit() else 0


def _folder_of(stage: str) -> str:
    """A stage's folder: `/` becomes a dot, and what a file name or an S3 key may not hold is escaped."""
    return ".".join(quote(part, safe="").replace(".", "%2E") for part in stage.split("/"))


def _stage_of(folder: str) -> str:
    return "/".join(unquote(part) for part in folder.split("."))
