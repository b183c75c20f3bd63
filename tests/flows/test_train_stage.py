"""What the stage `train` says while it goes on."""

from typing import Any

import pytest

from rnnsearch.flows.steps import Step
from rnnsearch.flows.training_progress import training_progress

START = {"event": "start", "update": 0, "updates": 9, "device": "cpu", "workers": 1, "threads": 2}


def _said(*messages: dict[str, Any]) -> list[Step]:
    said: list[Step] = []
    tell = training_progress(9, said.append)
    for message in messages:
        tell(message)
    return said


@pytest.mark.parametrize(("where", "lines"), [({}, 1), ({"kernels": "compiled"}, 0), ({"device": "cuda"}, 0)])
def test_a_training_that_goes_without_a_compiler_says_so(where: dict[str, str], lines: int) -> None:
    said = _said({**START, "kernels": "plain", **where})
    assert said[-1] == Step("first updates", 0, 9)
    assert len(said) == lines + 1
    assert all("plain kernels" in line.text and "C++ compiler" in line.text for line in said[:-1])
    assert all(line.lasting for line in said[:-1])


def test_a_training_in_bfloat16_says_so_where_the_cpu_has_no_such_products() -> None:
    start = {**START, "kernels": "compiled"}
    assert len(_said({**start, "bfloat16": "native"})) == 1
    line, _ = _said({**start, "bfloat16": "rounded"})
    assert "this CPU has no such products" in line.text
    assert line.lasting


def test_a_sign_of_life_has_the_losses_and_the_bleu_that_were_seen_last() -> None:
    row = {"event": "row", "update": 4, "tokens_per_second": 1234.5}
    said = _said(
        {**row, "loss_per_token": 3.5, "dev_loss_per_token": 4.25, "dev_bleu": 12.34},
        {**row, "event": "update", "update": 5},
    )
    seen = "train 3.500, dev 4.250 nats a token, dev BLEU 12.3, 1,234 target tokens/s"
    assert said == [Step(f"update 4 of 9, {seen}", 4, 9), Step(f"update 5 of 9, {seen}", 5, 9)]


def test_before_its_first_update_a_training_says_what_it_does() -> None:
    said = _said(
        {"event": "work", "doing": "reading the examples"},
        {**START, "update": 3, "kernels": "compiled"},
    )
    assert said == [Step("reading the examples"), Step("first updates after update 3", 3, 9)]
