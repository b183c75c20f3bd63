"""A stage as a value, and its three shapes (architecture 4). Light: `plan` reads it without torch, Prefect or Ray.

A *map* turns each shard of its sharded inputs into one shard of each output. A *fold* makes a partial value of each
shard and merges them. A *run* is one piece of work with its own resume.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

TEXT = ("pyarrow", "numpy")
"""Libraries that decide the bytes of every stage of text."""

SHARDS = ("rnnsearch.flows.shards", "rnnsearch.storage.parquet")
"""Roots that decide names, order and bytes of every shard."""


class Ref(NamedTuple):
    """One output of a stage, as an input of another."""

    stage: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of the DAG, as a value: what decides its output, and where its inputs come from."""

    name: str  # such as `tokenize/dev`
    shape: Literal["map", "fold", "run"]
    outputs: tuple[str, ...]
    sharded: Mapping[str, tuple[Ref, ...]] = field(
        default_factory=dict
    )  # walked shard by shard, side by side
    whole: Mapping[str, tuple[Ref, ...]] = field(default_factory=dict)  # given whole to every shard
    config: Mapping[str, Any] = field(default_factory=dict)
    roots: tuple[str, ...]  # the code that decides bytes, `module:definition` or a data file of the package
    libraries: tuple[str, ...] = ()  # distributions whose version decides bytes
    local: Path | None = None  # a file outside the store whose content decides: it may change in place
    unkeyed: Mapping[str, Any] = field(default_factory=dict)  # what the work needs and no byte depends on

    @property
    def kind(self) -> str:
        """The stage without what it is applied to: `tokenize` of `tokenize/dev`; it names the work done."""
        return self.name.partition("/")[0]

    def inputs(self) -> Iterator[tuple[str, Ref]]:
        """Each input with the name that it has in the recipe."""
        for name, refs in (*self.sharded.items(), *self.whole.items()):
            for position, ref in enumerate(refs):
                yield (name if len(refs) == 1 else f"{name}[{position}]"), ref

    def upstream(self) -> tuple[str, ...]:
        """The stages that this one waits for, each once, in order."""
        return tuple(dict.fromkeys(ref.stage for _, ref in self.inputs()))


def sections(*parts: BaseModel) -> Mapping[str, Any]:
    """The parts of the configuration that decide a stage's output, by section."""
    return {section_name(type(part)): part.model_dump(mode="json") for part in parts}


def section_name(section: type[BaseModel]) -> str:
    """The name under which a section stands in a recipe: `clean` for CleanConfig."""
    return section.__name__.removesuffix("Config").lower()


def map_stage(
    name: str,
    outputs: tuple[str, ...],
    function: str,
    *,
    sharded: Mapping[str, tuple[Ref, ...]],
    whole: Mapping[str, tuple[Ref, ...]] | None = None,
    config: Mapping[str, Any] | None = None,
    libraries: tuple[str, ...] = (),
) -> Stage:
    """A map by one pure function of `pipeline`, `module:function`."""
    return Stage(
        name=name,
        shape="map",
        outputs=outputs,
        sharded=sharded,
        whole=whole or {},
        config=config or {},
        roots=(f"rnnsearch.pipeline.{function}", *SHARDS),
        libraries=(*TEXT, *libraries),
    )


def fold_stage(
    name: str,
    outputs: tuple[str, ...],
    module: str,
    functions: tuple[str, str],
    *,
    sharded: Mapping[str, tuple[Ref, ...]],
    whole: Mapping[str, tuple[Ref, ...]] | None = None,
    config: Mapping[str, Any] | None = None,
    libraries: tuple[str, ...] = (),
) -> Stage:
    """A fold by two pure functions of one module of `pipeline`: the partial step and the merge."""
    return Stage(
        name=name,
        shape="fold",
        outputs=outputs,
        sharded=sharded,
        whole=whole or {},
        config=config or {},
        roots=(*(f"rnnsearch.pipeline.{module}:{function}" for function in functions), *SHARDS),
        libraries=(*TEXT, *libraries),
    )
