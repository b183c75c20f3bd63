"""Printing helpers of the commands: JSON, a console for results, durations and counts."""

import json
import sys
from typing import Any

from rich.console import Console

_WIDE = 200  # characters


def emit(value: Any) -> None:
    """Print JSON for programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def output_console() -> Console:
    """Results on standard output; where that is no terminal, lines are as long as they must be."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def counted(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
