"""The training loop without Ray: workers are threads of this process. Traps 19 to 21, resuming, resizing."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter
from worker_threads import together

from rnnsearch.flows.training import train_worker
from rnnsearch.flows.training_data import Examples, Shared, ahead, shared_batches
from rnnsearch.flows.training_job import Ending, TrainingJob
from rnnsearch.model.checkpoint import load_network, newest_checkpoint, read_checkpoint, write_checkpoint
from rnnsearch.model.config import NetworkConfig, TrainConfig
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer
from rnnsearch.pipeline.schemas import CURVE

WORDS = 20
TINY = NetworkConfig(units=6, embedding=5, alignment_units=4, maxout_units=3)
TRAIN = TrainConfig(
    updates=10,
    batch=8,
    window_batches=6,
    log_every=3,
    checkpoint_every=4,
    evaluate_every=5,
    optimizer="adam",
    learning_rate=0.01,
)


@pytest.fixture
def job(tmp_path: Path, examples: Callable[..., list[Path]]) -> TrainingJob:
    return TrainingJob(
        examples=examples(tmp_path / "examples", 100, shards=3, words=WORDS),
        dev=examples(tmp_path / "dev", 7, words=WORDS, seed=1, longest=15)[0],
        network=TINY,
        train=TRAIN,
        source_size=WORDS,
        target_size=WORDS,
        name="test",
        workdir=_folder(tmp_path / "work"),
    )


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _elsewhere(job: TrainingJob, name: str, **changes: Any) -> TrainingJob:
    train = job.train.model_copy(update=changes.pop("train", {}))
    return replace(job, workdir=_folder(job.workdir.parent / name), train=train, **changes)


def _train(job: TrainingJob, workers: int = 1, stop: Callable[[int], bool] | None = None) -> Ending:
    endings = together(workers, lambda each: train_worker(job, each), stop)
    assert endings == [endings[0]] * workers
    return endings[0]


def _artifacts(job: TrainingJob) -> dict[str, bytes]:
    folder = job.finished
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "observations.json"
    }


def _stop_at(update: int) -> Callable[[int], bool]:
    """A wish of the first worker, in its update of this number."""
    calls = [0]

    def stop(rank: int) -> bool:
        calls[0] += rank == 0
        return rank == 0 and calls[0] >= update

    return stop


def test_a_training_writes_model_state_and_curve_with_equal_bytes_twice(job: TrainingJob) -> None:
    again = _elsewhere(job, "again")
    assert _train(job) == _train(again) == Ending("finished", 10)
    artifacts = _artifacts(job)
    assert artifacts == _artifacts(again)
    assert sorted(artifacts) == [
        "curve.parquet",
        "model/best.safetensors",
        "model/config.json",
        "model/model.safetensors",
        "state/best.safetensors",
        "state/model.safetensors",
        "state/optimizer.safetensors",
        "state/progress.json",
    ]
    last = load_network(job.finished / "model", "last")
    state = read_checkpoint(job.finished / "state")
    for name, parameter in last.named_parameters():
        assert torch.equal(parameter, state.parameters[name])
    observations = json.loads((job.finished / "observations.json").read_text())
    assert observations["updates"] == 10
    assert observations["pairs"] == 8 * 10
    assert observations["epochs"] == pytest.approx(80 / 100)
    assert observations["device"] == "cpu"
    seconds = observations["seconds"]
    assert observations["hours"] == pytest.approx(sum(seconds.values()) / 3600)
    rows = pq.read_table(job.finished / "curve.parquet").to_pylist()
    updating = seconds["feeding"] + seconds["updates"]
    assert observations["tokens_per_second"] == pytest.approx(sum(row["tokens"] for row in rows) / updating)
    assert observations["pairs_per_second"] == pytest.approx(80 / updating)


def test_the_curve_has_a_row_at_every_interval_evaluation_and_end(job: TrainingJob) -> None:
    _train(job)
    table = pq.read_table(job.finished / "curve.parquet")
    assert table.schema.equals(CURVE)
    rows = {row["update"]: row for row in table.to_pylist()}
    assert list(rows) == [3, 5, 6, 9, 10]
    for name in ("dev_loss_per_token", "dev_loss_per_sentence", "dev_bleu"):
        assert [update for update, row in rows.items() if row[name] is not None] == [5, 10]
    assert sum(row["sentences"] for row in rows.values()) == 80
    assert rows[3]["loss_per_token"] == pytest.approx(np.log(WORDS), rel=0.05)
    assert all(0 < row["padding_share"] < 0.5 for row in rows.values())
    ratio = rows[3]["loss_per_sentence"] / rows[3]["loss_per_token"]
    assert ratio == pytest.approx(rows[3]["tokens"] / rows[3]["sentences"])


def test_trap_13_the_curve_has_the_norm_before_clipping_and_the_share_of_clipped_updates(
    job: TrainingJob,
) -> None:
    rows = {}
    for reduction in ("mean_per_sentence", "sum"):
        each = _elsewhere(
            job, reduction, train={"updates": 1, "log_every": 1, "reduction": reduction, "clip_norm": 5.0}
        )
        _train(each, 2)
        (rows[reduction],) = pq.read_table(each.finished / "curve.parquet").to_pylist()
    mean, total = rows["mean_per_sentence"], rows["sum"]
    assert mean["gradient_norm"] < 5 < total["gradient_norm"]
    assert total["gradient_norm"] == pytest.approx(8 * mean["gradient_norm"], rel=1e-5)
    assert (mean["clipped_share"], total["clipped_share"]) == (0, 1)


def test_the_curve_counts_skipped_updates_and_keeps_their_numbers_out(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Network.accumulate, [0]

    def accumulate(self: Network, *arguments: Any) -> Any:
        calls[0] += 1
        lesson = real(self, *arguments)
        if calls[0] in (2, 4, 5, 6):
            self.b_emb_trg.grad[0] = torch.nan
        return lesson

    monkeypatch.setattr(Network, "accumulate", accumulate)
    short = _elsewhere(job, "short", train={"updates": 6, "evaluate_every": 100})
    _train(short)
    first, second = pq.read_table(short.finished / "curve.parquet").to_pylist()
    assert (first["skipped"], first["sentences"], second["skipped"], second["sentences"]) == (1, 16, 3, 0)
    assert np.isfinite([first["loss_per_token"], first["gradient_norm"], first["attention_entropy"]]).all()
    assert {second[name] for name in ("loss_per_token", "gradient_norm", "attention_entropy")} == {None}


def test_the_entropy_in_the_curve_is_that_of_uniform_attention_at_first_and_null_without_attention(
    job: TrainingJob,
) -> None:
    one = {"updates": 1, "log_every": 1}
    attending = _elsewhere(job, "attending", train=one)
    _train(attending, 2)
    (row,) = pq.read_table(attending.finished / "curve.parquet").to_pylist()
    (pairs,) = _global_batches(job, 1)[:1]
    positions = [(len(source), len(target)) for source, target in pairs]  # </s> counted
    expected = sum(target * np.log(source) for source, target in positions) / sum(t for _, t in positions)
    assert row["attention_entropy"] == pytest.approx(expected, rel=1e-5)
    plain = _elsewhere(job, "plain", train=one, network=TINY.model_copy(update={"kind": "rnnencdec"}))
    _train(plain, 2)
    assert pq.read_table(plain.finished / "curve.parquet")["attention_entropy"].to_pylist() == [None]


def test_tensorboard_has_every_number_of_the_curve(job: TrainingJob) -> None:
    _train(job)
    rows = {row["update"]: row for row in pq.read_table(job.finished / "curve.parquet").to_pylist()}
    drawn = _drawn(job.workdir / "tensorboard")
    assert drawn.keys() == rows.keys()
    for update, row in rows.items():
        del row["update"]
        assert drawn[update] == pytest.approx({name: v for name, v in row.items() if v is not None}, rel=1e-6)
    assert {"dev_bleu", "attention_entropy", "dev_loss_per_token", "gradient_norm"} <= drawn[10].keys()


def test_tensorboard_has_one_curve_over_the_epochs_of_a_training_without_what_was_taken_back(
    job: TrainingJob, tmp_path: Path
) -> None:
    job = replace(job, events=tmp_path / "tensorboard" / "rnnsearch-abc")
    assert job.events is not None
    assert _train(job, stop=_stop_at(5)) == Ending("stopped", 5)
    before = _drawn(job.events)
    assert max(before) <= 5
    (late,) = job.events.iterdir()  # of an earlier epoch whose worker was killed after its checkpoint
    with SummaryWriter(str(job.events)) as writer:
        writer.add_scalar("loss_per_token", 99.0, 7)
    again = replace(job, workdir=_folder(tmp_path / "again"), earlier=[job.workdir])
    assert _train(again) == Ending("finished", 10)
    rows = {row["update"]: row for row in pq.read_table(again.finished / "curve.parquet").to_pylist()}
    drawn = _drawn(job.events)
    assert drawn.keys() == rows.keys()
    assert 99.0 not in {each.get("loss_per_token") for each in drawn.values()}
    assert {step: drawn[step] for step in before} == before
    assert not late.exists()


def _drawn(folder: Path) -> dict[int, dict[str, float]]:
    """What TensorBoard shows of the one file of events in a folder: values by update and name; each once."""
    (file,) = folder.iterdir()
    drawn: dict[int, dict[str, float]] = {}
    for event in map(Event.FromString, _records(file.read_bytes())):
        for value in event.summary.value:
            assert value.tag not in drawn.setdefault(event.step, {})
            drawn[event.step][value.tag] = value.simple_value
    return drawn


def _records(data: bytes) -> Iterator[bytes]:
    """What a TFRecord file holds: each record has 12 bytes before it, its length first, and 4 behind."""
    while data:
        length = int.from_bytes(data[:8], "little")
        yield data[12 : 12 + length]
        data = data[16 + length :]


def test_a_checkpoint_of_before_a_curve_had_all_its_columns_is_gone_on_from(job: TrainingJob) -> None:
    assert _train(job, stop=_stop_at(5)) == Ending("stopped", 5)
    (place,) = job.checkpoints.glob("update-000000005")
    snapshot = read_checkpoint(place)
    curve = snapshot.facts["curve"]
    for some in (curve["sums"], *curve["rows"]):
        for name in ("entropy", "attended", "attention_entropy", "dev_bleu"):
            some.pop(name, None)
    write_checkpoint(job.checkpoints, snapshot)
    assert _train(job) == Ending("finished", 10)
    rows = pq.read_table(job.finished / "curve.parquet").to_pylist()
    assert [row["attention_entropy"] is None for row in rows] == [True, True, False, False, False]


@pytest.mark.parametrize("update", [1, 4, 5, 9])
def test_trap_21_a_training_stopped_inside_a_window_goes_on_bit_for_bit(
    job: TrainingJob, update: int
) -> None:
    straight = _elsewhere(job, "straight")
    _train(straight)
    assert _train(job, stop=_stop_at(update)) == Ending("stopped", update)
    assert not job.finished.exists()
    rerun = _elsewhere(job, "rerun", earlier=[job.workdir])
    assert _train(rerun) == Ending("finished", 10)
    assert _artifacts(rerun) == _artifacts(straight)


def test_the_best_parameters_of_before_a_stop_are_kept(job: TrainingJob) -> None:
    worsening = {"learning_rate": 1.0, "evaluate_every": 1}
    straight = _elsewhere(job, "straight", train=worsening)
    _train(straight)
    best = read_checkpoint(straight.finished / "state").facts["best"]["update"]
    assert best < 6
    first = _elsewhere(job, "first", train=worsening)
    _train(first, 2, stop=_stop_at(6))
    second = _elsewhere(job, "second", train=worsening, earlier=[first.workdir])
    _train(second, 2)
    network = load_network(second.finished / "model", "best")
    expected = read_checkpoint(first.checkpoints / "update-000000006").best
    assert expected is not None
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, expected[name])


@pytest.mark.parametrize("measure", ["loss", "bleu"])
def test_the_best_parameters_are_those_that_best_by_names(job: TrainingJob, measure: str) -> None:
    chosen = _elsewhere(job, "chosen", train={"evaluate_every": 1, "best_by": measure})
    _train(chosen)
    rows = pq.read_table(chosen.finished / "curve.parquet").to_pylist()
    values = [row["dev_loss_per_token"] if measure == "loss" else -row["dev_bleu"] for row in rows]
    best = read_checkpoint(chosen.finished / "state").facts["best"]
    assert best == {"by": measure, "value": min(values), "update": rows[values.index(min(values))]["update"]}


def test_a_training_that_is_chosen_by_another_measure_does_not_inherit_the_best(job: TrainingJob) -> None:
    _train(job)
    state = job.finished / "state"
    assert read_checkpoint(state).facts["best"]["update"] == 10
    further = {"updates": 11, "evaluate_every": 11, "best_by": "bleu"}
    longer = _elsewhere(job, "longer", train=further, initial_state=state)
    _train(longer)
    assert read_checkpoint(longer.finished / "state").facts["best"]["by"] == "bleu"


def test_a_crash_between_checkpoints_goes_on_from_the_one_before(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = _elsewhere(job, "straight")
    _train(straight)
    real, calls = Trainer.update, [0]

    def crash(self: Trainer, *arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == 8:
            raise OSError("the machine is gone")
        return real(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", crash)
        with pytest.raises(OSError, match="gone"):
            _train(job)
    found = newest_checkpoint([job.checkpoints])
    assert found is not None
    assert found.snapshot.update == 4
    assert _train(job) == Ending("finished", 10)
    assert _artifacts(job) == _artifacts(straight)


def test_a_finished_training_is_not_done_again(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    _train(job)
    monkeypatch.setattr(Trainer, "update", lambda *_: pytest.fail("trained again"))
    assert _train(job) == Ending("finished", 10)


def test_a_training_goes_on_from_the_state_of_a_shorter_one(job: TrainingJob) -> None:
    straight = _elsewhere(job, "straight", train={"evaluate_every": 6, "log_every": 6})
    _train(straight)
    shorter = _elsewhere(straight, "shorter", train={"updates": 6})
    _train(shorter)
    longer = _elsewhere(straight, "longer", initial_state=shorter.finished / "state")
    _train(longer)
    assert _artifacts(longer) == _artifacts(straight)


def test_a_state_that_does_not_belong_is_refused_by_every_worker(job: TrainingJob) -> None:
    _train(job)
    state = job.finished / "state"
    wrong = {
        "batch is 8": _elsewhere(job, "a", train={"batch": 4}, initial_state=state),
        "network is": _elsewhere(job, "b", network=TINY.model_copy(update={"units": 7}), initial_state=state),
        "updates already": _elsewhere(job, "c", train={"updates": 9}, initial_state=state),
        "optimiser": _elsewhere(job, "d", train={"optimizer": "adadelta"}, initial_state=state),
        "examples is": _elsewhere(job, "e", examples=job.examples[:2], initial_state=state),
        "cannot be used": _elsewhere(job, "f", initial_state=state / "nothing"),
    }
    for message, each in wrong.items():
        ending = _train(each, workers=2)
        assert ending.how == "failed"
        assert message in ending.message


def test_a_state_with_all_updates_done_is_finished_at_once(job: TrainingJob) -> None:
    _train(job)
    same = _elsewhere(job, "same", initial_state=job.finished / "state")
    assert _train(same) == Ending("finished", 10)
    assert _artifacts(same) == _artifacts(job)


def test_one_two_and_four_workers_follow_the_same_curve(job: TrainingJob) -> None:
    exact = {"precision": "float64", "optimizer": "adadelta"}
    curves = []
    for workers in (1, 2, 4):
        each = _elsewhere(job, f"of-{workers}", train=exact)
        assert _train(each, workers).how == "finished"
        curves.append(pq.read_table(each.finished / "curve.parquet").to_pylist())
    for curve in curves[1:]:
        for row, alone in zip(curve, curves[0], strict=True):
            for name, value in row.items():
                assert value == (None if alone[name] is None else pytest.approx(alone[name], rel=1e-9))


@pytest.mark.parametrize("then", [(1,), (4,), (1, 4)])
def test_a_training_of_two_workers_goes_on_with_one_and_with_four(
    job: TrainingJob, then: tuple[int, ...]
) -> None:
    exact = _elsewhere(job, "exact", train={"precision": "float64", "optimizer": "adadelta"})
    _train(exact)
    first = _elsewhere(exact, "first")
    assert _train(first, 2, _stop_at(4)) == Ending("stopped", 4)
    folders = [first.workdir]
    for number, workers in enumerate(then):
        last = _elsewhere(exact, f"epoch-{number}", earlier=folders)
        stopped = number + 1 < len(then)
        ending = _train(last, workers, _stop_at(3) if stopped else None)
        assert ending == (Ending("stopped", 7) if stopped else Ending("finished", 10))
        folders = [*folders, last.workdir]
    ours, theirs = (load_network(each.finished / "model", "last") for each in (last, exact))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_one_workers_request_to_stop_ends_all_with_a_checkpoint(job: TrainingJob) -> None:
    calls = dict.fromkeys(range(3), 0)

    def stop(rank: int) -> bool:
        calls[rank] += 1
        return rank == 2 and calls[rank] == 6

    assert _train(job, 3, stop) == Ending("stopped", 6)
    found = newest_checkpoint([job.checkpoints])
    assert found is not None
    assert found.snapshot.update == 6


def test_a_diverged_training_ends_on_every_worker_and_leaves_its_checkpoint(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Trainer.update, dict.fromkeys(range(2), 0)

    def update(self: Trainer, *arguments: Any, **named: Any) -> Any:
        rank = int(threading.current_thread().name)
        calls[rank] += 1
        if calls[rank] > 5 and rank == 1:
            self.network.b_emb_trg.data.fill_(torch.nan)
        return real(self, *arguments, **named)

    monkeypatch.setattr(Trainer, "update", update)
    limited = _elsewhere(job, "limited", train={"nonfinite_limit": 2})
    ending = _train(limited, 2)
    assert ending.how == "failed"
    assert "not finite in 2 updates in a row" in ending.message
    found = newest_checkpoint([limited.checkpoints])
    assert found is not None
    assert found.snapshot.update == 4


def _global_batches(job: TrainingJob, world: int, first: int = 0) -> list[list[tuple[tuple[int, ...], ...]]]:
    """What each update sees, as the set of its pairs, put together from all workers."""
    examples = Examples(job.examples)
    feeds = [
        shared_batches(examples, first, 30, batch=8, window_batches=6, rank=rank, world=world)
        for rank in range(world)
    ]
    return [
        sorted(pair for shared in update for pair in _pairs(shared)) for update in zip(*feeds, strict=True)
    ]


def _pairs(shared: Shared) -> list[tuple[tuple[int, ...], ...]]:
    if shared.batch is None:
        return []
    source, source_mask, target, target_mask = (tensor.T for tensor in shared.batch)
    return [
        (tuple(source[row][source_mask[row]].tolist()), tuple(target[row][target_mask[row]].tolist()))
        for row in range(len(source))
    ]


def test_trap_20_the_global_batches_are_the_same_for_one_two_and_four_workers(job: TrainingJob) -> None:
    alone = _global_batches(job, 1)
    assert alone == _global_batches(job, 2) == _global_batches(job, 4)
    assert [len(batch) for batch in alone[:13]] == [8] * 12 + [4]  # 100 examples: the last batch is short
    assert alone[13:26] == alone[:13]  # the next epoch has the same order
    assert alone[17:] == _global_batches(job, 2, first=17)


def test_each_window_is_read_by_position_and_sorted_by_its_longer_side(job: TrainingJob) -> None:
    examples = Examples(job.examples)
    everything = examples.read(0, len(examples))
    window = [tuple(pair) for pair in zip(*(map(tuple, side) for side in everything), strict=True)][48:96]
    seen = [
        pair
        for shared in shared_batches(examples, 6, 12, batch=8, window_batches=6, rank=0, world=1)
        for pair in _pairs(shared)
    ]
    expected = sorted(window, key=lambda pair: max(map(len, pair)))
    assert seen == [(*((*side, 0) for side in pair),) for pair in expected]


@pytest.mark.parametrize(("first", "count"), [(0, 1), (30, 10), (33, 2), (60, 40), (99, 1), (0, 100)])
def test_rows_are_found_across_shards_and_row_groups(job: TrainingJob, first: int, count: int) -> None:
    whole = [row.as_py() for path in job.examples for row in pq.read_table(path)["source"]]
    read = Examples(job.examples).read(first, count)
    assert [row.tolist() for row in read.source] == whole[first : first + count]


def test_a_shard_that_changed_since_its_rows_were_counted_is_an_error(job: TrainingJob) -> None:
    examples = Examples(job.examples, shard_rows=[34, 30, 36])
    with pytest.raises(ValueError, match="has 34 rows, not 30"):
        examples.read(40, 1)


def test_an_error_while_batches_are_made_ahead_is_raised_where_they_are_used() -> None:
    def broken() -> Any:
        yield Shared(None, 0, 0)
        raise OSError("cannot read")

    with ahead(broken()) as feed, pytest.raises(OSError, match="cannot read"):  # noqa: PT012 - both need the feed
        next(feed)
        next(feed)


def test_leaving_early_ends_the_thread_that_makes_batches() -> None:
    before = threading.active_count()
    with ahead(Shared(None, 0, 0) for _ in range(1000)) as feed:
        next(feed)
    assert threading.active_count() == before
