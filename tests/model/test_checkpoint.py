"""Checkpoints: traps 21 and 22, damage, and the bytes themselves."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rnnsearch.model import checkpoint
from rnnsearch.model.batch import Batch
from rnnsearch.model.checkpoint import (
    CheckpointError,
    copy_checkpoint,
    load_network,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
    write_model,
)
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.initialization import initialize
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer

TINY = NetworkConfig(units=5, embedding=4, alignment_units=3, maxout_units=3)


def _trainer(**config: Any) -> Trainer:
    network = Network(TINY, 11, 13)
    initialize(network, 1)
    return Trainer(network, TrainConfig(**config))


def _learn(trainer: Trainer, first: int, last: int) -> None:
    for seed in range(first, last):
        generator = torch.Generator().manual_seed(seed)
        ids = [torch.randint(2, 11, (4, 3), generator=generator) for _ in range(2)]
        mask = torch.ones(4, 3, dtype=torch.bool)
        trainer.update(Batch(ids[0], mask, ids[1], mask))


def _checkpoint(folder: Path, update: int) -> Path:
    trainer = _trainer()
    _learn(trainer, 0, update)
    return write_checkpoint(folder, trainer.snapshot(update, trainer.parameters(), {"rows": [0.1, None]}))


def _update(*folders: Path) -> int | None:
    found = newest_checkpoint(folders)
    return None if found is None else found.snapshot.update


@pytest.mark.parametrize("optimizer", ["adadelta", "adam"])
def test_trap_21_five_updates_a_checkpoint_and_five_more_are_ten_bit_for_bit(
    tmp_path: Path, optimizer: str
) -> None:
    straight = _trainer(optimizer=optimizer, learning_rate=0.01)
    _learn(straight, 0, 10)
    first = _trainer(optimizer=optimizer, learning_rate=0.01)
    _learn(first, 0, 5)
    place = write_checkpoint(tmp_path, first.snapshot(5, None, {}))
    second = _trainer(optimizer=optimizer, learning_rate=0.01)
    _learn(second, 90, 93)  # whatever it was before is overwritten
    second.restore(read_checkpoint(place))
    _learn(second, 5, 10)
    ours, theirs = second.snapshot(10, None, {}), straight.snapshot(10, None, {})
    for name, tensor in theirs.parameters.items():
        assert torch.equal(tensor, ours.parameters[name])
    for buffer, named in theirs.buffers.items():
        for name, tensor in named.items():
            assert torch.equal(tensor, ours.buffers[buffer][name])
    assert ours.facts == theirs.facts


def test_a_snapshot_comes_back_as_it_was_and_does_not_follow_the_training(tmp_path: Path) -> None:
    trainer = _trainer()
    _learn(trainer, 0, 2)
    best = trainer.parameters()
    snapshot = trainer.snapshot(2, best, {"curve": [1.5, None, "x"]})
    kept = {name: tensor.clone() for name, tensor in snapshot.parameters.items()}
    _learn(trainer, 2, 4)
    back = read_checkpoint(write_checkpoint(tmp_path, snapshot))
    assert back.update == 2
    assert back.facts == snapshot.facts
    assert torch.equal(back.random_state, snapshot.random_state)
    assert back.best is not None
    for name, tensor in kept.items():
        assert torch.equal(tensor, back.parameters[name])
        assert torch.equal(tensor, back.best[name])


def test_equal_states_make_equal_bytes(tmp_path: Path) -> None:
    places = [_checkpoint(tmp_path / name, 3) for name in ("a", "b")]
    first, second = ({path.name: path.read_bytes() for path in place.iterdir()} for place in places)
    assert first == second
    assert sorted(first) == [
        "best.safetensors",
        "model.safetensors",
        "optimizer.safetensors",
        "progress.json",
    ]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in the parameters": lambda place: _flip(place / "model.safetensors"),
    "a flipped bit in the accumulators": lambda place: _flip(place / "optimizer.safetensors"),
    "a flipped bit in the progress": lambda place: _flip(place / "progress.json"),
    "a cut file": lambda place: os.truncate(place / "optimizer.safetensors", 100),
    "a changed count in the progress": lambda place: (place / "progress.json").write_text(
        (place / "progress.json").read_text().replace('"skipped":0', '"skipped":1')
    ),
    "an empty progress": lambda place: os.truncate(place / "progress.json", 0),
    "no progress": lambda place: (place / "progress.json").unlink(),
    "no best": lambda place: (place / "best.safetensors").unlink(),
    "an empty folder": lambda place: [path.unlink() for path in place.iterdir()],
    "a list for progress": lambda place: (place / "progress.json").write_text("[1]"),
    "another version": lambda place: (place / "progress.json").write_text(
        json.dumps(json.loads((place / "progress.json").read_text()) | {"version": 99})
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_found(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    _checkpoint(tmp_path, 1)
    newest = _checkpoint(tmp_path, 2)
    assert _update(tmp_path) == 2
    damage(newest)
    with pytest.raises(CheckpointError):
        read_checkpoint(newest)
    assert _update(tmp_path) == 1


def test_the_newest_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    _checkpoint(tmp_path, 3).rename(tmp_path / "update-000000001")
    _checkpoint(tmp_path, 2)
    assert _update(tmp_path) == 3


def test_the_newest_is_looked_for_in_all_folders_and_missing_ones_are_none(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "old", 3)
    _checkpoint(tmp_path / "new", 2)
    assert _update(tmp_path / "new", tmp_path / "old", tmp_path / "never") == 3
    assert _update(tmp_path / "never") is None


class _Died(BaseException):
    pass


@pytest.mark.parametrize(
    "call", range(15)
)  # 4 files opened and synced, the folder, 4 read back, rename, sync
def test_trap_22_a_save_that_dies_at_any_point_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    _checkpoint(tmp_path, 1)
    trainer = _trainer()
    snapshot = trainer.snapshot(2, trainer.parameters(), {})
    calls = 0

    def die_at(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > call:
                raise _Died
            return real(*arguments, **named)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "fsync", die_at(os.fsync))
        patch.setattr(Path, "open", die_at(Path.open))
        patch.setattr(Path, "rename", die_at(Path.rename))
        with pytest.raises(_Died):
            write_checkpoint(tmp_path, snapshot)
    assert _update(tmp_path) == (1 if call < 14 else 2)
    write_checkpoint(tmp_path, snapshot)  # what was left behind is in nobody's way
    assert _update(tmp_path) == 2


def test_a_checkpoint_that_a_disk_wrote_wrongly_never_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read back once, by the code that resumes."""
    _checkpoint(tmp_path, 1)
    real, synced = os.fsync, []

    def lie(descriptor: int) -> None:
        if not synced:
            os.pwrite(descriptor, b"\0wrong", 100)
        synced.append(descriptor)
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "fsync", lie)
        with pytest.raises(CheckpointError, match="is damaged"):
            _checkpoint(tmp_path, 2)
    assert synced
    assert [place.name for place in tmp_path.glob("update-*")] == ["update-000000001"]
    assert _update(tmp_path) == 1


def test_a_checkpoint_written_again_replaces_the_damaged_one(tmp_path: Path) -> None:
    _flip(_checkpoint(tmp_path, 1) / "model.safetensors")
    assert _update(tmp_path) is None
    _checkpoint(tmp_path, 1)
    assert _update(tmp_path) == 1


def test_pruning_keeps_the_newest_and_removes_leftovers(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        _checkpoint(tmp_path, update)
    (tmp_path / ".unfinished-update-000000004").mkdir()
    prune_checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-000000002", "update-000000003"]


def test_a_copy_holds_the_checkpoints_own_files_only(tmp_path: Path) -> None:
    place = _checkpoint(tmp_path, 1)
    (place / "seen.json").write_text("{}")
    copy_checkpoint(place, tmp_path / "state")
    shutil.rmtree(place)
    assert not (tmp_path / "state" / "seen.json").exists()
    assert read_checkpoint(tmp_path / "state").update == 1


def test_a_model_comes_back_best_or_last(tmp_path: Path) -> None:
    trainer = _trainer()
    best = trainer.parameters()
    _learn(trainer, 0, 3)
    last = trainer.parameters()
    write_model(tmp_path / "both", TINY, (11, 13), last, best)
    write_model(tmp_path / "unmeasured", TINY, (11, 13), last, None)
    for folder, which, expected in (
        ("both", "best", best),
        ("both", "last", last),
        ("unmeasured", "best", last),
    ):
        network = load_network(tmp_path / folder, which)  # type: ignore[arg-type]
        assert not network.training
        for name, parameter in network.named_parameters():
            assert torch.equal(parameter, expected[name])


def test_a_folder_that_is_no_model_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a trained model"):
        load_network(tmp_path)
    write_model(tmp_path / "model", TINY, (11, 14), _trainer().parameters(), None)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_network(tmp_path / "model")
