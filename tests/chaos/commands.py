"""Runs `rnnsearch` commands as forks of one process that has imported everything, so that a command costs no imports.

`python commands.py` reads a line of JSON for each command (its words, its environment, where its output goes, whether
it obeys the modes of files) and answers `pid N`; when a command ends it says `end N STATUS`. In the fork all is as in
the console script: the same entry point, its own end of the interpreter.
"""

import ctypes
import gc
import json
import os
import select
import struct
import sys
import threading
from typing import Any

import sitecustomize

from rnnsearch.flows import cli

os.environ |= {name: os.environ.get(name, value) for name, value in cli.ENVIRONMENT.items()}

from rnnsearch.flows import command_run, command_store  # noqa: F401

_LOOK_SECONDS = 0.02  # between looks for commands that ended


def _serve() -> dict[str, Any]:
    """Fork a command for each request; returns in the forks alone."""
    buffer = b""
    while True:
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                sys.exit()
            buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            pid = os.fork()
            if pid == 0:
                request: dict[str, Any] = json.loads(line)
                return request
            os.write(1, f"pid {pid}\n".encode())
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            continue
        if pid:
            os.write(1, f"end {pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    for descriptor, path in ((1, request["out"]), (2, request["err"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, descriptor)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.environ |= request["environment"]
    sitecustomize.shift_clock()
    if request["mortal"]:
        _obey_permissions()
    sys.argv = ["rnnsearch", *request["words"]]


def _obey_permissions() -> None:
    """Let root be refused what its files' modes refuse: without the capabilities to override them."""
    library = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
    data = ctypes.create_string_buffer(24)  # effective, permitted, inheritable, in two halves
    if library.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    halves = [
        value & ~0b1110 if half < 3 else value for half, value in enumerate(struct.unpack("6I", data.raw))
    ]
    if library.capset(header, struct.pack("6I", *halves)):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    if threading.active_count() > 1:
        sys.exit(f"a fork needs one thread, there are {threading.enumerate()}")
    gc.freeze()
    os.write(1, b"ready\n")
    _become(_serve())
    cli.main()
