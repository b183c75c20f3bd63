"""Progress of a training for the console. Separate from `train_stage`: it is in no key."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rnnsearch.flows.steps import Step
from rnnsearch.model.kernels.bfloat16 import WITHOUT_PRODUCTS

LAYING_OUT = Step("laying out the examples")
STARTING = Step("starting the workers")


def curves(events: Path) -> Step:
    """How to look at the curves."""
    return Step(f"curves: tensorboard --logdir {shlex.quote(str(events))}", lasting=True)


def training_progress(updates: int, progress: Callable[[Step], None]) -> Callable[[Mapping[str, Any]], None]:
    """Return a listener that turns the messages of a training into progress lines."""
    losses = {"loss_per_token": "", "dev_loss_per_token": ""}
    translated = ""

    def tell(message: Mapping[str, Any]) -> None:
        nonlocal translated
        if message["event"] == "work":
            progress(Step(message["doing"]))
        if message["event"] == "start":
            if (message["device"], message["kernels"]) == ("cpu", "plain"):
                slow = (
                    "plain kernels; where a C++ compiler is found the compiled ones are about twice as fast"
                )
                progress(Step(slow, lasting=True))
            if message.get("bfloat16") == "rounded":
                progress(Step(f"bfloat16: {WITHOUT_PRODUCTS}", lasting=True))
            after = f" after update {message['update']:,}" if message["update"] else ""
            progress(Step(f"first updates{after}", message["update"], updates))
        if message.get("dev_bleu") is not None:
            translated = f", dev BLEU {message['dev_bleu']:.1f}"
        for name, what in (("loss_per_token", "train"), ("dev_loss_per_token", "dev")):
            if message.get(name) is not None:
                losses[name] = f", {what} {message[name]:.3f}"
        if message["event"] in ("update", "row"):
            speed, done = message["tokens_per_second"], message["update"]
            shown = "".join(losses.values())
            unit = " nats a token" if shown else ""
            text = f"update {done:,} of {updates:,}{shown}{unit}{translated}, {speed:,.0f} target tokens/s"
            progress(Step(text, done, updates))

    return tell
