"""Check that the temporary folder suits Ray, whose Unix sockets need short paths."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_LONGEST = 103 if sys.platform == "darwin" else 107  # bytes of a Unix socket's path
_SOCKET = "/ray/session_2026-12-31_23-59-59_999999_4194304/sockets/plasma_store"  # below the folder


def temporary_fault(environment: Mapping[str, str] = os.environ) -> str | None:
    """The reason why Ray cannot use the temporary folder and the remedy, or None."""
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if environment.get(name)), None)
    folder = Path(environment[name] if name else "/tmp").absolute()  # noqa: S108 - Ray's own default
    found = f"{name or 'the folder for temporary files'} is {folder}"
    remedy = f"set {name or 'RAY_TMPDIR'} to a folder of yours with a short path, such as /tmp"
    longest = len(os.fsencode(folder)) + len(_SOCKET)
    if longest > _LONGEST:
        return (
            f"{found}: the paths of Ray's sockets there would have {longest} bytes, and Unix allows {_LONGEST}; "
            f"{remedy}"
        )
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return f"{found}, and this user cannot write to {there}; {remedy}"
    return None
