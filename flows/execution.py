"""Execute a stage: split it into shards, merge the results in order and name the output files.

Everything here decides bytes and is part of every key; leases, records, progress and Prefect are in `stage`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from rnnsearch.flows.job import Files, Finished, Job
from rnnsearch.flows.proof import Proof, check, proved
from rnnsearch.flows.references import resolve
from rnnsearch.flows.shapes import Fold, Map, Process, Stage
from rnnsearch.flows.shards import (
    MergeTask,
    ShardTask,
    compute_merge,
    compute_shard,
    needs,
    shard_name,
)
from rnnsearch.flows.steps import Step
from rnnsearch.flows.witness import AsRun
from rnnsearch.storage.artifacts import FileEntry, read_artifact, write_artifact
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

T = TypeVar("T")
R = TypeVar("R")


class StageError(RuntimeError):
    """A stage that failed by what it was given; the message names the stage and the reason."""


class Engine(Protocol):
    """Executes tasks; implemented by the Ray cluster."""

    def connect(self) -> None:
        """Connect, for work that calls the cluster directly."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yield (position, result) as tasks finish, in any order."""

    def run(self, function: Callable[[T], R], task: T) -> R:
        """The result of one task."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One stage to compute, with its inputs and the place to run it."""

    stage: Stage
    recipe: Recipe
    proof: Proof  # what the key counted, for workers to compare with what they loaded
    store: Store
    engine: Engine
    progress: Callable[[Step], None]  # of a process
    on_shard: Callable[[int, int], None]  # shards done, of how many


@dataclass(kw_only=True)
class Made:
    """The result of a request: artifacts and observations."""

    outputs: dict[str, Digest] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    observations: Mapping[str, Any] = field(default_factory=dict)
    as_run: list[AsRun] = field(default_factory=list)  # of each task
    shards: int = 0
    recipes: list[Recipe] = field(default_factory=list)  # of the shards that were computed now


class ProcessTask(NamedTuple):
    """A process stage, sent to the cluster as one task."""

    function: str  # `module:function`
    job: Job


def execute_map(request: Request, work: Map, code: Digest, made: Made) -> None:
    """Compute every shard of a map; `code` is that of one shard."""
    done = _over_shards(request, work.function, code, made)
    files = {
        output: [files[output]._replace(path=shard_name(position)) for position, files in enumerate(done)]
        for output in request.stage.outputs
    }
    _store(request, files, made)


def execute_fold(request: Request, work: Fold, code: Digest, made: Made) -> None:
    """Compute the partial value of every shard, and merge them in the order of the shards."""
    done = _over_shards(request, work.partial, code, made)
    task = MergeTask(
        location=request.store.location,
        function=work.merge,
        partials=[files["partial"].digest for files in done],
        whole={name: request.recipe.inputs[name] for name in request.stage.whole},
        config=request.recipe.config,
        proof=request.proof,
    )
    merged = request.engine.run(compute_merge, task)
    made.as_run.append(merged.as_run)
    _store(request, merged.files, made)


def execute_process(request: Request, work: Process, job: Job, made: Made) -> None:
    """Run a process, on the cluster or here."""
    if work.on_cluster:
        finished = request.engine.run(compute_process, ProcessTask(work.function, job))
    else:
        if work.needs_cluster:
            request.engine.connect()
        function = resolve(work.function)
        check(job.proof)
        finished = function(job, request.progress)
        check(job.proof)
    made.observations = finished.observations
    if finished.as_run is not None:
        made.as_run.append(finished.as_run)
    _store(request, finished.files, made)


def compute_process(task: ProcessTask) -> Finished:
    """Run a process as one task, in a worker."""
    function = resolve(task.function)
    with proved(task.job.proof):
        result = function(task.job)
    finished = result if isinstance(result, Finished) else Finished(result)
    return finished._replace(as_run=AsRun.now())


def _store(request: Request, files: Files, made: Made) -> None:
    """Store the artifact of each output."""
    promised = request.stage.outputs
    if set(files) != set(promised):
        raise StageError(
            f"{request.stage.name} made {sorted(files)}, but its declaration names {sorted(promised)}"
        )
    made.files = files
    made.outputs = {
        name: write_artifact(request.store.blobs, entries).digest for name, entries in files.items()
    }


def _over_shards(request: Request, function: str, code: Digest, made: Made) -> list[Mapping[str, FileEntry]]:
    """The files of every shard, in order; shards that an earlier attempt finished are not computed again."""
    stage, recipe, store = request.stage, request.recipe, request.store
    wanted = needs(resolve(function))
    rows = zip_shards(stage, store, recipe)
    base = replace(
        recipe,
        stage=stage.kind,
        code=code,
        config={name: value for name, value in recipe.config.items() if name in wanted.sections},
    )
    whole = {name: recipe.inputs[name] for name in stage.whole if name in wanted.names}
    tasks, places, done = [], [], dict[int, Mapping[str, FileEntry]]()
    for position, shard in enumerate(rows):
        shard_recipe = replace(base, inputs={**shard, **whole})
        known = _known_shard(store, shard_recipe)
        if known is not None:
            done[position] = known
            continue
        tasks.append(
            ShardTask(
                location=store.location,
                function=function,
                shard=shard,
                whole=whole,
                config=recipe.config,
                recipe=shard_recipe,
                part_of=recipe.key,
                proof=request.proof,
            )
        )
        places.append(position)
    made.shards, made.recipes = len(rows), [task.recipe for task in tasks]
    for finished, (position, result) in enumerate(
        request.engine.map(compute_shard, tasks) if tasks else (), 1
    ):
        done[places[position]] = result.files
        made.as_run.append(result.as_run)
        request.on_shard(finished, len(tasks))
    return [done[position] for position in range(len(rows))]


def zip_shards(stage: Stage, store: Store, recipe: Recipe) -> list[Mapping[str, Digest]]:
    """For each shard, its blob in every sharded input. Several artifacts of one input follow one another."""
    columns: dict[str, list[Digest]] = {}
    for name, refs in stage.sharded.items():
        keys = [name] if len(refs) == 1 else [f"{name}[{position}]" for position in range(len(refs))]
        columns[name] = [
            file.digest for key in keys for file in read_artifact(store.blobs, recipe.inputs[key]).files
        ]
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise StageError(f"{stage.name} walks inputs of unequal numbers of shards: {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known_shard(store: Store, recipe: Recipe) -> Mapping[str, FileEntry] | None:
    """The files of a shard that was computed before, where they are still there."""
    for attempt in reversed(store.shards.attempts(recipe.key, recipe.stage)):
        sizes = {name: store.blobs.size(digest) for name, digest in attempt.outputs.items()}
        for digest in attempt.outputs.values():
            store.pins.pin(digest, "blob")
        if all(store.blobs.intact(digest) for digest in attempt.outputs.values()):
            return {
                name: FileEntry("", digest, sizes[name] or 0, attempt.rows[name])
                for name, digest in attempt.outputs.items()
            }
    return None
