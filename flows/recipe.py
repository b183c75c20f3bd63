"""The recipe of a stage, and why it has no attempt yet. Light: `plan` and the run both ask here."""

import functools
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.shapes import Process, Stage
from rnnsearch.flows.sources.known import content_of
from rnnsearch.storage.code import CodeDigest, code_digest
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe, compare_code, compare_recipes, nearest_recipe
from rnnsearch.storage.store import Store

Outputs = Mapping[str, Digest]

PYTHON = ".".join(platform.python_version_tuple()[:2])

NOT_COMPUTED = "not computed yet"
"""The reason for a stage that has no earlier recipe in the store."""

BOUNDARY: Mapping[str, str] = {
    "rnnsearch.storage.store": "where bytes lie; `storage.parquet` and `storage.artifacts` decide them",
    "rnnsearch.storage.blobs": "bytes are named by their digest and verified when read",
    "rnnsearch.storage.backends": "where bytes lie",
    "rnnsearch.flows.shapes": "declares stages; what they declare is in the recipe",
    "rnnsearch.flows.references": "imports what a declaration names, which is a root itself",
    "rnnsearch.flows.proof": "compares code, and computes nothing",
    "rnnsearch.flows.witness": "describes the machine",
    "rnnsearch.flows.train": "Ray Train between `train_stage.train` and `training.train_worker`, both roots",
    "rnnsearch.flows.steps": "what the console says",
    "rnnsearch.flows.training_progress": "what the console says",
}
"""Modules that the code digest does not go into, with the reason why they decide no bytes."""


class Finding(NamedTuple):
    """What the ledger says of a recipe: an attempt that can be used, or the reasons why there is none."""

    attempt: Attempt | None
    reasons: tuple[str, ...]


def recipe_of(stage: Stage, upstream: Mapping[str, Outputs]) -> Recipe:
    """All that decides what `stage` makes, given the outputs of the stages before it."""
    return Recipe(
        stage=stage.name,
        code=code_of(stage.roots).digest,
        config={**stage.config, **_content(stage), **_walked(stage)},
        inputs={name: upstream[ref.stage][ref.output] for name, ref in stage.inputs()},
        python=PYTHON,
        libraries=libraries_of(stage),
    )


def _walked(stage: Stage) -> Mapping[str, Sequence[str]]:
    """Which inputs are walked shard by shard: a table given whole is another one."""
    return {"sharded": sorted(stage.sharded)} if stage.sharded else {}


def _content(stage: Stage) -> Mapping[str, Digest]:
    """The digest of a file outside the store. The stage checks it against the bytes that it stores."""
    if stage.local is None:
        return {}
    try:
        return {"content": content_of(stage.local)}
    except OSError as error:
        raise UsageError(
            f"{stage.name}: {stage.local} cannot be read ({error.strerror}); see the source's url"
        ) from error


@functools.cache
def code_of(roots: tuple[str, ...]) -> CodeDigest:
    """The digest of all code that these roots reach inside this package, and of the data files among them.

    As it was when this process asked first: workers import it at some time after.
    """
    return read_code(roots)


def shard_code(stage: Stage) -> Digest:
    """The digest of the code that decides one shard of a map, or one partial value of a fold."""
    work = stage.declared.work
    if isinstance(work, Process):
        raise TypeError(f"{stage.name} has no shards")
    return code_of((*work.shard_roots, *stage.declared.files)).digest


def freeze_code(stages: Iterable[Stage]) -> None:
    """Take the code of all stages as it is now, so that `code_changed` sees every later edit."""
    for stage in stages:
        code_of(stage.roots)
        if not isinstance(stage.declared.work, Process):
            shard_code(stage)


def code_changed(stage: Stage) -> bool:
    """Whether a stage's code is no longer what `code_of` says: some workers may have the old one, some the new."""
    return read_code(stage.roots).digest != code_of(stage.roots).digest


def read_code(roots: tuple[str, ...]) -> CodeDigest:
    """The digest of the code that these roots reach, as it is now."""
    files = [root for root in roots if "/" in root]
    return code_digest([root for root in roots if root not in files], files, outside=BOUNDARY)


def libraries_of(stage: Stage) -> Mapping[str, str]:
    """The installed versions of the libraries that decide a stage's bytes."""
    return {name: version(name) for name in stage.libraries}


def look_up(store: Store, recipe: Recipe, roots: tuple[str, ...], *, keep: bool = False) -> Finding:
    """Find an attempt of `recipe` whose outputs are all there, or say exactly why there is none.

    `keep` makes gc leave the outputs alone as long as this process lives.
    """
    usable = store.keep if keep else store.intact
    known = store.ledger.attempts(recipe.key, recipe.stage)
    standing = [each for each in known if each.withdrawn not in ("undone", "doubted")]
    for attempt in reversed(standing):
        if all(usable(digest) for digest in attempt.outputs.values()):
            return Finding(attempt, ())
    if standing:
        last = standing[-1]
        if last.withdrawn == "collected":
            return Finding(None, ("gc removed its output",))
        hurt = [name for name, digest in last.outputs.items() if not store.intact(digest)]
        return Finding(None, tuple(f"output {name} is missing or damaged" for name in hurt))
    if any(each.withdrawn == "doubted" for each in known):
        return Finding(None, ("what it gave could not be read; it is asked for again",))
    return Finding(None, differences(store, recipe, roots))


def differences(store: Store, recipe: Recipe, roots: tuple[str, ...]) -> tuple[str, ...]:
    """How a recipe differs from its nearest earlier one, key by key, in words."""
    others = [each for each in store.ledger.recipes(recipe.stage) if each.key != recipe.key]
    nearest = nearest_recipe(recipe, others)
    if nearest is None:
        return (NOT_COMPUTED,)
    return tuple(told(nearest, recipe, store.code_parts(nearest.code), code_of(roots).parts))


def told(
    old: Recipe, new: Recipe, old_code: Mapping[str, str] | None, new_code: Mapping[str, str] | None
) -> Iterator[str]:
    """What differs between two recipes of a stage, in words. The parts of their code are None where not known."""
    for change in compare_recipes(old, new):
        match change.kind:
            case "config":
                yield f"{change.name} {change.old} → {change.new}"
            case "input":
                yield f"input {change.name} {_short(change.old)} → {_short(change.new)}"
            case "library":
                yield f"{change.name} {change.old} → {change.new}"
            case "python":
                yield f"Python {change.old} → {change.new}"
            case "code":
                yield from _code_told(old_code, new_code)


def _code_told(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> Iterator[str]:
    if old is None or new is None:
        yield "its code changed"
        return
    changes = compare_code(old, new)
    for change in changes:
        verb = "is new" if change.old is None else "is gone" if change.new is None else "changed"
        yield f"code {change.name} {verb}"
    if not changes:
        yield "its code changed: the same definitions are put together otherwise"


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]
