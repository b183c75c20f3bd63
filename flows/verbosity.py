"""How much a command says: `-q` results and errors only, `-v` details and tracebacks as well."""

from enum import IntEnum


class Verbosity(IntEnum):
    """From little to much."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_current = [Verbosity.NORMAL]  # of this process; the command line sets it once


def set_verbosity(level: Verbosity) -> None:
    """Set it for this process."""
    _current[0] = level


def verbosity() -> Verbosity:
    """As the user asked for it."""
    return _current[0]
