"""Work on one shard, as a Ray worker does it: read blobs, call the pure function, write blobs, record the shard.

The functions of `pipeline` name what they need: a sharded input, a whole input, a section of the configuration. A
parameter is filled by its name, and by its annotation: a `Path` gets a read-only local folder, a config class its
section, everything else a table.
"""

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

import pyarrow as pa
from pydantic import BaseModel

from rnnsearch.flows.proof import Proof, proved
from rnnsearch.flows.references import resolve
from rnnsearch.flows.sections import section_name
from rnnsearch.flows.witness import AsRun
from rnnsearch.storage.artifacts import FileEntry, read_artifact
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.parquet import ROWS_PER_GROUP, get_table, put_table
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

Function = Callable[..., Any]
C = TypeVar("C", bound=BaseModel)


class ShardTask(NamedTuple):
    """One shard of a map, or one partial value of a fold: everything by digest."""

    location: str  # of the store
    function: str  # `module:function`
    shard: Mapping[str, Digest]  # sharded input -> blob
    whole: Mapping[str, Digest]  # whole input -> artifact
    config: Mapping[str, Any]
    recipe: Recipe
    part_of: Digest  # the key of the stage
    proof: Proof


class ShardResult(NamedTuple):
    """What a shard became: one file for each output, without its place in the artifact."""

    files: Mapping[str, FileEntry]
    as_run: AsRun


class Merged(NamedTuple):
    """The end of a fold: the files of each output."""

    files: Mapping[str, Sequence[FileEntry]]
    as_run: AsRun


class Needs(NamedTuple):
    """What a pure function asks for by its parameters."""

    names: frozenset[str]  # inputs
    sections: frozenset[str]  # of the configuration


class MergeTask(NamedTuple):
    """The end of a fold: all partial values, in the order of the shards."""

    location: str
    function: str
    partials: Sequence[Digest]
    whole: Mapping[str, Digest]
    config: Mapping[str, Any]
    proof: Proof


def shard_name(position: int) -> str:
    """The file name of a shard; names sort as the shards do."""
    return f"shard-{position:05d}.parquet"


@functools.lru_cache(maxsize=4)
def open_store(location: str) -> Store:
    """The store at a location, opened once in a process."""
    return Store.open(location)


def compute_shard(task: ShardTask) -> ShardResult:
    """Compute one shard and record it, so that a killed stage goes on from here."""
    began = time.monotonic()
    store = open_store(task.location)
    function = resolve(task.function)
    with proved(task.proof):
        tables = {name: get_table(store.blobs, digest) for name, digest in task.shard.items()}
        result = call(store, function, tables, task.whole, task.config)
        files = {name: stored(store, "", table) for name, table in _named(result).items()}
    as_run = AsRun.now()
    store.shards.record(
        task.recipe,
        outputs={name: file.digest for name, file in files.items()},
        rows={name: file.rows or 0 for name, file in files.items()},
        placement=as_run._asdict(),
        observations={"seconds": round(time.monotonic() - began, 3)},
        part_of=task.part_of,
    )
    return ShardResult(files, as_run)


def compute_merge(task: MergeTask) -> Merged:
    """Merge partial values into the files of each output."""
    store = open_store(task.location)
    function = resolve(task.function)
    with proved(task.proof):
        partials = [get_table(store.blobs, digest) for digest in task.partials]
        result = call(store, function, {"partials": partials}, task.whole, task.config)
        files = {name: output_files(store, name, value) for name, value in _named(result).items()}
    return Merged(files, AsRun.now())


def output_files(
    store: Store, name: str, value: pa.Table | bytes | Sequence[pa.Table]
) -> Sequence[FileEntry]:
    """Store one output: a table, JSON, or a table for each shard."""
    if isinstance(value, bytes):
        blob = store.put_bytes(value)
        return [FileEntry(f"{name}.json", blob.digest, blob.size, None)]
    if isinstance(value, pa.Table):
        return [stored(store, f"{name}.parquet", value)]
    return [stored(store, shard_name(position), table) for position, table in enumerate(value)]


def stored(store: Store, path: str, table: pa.Table, row_group: int | None = None) -> FileEntry:
    """Write a table into the store as the file `path` of an artifact."""
    blob = put_table(store.blobs, table, row_group or ROWS_PER_GROUP)
    return FileEntry(path, blob.digest, blob.size, table.num_rows)


def needs(function: Function) -> Needs:
    """The inputs and the sections of the configuration that a function names, so that only these decide its key."""
    hints = get_type_hints(function)
    kinds = {name: _section(hints.get(name)) for name in inspect.signature(function).parameters}
    return Needs(
        names=frozenset(name for name, kind in kinds.items() if kind is None),
        sections=frozenset(section_name(kind) for kind in kinds.values() if kind is not None),
    )


def section(config: Mapping[str, Any], kind: type[C]) -> C:
    """One section of a stage's configuration, as the class that declares it."""
    return kind.model_validate(config[section_name(kind)])


def call(
    store: Store,
    function: Function,
    given: Mapping[str, Any],
    whole: Mapping[str, Digest],
    config: Mapping[str, Any],
) -> Any:
    """Call a pure function with what its parameters name. See the module docstring."""
    hints = get_type_hints(function)
    arguments: dict[str, Any] = {}
    for name in inspect.signature(function).parameters:
        kind = hints.get(name)
        if name in given:
            arguments[name] = given[name]
        elif name in whole:
            arguments[name] = (
                store.local_folder(whole[name]) if kind is Path else whole_table(store, whole[name])
            )
        elif (wanted := _section(kind)) is not None:
            arguments[name] = section(config, wanted)
        else:
            raise TypeError(
                f"{function.__module__}:{function.__name__} wants {name!r}, which its stage does not give"
            )
    return function(**arguments)


def whole_table(store: Store, digest: Digest) -> pa.Table:
    """The rows of every file of an artifact, in the order of the files."""
    tables = [get_table(store.blobs, file.digest) for file in read_artifact(store.blobs, digest).files]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()


def _section(kind: Any) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _named(result: Any) -> Mapping[str, Any]:
    """The outputs of a function by name: the fields of its NamedTuple, or `partial` for a bare table."""
    return {"partial": result} if isinstance(result, pa.Table) else result._asdict()
