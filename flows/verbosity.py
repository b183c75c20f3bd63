"""Verbosity of commands: `-q` prints results and errors only, `-v` also details and tracebacks."""

from enum import IntEnum


class Verbosity(IntEnum):
    """Levels, in increasing order."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_current = [Verbosity.NORMAL]  # of this process; the command line sets it once


def set_verbosity(level: Verbosity) -> None:
    """Set it for this process."""
    _current[0] = level


def verbosity() -> Verbosity:
    """The level of this process."""
    return _current[0]
