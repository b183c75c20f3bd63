"""A figure of the report: which values it shows, what its caption says, and the numbers as a table."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from rnnsearch.flows.report.data import System


class Chart(NamedTuple):
    """A figure with its words. `rows` are its numbers for those who cannot see it; the first cell is a name."""

    name: str
    title: str
    caption: str
    figure: Callable[[], Figure]  # drawn when asked for: Markdown needs only the words
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    evidence: tuple[str, ...] = ()  # the stages that the numbers come from


def stages(kind: str, systems: Sequence[System]) -> tuple[str, ...]:
    """The stages of this kind that these systems' numbers come from."""
    return tuple(f"{kind}/{system.name}" for system in systems)
