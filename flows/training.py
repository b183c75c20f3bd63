"""The training loop that every worker runs: equal batches in, equal decisions; the first worker writes."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import pyarrow.parquet as pq
import torch

from rnnsearch.flows.training_data import Examples, Shared, Sides, ahead, shared_batches, sides
from rnnsearch.flows.training_dev import DevLoss, dev_bleu, dev_loss, moved
from rnnsearch.flows.training_job import Ending, TrainingJob, Workers
from rnnsearch.flows.training_log import Curve, Messenger, Watch
from rnnsearch.flows.training_saves import Saves
from rnnsearch.model.batch import Batch
from rnnsearch.model.checkpoint import Found, Snapshot, Tensors
from rnnsearch.model.initialization import initialize
from rnnsearch.model.kernels.bfloat16 import products_on
from rnnsearch.model.kernels.choice import kernels_for
from rnnsearch.model.network import Network
from rnnsearch.model.step import Trainer, TrainingError


def train_worker(job: TrainingJob, workers: Workers) -> Ending:
    """Train until the job is finished, one worker is asked to stop, or the training cannot go on.

    All workers of a job call it, and all return the same. What is whole in `workdir` and in the `earlier`
    folders is gone on from and never done again. An error that only this worker may have met is raised.
    """
    if workers.agree(job.finished.is_dir()):
        return Ending("finished", job.train.updates)
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.train.seed)
    with ExitStack() as stack:
        saves = messenger = None
        if workers.rank == 0:
            saves = stack.enter_context(closing(Saves(job)))
            messenger = stack.enter_context(closing(Messenger(job)))
        try:
            return _Training(job, workers, saves, messenger).run()
        except TrainingError as error:
            return Ending("failed", 0, str(error))


class _Training:
    def __init__(
        self, job: TrainingJob, workers: Workers, saves: Saves | None, messenger: Messenger | None
    ) -> None:
        self.job, self.workers, self.config = job, workers, job.train
        self.saves, self.messenger = saves, messenger  # of the first worker
        self.watch, self.curve = Watch(), Curve()
        self.update = 0
        self.best_value, self.best_update = math.inf, 0  # of what `best_by` names: lower is better
        self.best: Tensors | None = None  # the parameters then; the first worker has them
        self._say("work", {"doing": "reading the examples"})
        with self.watch.timed("start"):
            self.device = torch.device(job.device)
            self.examples = Examples(job.examples, job.shard_rows)
            self.dev = _read_dev(job)
            network = Network(job.network, job.source_size, job.target_size)
            initialize(network, self.config.seed)
            dtype = torch.float64 if self.config.precision == "float64" else torch.float32
            self.trainer = Trainer(network.to(self.device, dtype), self.config, workers.sum)
            self._resume()

    def run(self) -> Ending:
        """Make the updates that are missing and write the outputs."""
        placement = {"device": self.device.type, "workers": self.workers.size, "threads": self.job.threads}
        placement |= {"kernels": kernels_for(self.device).name}
        if self.config.precision == "bfloat16":
            placement |= {"bfloat16": products_on(self.device)}
        if self.messenger is not None:
            self.messenger.draw_from(self.curve.rows)
        self._say("start", {"update": self.update, "updates": self.config.updates, **placement})
        with ahead(self._batches()) as feed:
            while self.update < self.config.updates:
                with self.watch.timed("feeding"):
                    shared = next(feed)
                if self._learn(shared) and self.update < self.config.updates:
                    self._save()
                    return Ending("stopped", self.update)
                if self.update == self.config.updates or self.update % self.config.checkpoint_every == 0:
                    self._save()
        if self.saves is not None:
            self.saves.finish(self._snapshot(), self.curve, self._observations(placement))
        self._say("end", {"update": self.update, **self._observations(placement)})
        return Ending("finished", self.update)

    def _batches(self) -> Iterator[Shared]:
        for shared in shared_batches(
            self.examples,
            self.update,
            self.config.updates,
            batch=self.config.batch,
            window_batches=self.config.window_batches,
            rank=self.workers.rank,
            world=self.workers.size,
        ):
            if shared.batch is None or self.device.type == "cpu":
                yield shared
            else:  # a GPU copies from pinned memory while it computes
                yield shared._replace(batch=Batch(*(part.pin_memory() for part in shared.batch)))

    def _learn(self, shared: Shared) -> bool:
        """Make an update, with the evaluation and the row that are due after it; return whether to stop."""
        with self.watch.timed("updates"):
            share = None if shared.batch is None else moved(shared.batch, self.device)
            done = self.trainer.update(share, stop=self.workers.stopping())
        self.update += 1
        self.watch.add(done)
        self.curve.add(done, shared)
        last = self.update == self.config.updates
        evaluate = self.dev is not None and (last or self.update % self.config.evaluate_every == 0)
        dev, translated = None, None
        if evaluate and self.dev is not None:
            dev, translated = self._evaluate(self.dev), self._translate(self.dev)
            self._keep_if_best(dev, translated)
        with self.watch.timed("logging"):
            if last or evaluate or self.update % self.config.log_every == 0:
                row = self.curve.close_row(self.update, dev, translated)
                self._say("row", {**row, "updates": self.config.updates, **self._speed()})
                if self.messenger is not None:
                    self.messenger.draw(row)
            elif self.messenger is not None:
                message = {"update": self.update, "updates": self.config.updates, **self._speed()}
                self.messenger.say_now_and_then("update", message)
        return done.stop

    def _evaluate(self, dev: Sides) -> DevLoss:
        with self.watch.timed("evaluation"):
            return dev_loss(self.trainer, dev, self.workers)

    def _translate(self, dev: Sides) -> float | None:
        some = Sides(*(side[: self.config.dev_bleu_sentences] for side in dev))
        with self.watch.timed("search"):
            return dev_bleu(self.trainer, some, self.workers) if some.source else None

    def _keep_if_best(self, dev: DevLoss, translated: float | None) -> None:
        value = dev.loss / dev.tokens
        if self.config.best_by == "bleu":
            value = math.inf if translated is None else -translated
        if value < self.best_value:
            self.best_value, self.best_update = value, self.update
            if self.saves is not None:
                self.best = self.trainer.parameters()

    def _save(self) -> None:
        if self.saves is None:
            return
        with self.watch.timed("checkpoint"):
            self.saves.save(self._snapshot(), self.watch.observations)

    def _snapshot(self) -> Snapshot:
        facts = {
            "belongs": self._belongs(),
            "best": {"by": self.config.best_by, "value": self.best_value, "update": self.best_update}
            if self.best
            else None,
            "curve": self.curve.facts,
        }
        return self.trainer.snapshot(self.update, self.best, facts)

    def _belongs(self) -> Mapping[str, Any]:
        """What a training must share with the checkpoint that it goes on from."""
        order = {"examples": len(self.examples)}
        order |= {"batch": self.config.batch, "window_batches": self.config.window_batches}
        sizes = {"source_size": self.job.source_size, "target_size": self.job.target_size}
        return {"network": self.job.network.model_dump(mode="json"), **sizes, **order}

    def _resume(self) -> None:
        """Go on from the newest whole checkpoint; the first worker reads it and hands it to the others."""
        update, facts, problem = 0, None, ""
        if self.saves is not None:
            try:
                if (found := self.saves.find()) is not None:
                    self._check(found)
                    self.trainer.restore(found.snapshot)
                    self.best = found.snapshot.best
                    update, facts = found.snapshot.update, found.snapshot.facts
                    if (seen := self.saves.seen(found)) is not None:
                        self.watch.go_on_from(seen)
            except TrainingError as error:
                problem = str(error)
        update, facts, problem = self.workers.agree((update, facts, problem))
        if problem:
            raise TrainingError(problem)
        self.workers.spread(self.trainer.flat.parameters_P)
        if facts is None:
            return
        for buffer_P in self.trainer.optimizer.buffers.values():
            self.workers.spread(buffer_P)
        self.trainer.restore_counts(facts)
        self.update, self.curve = update, Curve(facts["curve"])
        if facts["best"] is not None and facts["best"]["by"] == self.config.best_by:
            self.best_value, self.best_update = facts["best"]["value"], facts["best"]["update"]
        else:
            self.best = None  # of a training that this one continues, chosen otherwise

    def _check(self, found: Found) -> None:
        """Raise TrainingError where a checkpoint cannot be gone on from."""
        theirs, ours = found.snapshot.facts["belongs"], self._belongs()
        for name, value in ours.items():
            if theirs.get(name) != value:
                raise TrainingError(
                    f"{found.place} is the state of another training: its {name} is {theirs.get(name)}, here it "
                    f"is {value}; continue with the same network, examples and batches, or train from the start"
                )
        if found.snapshot.update > self.config.updates:
            raise TrainingError(
                f"{found.place} has {found.snapshot.update} updates already, but updates = "
                f"{self.config.updates}; ask for more"
            )

    def _observations(self, placement: Mapping[str, Any]) -> Mapping[str, Any]:
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        epochs = self.update * self.config.batch / len(self.examples)
        seen = {**placement, "device": device, "updates": self.update, "epochs": epochs}
        return {**self.watch.observations, **seen, "best_update": self.best_update or None}

    def _speed(self) -> Mapping[str, float]:
        return {"tokens_per_second": self.watch.tokens_per_second}

    def _say(self, event: str, message: Mapping[str, Any]) -> None:
        if self.messenger is not None:
            self.messenger.say(event, message)


def _read_dev(job: TrainingJob) -> Sides | None:
    if job.dev is None:
        return None
    table = pq.read_table(job.dev, columns=["source", "target"]).slice(0, job.train.dev_sentences)
    return sides(table) if table.num_rows else None
