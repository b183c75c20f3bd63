"""What the stage `train` says while it goes on."""

from typing import Any

import pytest

from rnnsearch.flows.train_stage import _teller

START = {"event": "start", "update": 0, "updates": 9, "device": "cpu", "workers": 1, "threads": 2}


def _said(*messages: dict[str, Any]) -> list[str]:
    said: list[str] = []
    tell = _teller(9, said.append)
    for message in messages:
        tell(message)
    return said


@pytest.mark.parametrize(("where", "lines"), [({}, 1), ({"kernels": "compiled"}, 0), ({"device": "cuda"}, 0)])
def test_a_training_that_goes_without_a_compiler_says_so(where: dict[str, str], lines: int) -> None:
    said = _said({**START, "kernels": "plain", **where})
    assert len(said) == lines
    assert all("plain kernels" in line and "C++ compiler" in line for line in said)


def test_a_training_in_bfloat16_says_so_where_the_cpu_has_no_such_products() -> None:
    start = {**START, "kernels": "compiled"}
    assert _said({**start, "bfloat16": "native"}) == []
    (line,) = _said({**start, "bfloat16": "rounded"})
    assert "this CPU has no such products" in line


def test_a_sign_of_life_has_the_losses_and_the_bleu_that_were_seen_last() -> None:
    row = {"event": "row", "update": 4, "tokens_per_second": 1234.5}
    said = _said(
        {**row, "loss_per_token": 3.5, "dev_loss_per_token": 4.25, "dev_bleu": 12.34},
        {**row, "event": "update", "update": 5},
    )
    seen = "train 3.500, dev 4.250 nats a token, dev BLEU 12.3, 1,234 target tokens/s"
    assert said == [f"update 4 of 9, {seen}", f"update 5 of 9, {seen}"]
