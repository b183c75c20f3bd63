"""Checkpoints that are whole or not there at all, and the folder of a finished model.

A checkpoint is a folder `update-000001500` with

    model.safetensors       parameters
    optimizer.safetensors   the optimiser's buffers, named `buffer/parameter`, and torch's random state
    best.safetensors        the best parameters by dev so far, where dev was measured
    progress.json           everything else, and size and SHA-256 of the files above, and its own checksum

It is written beside its place, synced and renamed. What is newest is read from inside, never from the
name, and a folder that does not verify counts as not there. Nothing in it depends on the clock or the place.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rnnsearch.model.config import NetworkConfig
from rnnsearch.model.network import Network

MODEL, OPTIMIZER, BEST, PROGRESS, CONFIG = (
    "model.safetensors",
    "optimizer.safetensors",
    "best.safetensors",
    "progress.json",
    "config.json",
)
VERSION = 1  # of the folder; a checkpoint of another version is not read
_RANDOM = "random_state"
_UNFINISHED = ".unfinished-"

Tensors = dict[str, Tensor]


class CheckpointError(ValueError):
    """A checkpoint or a model that is missing, damaged or of another kind."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a training needs to go on, on the host: nothing in it changes when training does."""

    update: int  # updates done
    parameters: Tensors
    buffers: Mapping[str, Tensors]  # of the optimiser, each named as the parameters
    random_state: Tensor  # of torch on the CPU, uint8
    best: Tensors | None
    facts: Mapping[str, Any]  # of JSON's types: sample order, counts, curve


def write_checkpoint(folder: Path, snapshot: Snapshot) -> Path:
    """Write `snapshot` into `folder`, whole or not at all; return the checkpoint's own folder.

    It is read back once, by the code that resumes, before it takes its name. Every checkpoint of another
    name stays as it is; one of the same name is replaced.
    """
    place = folder / f"update-{snapshot.update:09d}"
    unfinished = folder / f"{_UNFINISHED}{place.name}"
    folder.mkdir(exist_ok=True)  # never what it lies in: that a mount is gone must be seen
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    optimizer = {
        f"{buffer}/{name}": tensor
        for buffer, named in snapshot.buffers.items()
        for name, tensor in named.items()
    }
    contents = {MODEL: snapshot.parameters, OPTIMIZER: optimizer | {_RANDOM: snapshot.random_state}}
    if snapshot.best is not None:
        contents[BEST] = snapshot.best
    files = {name: _write(unfinished / name, save(tensors)) for name, tensors in contents.items()}
    progress = {"version": VERSION, "update": snapshot.update, "files": files, "facts": snapshot.facts}
    _write(unfinished / PROGRESS, _json(progress | {"checksum": _checksum(progress)}))
    _sync(unfinished)
    read_checkpoint(unfinished)
    if place.exists():  # left by a run that died after it had written this and before it wrote the next
        shutil.rmtree(place)
    unfinished.rename(place)
    _sync(folder)
    return place


def read_checkpoint(place: Path) -> Snapshot:
    """The snapshot in `place`. Raises CheckpointError where a file is missing or not what was written."""
    progress = _progress(place)
    contents: dict[str, Tensors] = {}
    for name, expected in progress["files"].items():
        data = _read(place / name)
        digest = hashlib.sha256(data).hexdigest()
        if (len(data), digest) != (expected["size"], expected["sha256"]):
            raise CheckpointError(
                f"{place / name} is damaged: it has {len(data)} bytes with SHA-256 {digest[:12]}, "
                f"not {expected['size']} with {expected['sha256'][:12]}; use an earlier checkpoint"
            )
        contents[name] = _tensors(place / name, data)
    if not {MODEL, OPTIMIZER} <= contents.keys():
        raise CheckpointError(f"{place} lists no {MODEL} or no {OPTIMIZER}; use an earlier checkpoint")
    random_state = contents[OPTIMIZER].pop(_RANDOM)
    buffers: dict[str, Tensors] = {}
    for name, tensor in contents[OPTIMIZER].items():
        buffer, _, parameter = name.partition("/")
        buffers.setdefault(buffer, {})[parameter] = tensor
    return Snapshot(
        update=progress["update"],
        parameters=contents[MODEL],
        buffers=buffers,
        random_state=random_state,
        best=contents.get(BEST),
        facts=progress["facts"],
    )


class Found(NamedTuple):
    """A checkpoint that verified, and where it lies."""

    place: Path
    snapshot: Snapshot


def newest_checkpoint(folders: Sequence[Path]) -> Found | None:
    """The whole checkpoint with most updates in these folders; of equals, the one in the folder named first.

    A checkpoint that is damaged, or that vanishes while it is read, is passed over.
    """
    found = []
    for rank, folder in enumerate(folders):
        for place in sorted(folder.glob("update-*")) if folder.is_dir() else []:
            try:
                found.append((-_progress(place)["update"], rank, place))
            except CheckpointError:
                continue
    for *_, place in sorted(found):
        try:
            return Found(place, read_checkpoint(place))
        except CheckpointError:
            continue
    return None


def prune_checkpoints(folder: Path, keep: int = 2) -> None:
    """Delete all but the `keep` newest checkpoints of `folder`, and what was left unfinished there."""
    for place in sorted(folder.glob("update-*"))[:-keep]:
        shutil.rmtree(place, ignore_errors=True)
    for place in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(place, ignore_errors=True)


def copy_checkpoint(place: Path, folder: Path) -> None:
    """Lay a whole checkpoint out in the new `folder`: its own files, by link where the disk can."""
    folder.mkdir(parents=True)
    for name in (PROGRESS, *_progress(place)["files"]):
        try:
            os.link(place / name, folder / name)
        except OSError:
            shutil.copyfile(place / name, folder / name)
    _sync(folder)


def write_model(
    folder: Path,
    config: NetworkConfig,
    sizes: tuple[int, int],
    parameters: Tensors,
    best: Tensors | None,
) -> None:
    """Write what translation needs into the new `folder`: last and best parameters and the configuration.

    `sizes` are the source's and the target's vocabulary, `</s>` and `[UNK]` counted.
    """
    folder.mkdir(parents=True)
    _write(folder / MODEL, save(parameters))
    if best is not None:
        _write(folder / BEST, save(best))
    described = {"network": config.model_dump(mode="json"), "source_size": sizes[0], "target_size": sizes[1]}
    _write(folder / CONFIG, _json(described))
    _sync(folder)


def load_network(folder: Path, which: Literal["best", "last"] = "best") -> Network:
    """The network that `write_model` wrote, on the CPU and ready to translate.

    `best` is by dev, and the last one where dev was not measured. Raises CheckpointError where the
    folder is not a model.
    """
    try:
        described = json.loads(_read(folder / CONFIG))
        config = NetworkConfig.model_validate(described["network"])
        network = Network(config, described["source_size"], described["target_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder} is not a trained model ({error}); train it again") from error
    path = folder / (BEST if which == "best" and (folder / BEST).exists() else MODEL)
    tensors = _tensors(path, _read(path))
    try:
        network.to(next(iter(tensors.values())).dtype).load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit {folder / CONFIG}: {error}") from error
    return network.eval()


def _progress(place: Path) -> dict[str, Any]:
    try:
        progress: dict[str, Any] = json.loads(_read(place / PROGRESS))
        checksum, version = progress.pop("checksum"), progress["version"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{place / PROGRESS} is damaged ({error}); use an earlier checkpoint"
        ) from error
    if version != VERSION:
        raise CheckpointError(
            f"{place} is a checkpoint of version {version}, not {VERSION}; train from the start"
        )
    if checksum != _checksum(progress):
        raise CheckpointError(
            f"{place / PROGRESS} is damaged: its checksum differs; use an earlier checkpoint"
        )
    return progress


def _checksum(progress: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(progress)).hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _tensors(path: Path, data: bytes) -> Tensors:
    try:
        return load(data)
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is not in the safetensors format ({error}); use an earlier one"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); use an earlier one") from error


def _write(path: Path, data: bytes) -> dict[str, Any]:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
