"""Declarations of stage kinds, and the stages of a run as values. Light: `plan` imports no torch, Prefect or Ray.

A *map* turns each shard of its sharded inputs into one shard of each output. A *fold* computes a partial value of
each shard and merges them. A *process* is one piece of work with its own resume.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

Reference = str
"""`module:function`. It is both a root of the code digest and what workers import and call."""

TEXT = ("pyarrow", "numpy")
"""Libraries that decide the bytes of every stage that writes tables."""

_EXECUTION = "rnnsearch.flows.execution"
EXECUTE_PROCESS = f"{_EXECUTION}:execute_process"
_COMPUTE_SHARD = "rnnsearch.flows.shards:compute_shard"


@dataclass(frozen=True)
class Map:
    """A pure function of one shard."""

    shape: ClassVar[Literal["map"]] = "map"
    function: Reference

    @property
    def roots(self) -> tuple[Reference, ...]:
        """What decides the bytes: the function, and how it is applied to shards."""
        return (self.function, f"{_EXECUTION}:execute_map")

    @property
    def shard_roots(self) -> tuple[Reference, ...]:
        """What decides the bytes of one shard."""
        return (self.function, _COMPUTE_SHARD)


@dataclass(frozen=True)
class Fold:
    """A pure function of one shard, and a pure merge of what it returns."""

    shape: ClassVar[Literal["fold"]] = "fold"
    partial: Reference
    merge: Reference

    @property
    def roots(self) -> tuple[Reference, ...]:
        """What decides the bytes: both functions, and how they are applied."""
        return (self.partial, self.merge, f"{_EXECUTION}:execute_fold")

    @property
    def shard_roots(self) -> tuple[Reference, ...]:
        """What decides the bytes of one partial value."""
        return (self.partial, _COMPUTE_SHARD)


@dataclass(frozen=True)
class Process:
    """One long piece of work: as one task on the cluster, or on the driver, where it reports progress."""

    shape: ClassVar[Literal["run"]] = "run"
    function: Reference
    on_cluster: bool = True
    needs_cluster: bool = False  # the driver's work itself uses Ray
    decided_by: tuple[Reference, ...] | None = (
        None  # all roots, where `function` is not all or not any of them
    )

    @property
    def roots(self) -> tuple[Reference, ...]:
        """What decides the bytes, and how files become artifacts."""
        return (self.function, EXECUTE_PROCESS) if self.decided_by is None else self.decided_by


class Ref(NamedTuple):
    """One output of a stage, as an input of another."""

    stage: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The one declaration of a kind of stage."""

    name: str  # such as `tokenize`
    work: Map | Fold | Process
    outputs: tuple[str, ...]
    files: tuple[str, ...] = ()  # data files of the package whose content decides bytes
    libraries: tuple[str, ...] = TEXT  # distributions whose version decides bytes

    @property
    def roots(self) -> tuple[str, ...]:
        """The code that decides bytes, and the data files."""
        return (*self.work.roots, *self.files)

    def stage(
        self,
        of: str = "",
        *,
        sharded: Mapping[str, tuple[Ref, ...]] | None = None,
        whole: Mapping[str, tuple[Ref, ...]] | None = None,
        config: Mapping[str, Any] | None = None,
        local: Path | None = None,
        unkeyed: Mapping[str, Any] | None = None,
        libraries: tuple[str, ...] = (),
    ) -> "Stage":
        """A stage of this kind, named after what it is applied to: `tokenize/dev`."""
        return Stage(
            name=f"{self.name}/{of}" if of else self.name,
            declared=self,
            sharded=sharded or {},
            whole=whole or {},
            config=config or {},
            local=local,
            unkeyed=unkeyed or {},
            optional=libraries,
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of the DAG: a kind of stage with its inputs and settings."""

    name: str  # such as `tokenize/dev`
    declared: Kind
    sharded: Mapping[str, tuple[Ref, ...]] = field(default_factory=dict)  # walked shard by shard, in step
    whole: Mapping[str, tuple[Ref, ...]] = field(default_factory=dict)  # given whole to every shard
    config: Mapping[str, Any] = field(default_factory=dict)
    optional: tuple[str, ...] = ()  # libraries that decide bytes with these settings
    local: Path | None = None  # a file outside the store whose content decides: it may change in place
    unkeyed: Mapping[str, Any] = field(default_factory=dict)  # what the work needs and no byte depends on

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return self.declared.name

    @property
    def shape(self) -> Literal["map", "fold", "run"]:
        """How the work is cut."""
        return self.declared.work.shape

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self.declared.outputs

    @property
    def roots(self) -> tuple[str, ...]:
        """The code that decides bytes, and the data files."""
        return self.declared.roots

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions whose version decides bytes."""
        return (*self.declared.libraries, *self.optional)

    def inputs(self) -> Iterator[tuple[str, Ref]]:
        """Each input with the name that it has in the recipe."""
        for name, refs in (*self.sharded.items(), *self.whole.items()):
            for position, ref in enumerate(refs):
                yield (name if len(refs) == 1 else f"{name}[{position}]"), ref

    def upstream(self) -> tuple[str, ...]:
        """The stages that this one waits for, each once, in order."""
        return tuple(dict.fromkeys(ref.stage for _, ref in self.inputs()))
