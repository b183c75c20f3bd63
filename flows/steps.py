"""The progress of a stage, as shown on the console."""

from typing import NamedTuple


class Step(NamedTuple):
    """The current activity of a stage and how much of its work is done."""

    text: str
    done: float = 0
    total: float = 0  # 0: nobody knows how much there is to do
    lasting: bool = False  # a line that stays
