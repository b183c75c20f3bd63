"""How far a stage is, as it tells the console."""

from typing import NamedTuple


class Step(NamedTuple):
    """What a stage does now, and how much of its work is done."""

    text: str
    done: float = 0
    total: float = 0  # 0: nobody knows how much there is to do
    lasting: bool = False  # a line that stays
