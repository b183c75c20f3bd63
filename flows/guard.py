"""A run ends clean, whatever its moment: by itself, by a signal, or by `kill -9`.

The guard is a small process beside the driver. It remembers the driver's children (Prefect's temporary server, Ray) and
ends those that outlive it: a driver that was killed, or that Ray ended since its node had died, can no longer do so
itself, nor say how to go on.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO

import psutil

_LOOK_SECONDS = 0.5  # between looks at the driver's children
_GRACE_SECONDS = 3.0  # for children to end by themselves: Ray's do, in about two
_FAREWELL = b"."


class Terminated(BaseException):
    """SIGTERM came."""


@contextlib.contextmanager
def guarded(say: Callable[[str], None], last_words: str, stream: IO[str]) -> Iterator[None]:
    """Inside this block the first SIGINT or SIGTERM raises in the main thread, the second ends everything at once.

    Raises KeyboardInterrupt or Terminated. Whatever happens, no child of this process is left when it ends; if it ends
    without a word, `last_words` go to `stream`.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", "rnnsearch.flows.guard", str(os.getpid()), last_words],
        stdin=subprocess.PIPE,
        stderr=stream,
        start_new_session=True,  # a Ctrl-C of the terminal is not for it
    )
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)  # the guard does the rest
        asked = True
        say("stopping: what is finished is kept; once more to stop at once")
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        guard.communicate(_FAREWELL)


def watch(driver: int, last_words: str) -> None:
    """Remember the children of `driver` until standard input ends or says farewell; then end those still there."""
    os.set_blocking(sys.stdin.fileno(), False)
    known: dict[tuple[int, float], psutil.Process] = {}
    parent = None
    while True:
        with contextlib.suppress(psutil.Error):
            parent = parent or psutil.Process(driver)  # once: its id may become another process's
            for child in parent.children(recursive=True):
                if child.pid != os.getpid():
                    known.setdefault((child.pid, child.create_time()), child)
        try:
            farewell = os.read(sys.stdin.fileno(), 1)
            break
        except BlockingIOError:
            time.sleep(_LOOK_SECONDS)
    if not farewell:
        with contextlib.suppress(OSError):  # the terminal may be gone too
            sys.stderr.write(f"{last_words}\n")
            sys.stderr.flush()
    _, left = psutil.wait_procs(known.values(), timeout=_GRACE_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
