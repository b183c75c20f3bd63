"""What a person sees while a run works: two bars on a terminal, plain lines elsewhere. The noise goes to a file.

Ray, Prefect and their processes write to file descriptors 1 and 2, not only through Python. So both descriptors are
pointed at the log file while a run works, and this console writes to a copy of the real one.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rnnsearch.flows.steps import Step
from rnnsearch.flows.verbosity import Verbosity, verbosity
from rnnsearch.storage.errors import explained

_LINE_SECONDS = 30.0  # between two progress lines of a stage, in the log and where nobody watches a terminal
_BAR = 20  # characters


@dataclass
class _Row:
    state: str
    step: Step
    began: float
    said: float
    first_done: float = 0  # of a training that resumes: what was done before
    first_seen: float = 0

    def advance(self, step: Step, now: float) -> None:
        """Note how far the stage is."""
        if step.total and not self.step.total:
            self.first_done, self.first_seen = step.done, now
        self.step = step

    def left(self, now: float) -> float | None:
        """Seconds until the end, at the pace so far; None where it is not known."""
        done = self.step.done - self.first_done
        if not self.step.total or done <= 0 or now <= self.first_seen:
            return None
        return (self.step.total - self.step.done) * (now - self.first_seen) / done


class RunConsole:
    """Progress of the stages of one run. Methods may be called from any thread."""

    def __init__(self, stream: IO[str] | None, log: IO[str] | None = None) -> None:
        """Write to `stream`, live if it is a terminal; to standard error without one. `log` gets every line too."""
        self._console = Console(file=stream, stderr=stream is None, highlight=False, soft_wrap=True)
        self._log = log
        self._live: Live | None = None
        self._rows: dict[str, _Row] = {}
        self._stages: Sequence[str] = ()
        self._ended: set[str] = set()
        self._seconds: Mapping[str, float] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def expect(self, stages: Sequence[str], seconds: Mapping[str, float]) -> None:
        """The stages of the run, and how long they will take, where that is known."""
        with self._lock:
            self._stages, self._seconds, self._began = stages, seconds, time.monotonic()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Show the live display inside this block, and a line for each stage at work now and then."""
        with contextlib.ExitStack() as stack:
            if self._console.is_terminal and verbosity() is not Verbosity.QUIET:
                live = Live(
                    self,
                    console=self._console,
                    refresh_per_second=4,
                    transient=True,
                    redirect_stdout=False,  # what Python prints is noise, and goes where `quiet` sends it
                    redirect_stderr=False,
                )
                self._live = stack.enter_context(live)
            stack.callback(setattr, self, "_live", None)
            ended = threading.Event()
            ticking = threading.Thread(target=self._tick_until, args=(ended,), daemon=True)
            ticking.start()
            stack.callback(ticking.join)
            stack.callback(ended.set)
            yield

    def say(self, text: str, *, important: bool = False) -> None:
        """One line of prose, above the live display; an important one even if the user wants it quiet."""
        self._print(text, important=important)

    def begin(self, stage: str, note: str = "") -> None:
        """A stage starts to compute; `note` says why."""
        now = time.monotonic()
        with self._lock:
            self._rows[stage] = _Row("running", Step("starting"), now, now)
        if self._live is None or verbosity() is Verbosity.VERBOSE:
            self._print(f"  {stage:<32} started{': ' + note if note else ''}")

    def progress(self, stage: str, step: str | Step) -> None:
        """A stage got further."""
        now = time.monotonic()
        found = Step(step) if isinstance(step, str) else step
        if found.lasting:
            self._print(f"  {stage:<32} {found.text}")
            return
        with self._lock:
            row = self._rows.setdefault(stage, _Row("running", found, now, now))
            row.advance(found, now)
            due = now - row.said >= _LINE_SECONDS or verbosity() is Verbosity.VERBOSE
        if due:
            self._tell(stage, row, now)

    def end(self, stage: str, state: str, note: str = "") -> None:
        """A stage is over: `state` is Cached, Computed, Failed or Stopped."""
        with self._lock:
            self._rows.pop(stage, None)
            self._ended.add(stage)
        mark = {"Cached": "=", "Computed": "+", "Failed": "!"}.get(state, " ")
        self._print(f"{mark} {stage:<32} {state:<9} {note}".rstrip(), important=state == "Failed")

    def tick(self) -> None:
        """Tell of the stages that were not told of for a while, and of the run."""
        now = time.monotonic()
        with self._lock:
            due = [item for item in self._rows.items() if now - item[1].said >= _LINE_SECONDS]
            run = self._run_line(now)
        for stage, row in due:
            self._tell(stage, row, now)
        if due and run:
            self._print(f"  {run}", passing=True)

    def _tick_until(self, ended: threading.Event) -> None:
        while not ended.wait(_LINE_SECONDS / 4):
            self.tick()

    def _tell(self, stage: str, row: _Row, now: float) -> None:
        row.said = now
        left = row.left(now)
        times = clock(now - row.began) + (f", {clock(left)} left" if left is not None else "")
        self._print(f"  {stage:<32} {times}: {row.step.text}", passing=True)

    def _print(self, line: str, *, important: bool = False, passing: bool = False) -> None:
        """Print without the lock: the live display draws itself meanwhile, and asks for it.

        A passing line says what the live display shows, and goes to the log only where there is one.
        """
        if self._log is not None:
            with contextlib.suppress(
                OSError, ValueError
            ):  # a full disk, a log that is closed: no reason to stop
                self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
                self._log.flush()
        if (verbosity() is Verbosity.QUIET and not important) or (passing and self._live is not None):
            return
        self._console.print(Text(line))

    def _run_line(self, now: float) -> str:
        """How far the run is: stages, time so far, time left."""
        if not self._stages:
            return ""
        left, unknown = 0.0, False
        for stage in self._stages:
            if stage in self._ended:
                continue
            row, expected = self._rows.get(stage), self._seconds.get(stage)
            found = None if row is None else row.left(now)
            if found is None and expected is not None:
                found = max(0.0, expected - (0.0 if row is None else now - row.began))
            left, unknown = left + (found or 0.0), unknown or found is None
        ended = sum(stage in self._ended for stage in self._stages)
        line = f"{ended} of {len(self._stages)} stages, {clock(now - self._began)}"
        if unknown:
            return f"{line}, at least {clock(left)} left" if left >= 1 else line
        return f"{line}, about {clock(left)} left"

    def __rich__(self) -> Group:
        """The live part: a bar for the run and one for each stage that is at work."""
        now = time.monotonic()
        parts: list[RenderableType] = []
        with self._lock:
            if run := self._run_line(now):
                ended = sum(stage in self._ended for stage in self._stages)
                parts.append(_bar(ended, len(self._stages), run))
            for stage, row in self._rows.items():
                left, step = row.left(now), row.step
                times = clock(now - row.began) + (f", {clock(left)} left" if left is not None else "")
                parts.append(Text(f"› {stage}"))
                if step.total:
                    parts.append(_bar(step.done, step.total, f"{step.done / step.total:4.0%}, {times}"))
                    parts.append(Padding(Text(step.text), (0, 0, 0, 2)))
                else:
                    parts.append(Padding(Text(f"{times}  {step.text}"), (0, 0, 0, 2)))
        return Group(*parts)


def _bar(done: float, total: float, text: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(""), ProgressBar(total, min(done, total), width=_BAR), Text(text))
    return table


def clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:30` or `3:04:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
