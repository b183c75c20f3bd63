"""What a person sees while a run works: a live table on a terminal, plain lines elsewhere. The noise goes to a file.

Ray, Prefect and their processes write to file descriptors 1 and 2, not only through Python. So both descriptors are
pointed at the log file while a run works, and this console writes to a copy of the real one.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rnnsearch.storage.errors import explained

_LINE_SECONDS = 15.0  # between two progress lines of a stage where nobody watches a terminal


@dataclass
class _Row:
    state: str
    note: str
    began: float
    said: float


class RunConsole:
    """Progress of the stages of one run. Methods may be called from any thread."""

    def __init__(self, stream: IO[str] | None) -> None:
        """Write to `stream`, live if it is a terminal; to standard error without one."""
        self._console = Console(file=stream, stderr=stream is None, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Show the live display inside this block."""
        if not self._console.is_terminal:
            yield
            return
        live = Live(
            self,
            console=self._console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,  # what Python prints is noise, and goes where `quiet` sends it
            redirect_stderr=False,
        )
        try:
            with live as self._live:
                yield
        finally:
            self._live = None

    def say(self, text: str) -> None:
        """One line of prose, above the live display."""
        self._print(text)

    def begin(self, stage: str, note: str = "") -> None:
        """A stage starts to compute."""
        now = time.monotonic()
        with self._lock:
            self._rows[stage] = _Row("running", note, now, now)
        if self._live is None:
            self._print(f"  {stage:<32} started{': ' + note if note else ''}")

    def progress(self, stage: str, note: str) -> None:
        """A stage got further; `note` says how far."""
        now = time.monotonic()
        with self._lock:
            row = self._rows.setdefault(stage, _Row("running", note, now, now))
            row.note = note
            due = self._live is None and now - row.said >= _LINE_SECONDS
            if due:
                row.said = now
        if due:
            self._print(f"  {stage:<32} {note}")

    def end(self, stage: str, state: str, note: str = "") -> None:
        """A stage is over: `state` is Cached, Computed, Failed or Stopped."""
        with self._lock:
            self._rows.pop(stage, None)
        mark = {"Cached": "=", "Computed": "+", "Failed": "!"}.get(state, " ")
        self._print(f"{mark} {stage:<32} {state:<9} {note}".rstrip())

    def _print(self, line: str) -> None:
        """Print without the lock: the live display draws itself meanwhile, and asks for it."""
        self._console.print(Text(line))

    def __rich__(self) -> Group:
        """The live part: one line for each stage that is at work."""
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        with self._lock:
            for stage, row in self._rows.items():
                table.add_row(Text("›"), Text(stage), Text(f"{now - row.began:6.0f} s"), Text(row.note))
        return Group(table)


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[IO[str]]:
    """Send everything that this process and its children print into `log`; yield the real standard error.

    Raises StoreError where `log` cannot be written.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = os.dup(1), os.dup(2)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    except OSError as error:
        raise explained(error, f"write the log {log}") from error
    real = os.fdopen(os.dup(err), "w", encoding="utf-8", errors="replace", buffering=1)
    try:
        yield real
    finally:
        real.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        real.close()
