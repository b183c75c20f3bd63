"""What a training tells: rows of the curve, signs of life for the driver, and TensorBoard events."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch.utils.tensorboard import SummaryWriter

from rnnsearch.flows.training_data import Shared
from rnnsearch.flows.training_dev import DevLoss
from rnnsearch.flows.training_job import TrainingJob
from rnnsearch.model.step import Update
from rnnsearch.pipeline.schemas import CURVE

_SECONDS_BETWEEN_MESSAGES = 1.0
_COUNTS = (
    "updates", "loss", "norm", "clipped", "skipped", "tokens", "sentences", "words", "cells", "entropy", "attended",
)  # fmt: skip


class Curve:
    """The rows so far, and the sums of the updates since the last of them. Equal on every worker."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        """Start empty, or with what `facts` returned."""
        self.rows: list[dict[str, Any]] = list(facts["rows"]) if facts else []
        self.sums: dict[str, float] = dict.fromkeys(_COUNTS, 0)
        if facts:
            self.sums |= facts["sums"]  # those that an older version wrote may be fewer

    @property
    def facts(self) -> Mapping[str, Any]:
        """All of it, of JSON's types."""
        return {"rows": list(self.rows), "sums": dict(self.sums)}

    def add(self, update: Update, shared: Shared) -> None:
        """Count one update. The loss and the norm of a skipped one are no numbers and stay out."""
        counted: dict[str, float] = {"words": shared.words, "cells": shared.cells}
        if update.skipped:
            counted["skipped"] = 1
        else:
            counted |= {"updates": 1, "loss": update.loss, "norm": update.norm, "clipped": update.clipped}
            counted |= {"tokens": update.tokens, "sentences": update.sentences}
            if update.entropy is not None:
                counted |= {"entropy": update.entropy, "attended": update.tokens}
        for name, value in counted.items():
            self.sums[name] += value

    def close_row(self, update: int, dev: DevLoss | None, dev_bleu: float | None) -> Mapping[str, Any]:
        """End a row after `update` updates, with what was measured on dev now."""
        sums = self.sums
        row = {
            "update": update,
            "loss_per_token": _ratio(sums["loss"], sums["tokens"]),
            "loss_per_sentence": _ratio(sums["loss"], sums["sentences"]),
            "gradient_norm": _ratio(sums["norm"], sums["updates"]),
            "clipped_share": _ratio(sums["clipped"], sums["updates"]),
            "skipped": int(sums["skipped"]),
            "padding_share": 1 - (_ratio(sums["words"], sums["cells"]) or 0.0),
            "tokens": int(sums["tokens"]),
            "sentences": int(sums["sentences"]),
            "attention_entropy": _ratio(sums["entropy"], sums["attended"]),
            "dev_loss_per_token": None if dev is None else _ratio(dev.loss, dev.tokens),
            "dev_loss_per_sentence": None if dev is None else _ratio(dev.loss, dev.sentences),
            "dev_bleu": dev_bleu,
        }
        self.rows.append(row)
        self.sums = dict.fromkeys(_COUNTS, 0)
        return row

    def write(self, path: Path) -> None:
        """The rows as one Parquet file of CURVE."""
        pq.write_table(pa.Table.from_pylist(self.rows, schema=CURVE), path)


class Watch:
    """Seconds spent in each part of a training, and tokens and sentences that went by."""

    def __init__(self) -> None:
        """Start from nothing."""
        self.seconds: dict[str, float] = {}
        self.tokens = 0
        self.sentences = 0
        self.starts = 1  # of this training, the first included

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Charge what happens inside to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

    def add(self, update: Update) -> None:
        """Count an update."""
        self.tokens += update.tokens
        self.sentences += update.sentences

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, over the time in which updates were made."""
        return self.tokens / max(self._updating, 1e-9)

    @property
    def observations(self) -> Mapping[str, Any]:
        """What was seen so far."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "pairs_per_second": self.sentences / max(self._updating, 1e-9),
            "hours": sum(self.seconds.values()) / 3600,
            "seconds": dict(self.seconds),
            "tokens": self.tokens,
            "pairs": self.sentences,
            "starts": self.starts,
        }

    def go_on_from(self, observations: Mapping[str, Any]) -> None:
        """Add what an interrupted training had seen until its checkpoint."""
        for part, seconds in observations["seconds"].items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self.tokens += observations["tokens"]
        self.sentences += observations["pairs"]
        self.starts += observations["starts"]

    @property
    def _updating(self) -> float:
        return self.seconds.get("feeding", 0.0) + self.seconds.get("updates", 0.0)


class Messenger:
    """Signs of life of the first worker: lines of JSON for the driver, and events for TensorBoard."""

    def __init__(self, job: TrainingJob) -> None:
        """Append to what an earlier worker of this epoch has written."""
        self._messages = job.messages.open("a", buffering=1, encoding="utf-8")
        self._folder = job.events or job.workdir / "tensorboard"
        self._events: SummaryWriter | None = None
        self._last = 0.0

    def say(self, event: str, message: Mapping[str, Any]) -> None:
        """Send a message now."""
        self._messages.write(json.dumps({"event": event, **message}) + "\n")

    def say_now_and_then(self, event: str, message: Mapping[str, Any]) -> None:
        """Send a message unless one was sent a moment ago."""
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_MESSAGES:
            self._last = now
            self.say(event, message)

    def draw_from(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Begin TensorBoard's curve with the rows so far, in place of what earlier workers drew.

        So there is one curve however often a training was interrupted, without what a checkpoint took back. An
        earlier worker that is late writes into a file that has no name any more.
        """
        for folder in (
            self._folder.parent,
            self._folder,
        ):  # one by one: a store that vanished is not made anew
            folder.mkdir(exist_ok=True)
        for earlier in self._folder.glob("events.out.tfevents.*"):
            earlier.unlink(missing_ok=True)
        self._events = SummaryWriter(str(self._folder), flush_secs=10)
        for row in rows:
            self.draw(row)

    def draw(self, row: Mapping[str, Any]) -> None:
        """Show a row of the curve in TensorBoard."""
        if self._events is None:
            return
        for name, value in row.items():
            if name != "update" and value is not None:
                self._events.add_scalar(name, value, row["update"])

    def close(self) -> None:
        """Write what is still held back."""
        if self._events is not None:
            self._events.close()
        self._messages.close()


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
