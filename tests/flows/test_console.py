"""What a person sees while a run works: plain lines in a pipe, a live table on a terminal, no noise on either."""

import io
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from rnnsearch.flows import console as module
from rnnsearch.flows.console import RunConsole, clock, quiet
from rnnsearch.flows.steps import Step
from rnnsearch.flows.verbosity import Verbosity

SHOWN = """
import threading, time
from rnnsearch.flows.console import RunConsole
console = RunConsole(None)
with console.watching():
    console.say("hello")
    console.begin("tokenize/train", "it never ran in this store")
    console.progress("tokenize/train", "shard 1 of 5")
    time.sleep(0.6)
    console.end("tokenize/train", "Computed", "2.0 s")
console.say("good-bye")
"""

BUSY = """
import threading
from rnnsearch.flows.console import RunConsole
console = RunConsole(None)
def work(name):
    for number in range(200):
        console.begin(f"{name}/{number}")
        console.progress(f"{name}/{number}", "half")
        console.say(f"{name} says {number}")
        console.end(f"{name}/{number}", "Computed")
with console.watching():
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""

NOISY = """
import os, subprocess, sys
from pathlib import Path
from rnnsearch.flows.console import RunConsole, clock, quiet
from rnnsearch.flows.steps import Step
from rnnsearch.flows.verbosity import Verbosity
with quiet(Path({log!r})) as stream:
    console = RunConsole(stream)
    with console.watching():
        console.say("seen")
        print("python noise")
        print("python noise", file=sys.stderr)
        os.write(1, b"descriptor noise\\n")
        os.write(2, b"descriptor noise\\n")
        subprocess.run(["sh", "-c", "echo child noise; echo child noise >&2"], check=True)
print("result")
print("prose", file=sys.stderr)
"""


def _on_a_terminal(code: str) -> str:
    """What a terminal gets of a program, all control characters included."""
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and select.select([master], [], [], 60)[0]:
            try:
                shown += (piece := os.read(master, 65_536))
            except OSError:  # EIO is Linux's way to say that the other end is closed
                break
            if not piece:
                break
        process.kill()
    os.close(master)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def _lines(stream: io.StringIO) -> Sequence[str]:
    return stream.getvalue().splitlines()


def test_where_nobody_watches_each_event_is_one_plain_line() -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    with console.watching():
        console.say("Smoke: 35 stages")
        console.begin("gate", "it never ran in this store")
        console.end("gate", "Computed", "5 of 5 shards, 0.3 s")
        console.end("score", "Cached", "")
        console.end("train/rnnsearch", "Failed")
    assert _lines(stream) == [
        "Smoke: 35 stages",
        "  gate                             started: it never ran in this store",
        "+ gate                             Computed  5 of 5 shards, 0.3 s",
        "= score                            Cached",
        "! train/rnnsearch                  Failed",
    ]


def test_a_long_line_is_not_broken_where_nobody_watches() -> None:
    stream = io.StringIO()
    RunConsole(stream).end("gate", "Computed", "x" * 500)
    assert len(_lines(stream)) == 1


def test_text_in_brackets_is_no_markup() -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    console.say("[red]corpus[/red] [0]")
    console.end("gate[x]", "Computed", "[bold]")
    assert stream.getvalue().startswith("[red]corpus[/red] [0]\n+ gate[x]")
    assert "[bold]" in stream.getvalue()


class Time:
    """A clock that goes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def time_(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_progress_is_a_line_only_after_a_while(time_: Time) -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    console.begin("train/rnnsearch")
    console.progress("train/rnnsearch", "update 1 of 40")
    assert len(_lines(stream)) == 1
    time_.now += 30
    console.progress("train/rnnsearch", "update 2 of 40")
    assert _lines(stream)[1] == "  train/rnnsearch                  0:30: update 2 of 40"
    console.progress("train/rnnsearch", "update 3 of 40")
    assert len(_lines(stream)) == 2


def test_a_stage_that_tells_nothing_is_told_of_every_half_minute_with_the_time_left_of_the_run(
    time_: Time,
) -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    console.expect(["gate", "models", "train"], {"models": 100.0, "train": 50.0})
    console.end("gate", "Cached")
    console.begin("models")
    console.tick()
    assert len(_lines(stream)) == 2
    time_.now += 30
    console.tick()
    console.tick()
    assert _lines(stream)[2:] == [
        "  models                           0:30: starting",
        "  1 of 3 stages, 0:30, about 2:00 left",
    ]


def test_the_time_left_of_a_stage_is_by_its_own_pace_since_it_resumed(time_: Time) -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    console.expect(["train", "evaluate"], {"train": 9_999.0})
    console.begin("train")
    console.progress("train", Step("starting the workers"))
    time_.now += 10
    console.progress("train", Step("first updates", 500, 1_000))
    time_.now += 20
    console.progress("train", Step("update 600 of 1,000", 600, 1_000))
    console.tick()
    assert _lines(stream)[1:] == ["  train                            0:30, 1:20 left: update 600 of 1,000"]
    time_.now += 30
    console.tick()
    assert _lines(stream)[-1] == "  0 of 2 stages, 1:00, at least 3:20 left", "evaluate is not known"


def test_the_log_has_every_line_that_a_person_sees_and_the_progress_besides(time_: Time) -> None:
    stream, log = io.StringIO(), io.StringIO()
    console = RunConsole(stream, log)
    console.say("Smoke")
    console.begin("train", "not computed yet")
    console.progress("train", Step("curves: tensorboard --logdir x", lasting=True))
    time_.now += 30
    console.tick()
    console.end("train", "Computed")
    assert [line.partition(" ")[2] for line in _lines(log)] == _lines(stream)
    assert "curves: tensorboard --logdir x" in stream.getvalue()


def test_quiet_leaves_failures_and_verbose_adds_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {}
    for level in Verbosity:
        monkeypatch.setattr(module, "verbosity", lambda level=level: level)
        stream = io.StringIO()
        console = RunConsole(stream)
        console.say("Smoke")
        console.begin("gate")
        console.progress("gate", Step("shard 1 of 2", 1, 2))
        console.end("gate", "Failed")
        console.say("gate failed: why", important=True)
        said[level] = _lines(stream)
    assert said[Verbosity.QUIET] == ["! gate                             Failed", "gate failed: why"]
    assert len(said[Verbosity.NORMAL]) == 4
    assert "shard 1 of 2" in said[Verbosity.VERBOSE][2]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3_725, "1:02:05")]
)
def test_times_are_shown_as_on_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_at_80_columns_both_bars_are_whole_and_no_line_is_cut(time_: Time) -> None:
    console = RunConsole(io.StringIO())
    console.expect([f"stage{number}" for number in range(33)], {"stage32": 3_000.0})
    for number in range(26):
        console.end(f"stage{number}", "Computed")
    console.begin("train/rnnsearch")
    console.progress("train/rnnsearch", Step("first updates", 0, 1_400))
    time_.now += 65
    console.progress(
        "train/rnnsearch",
        Step(
            "update 870 of 1,400, train 3.100, dev 3.400 nats a token, dev BLEU 12.3, 340 target tokens/s",
            870,
            1_400,
        ),
    )
    narrow = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    narrow.print(console)
    shown = narrow.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in shown)
    assert "26 of 33 stages, 1:05, at least 50:00 left" in shown[0]
    assert shown[1].startswith("› train/rnnsearch")
    assert "62%, 1:05, 0:40 left" in shown[2]
    text = " ".join(line.strip() for line in shown[3:])
    assert (
        "update 870 of 1,400, train 3.100, dev 3.400 nats a token, dev BLEU 12.3, 340 target tokens/s" in text
    )


def test_events_from_many_threads_lose_no_line() -> None:
    stream = io.StringIO()
    console = RunConsole(stream)

    def work(name: str) -> None:
        for number in range(50):
            console.begin(f"{name}{number}")
            console.end(f"{name}{number}", "Computed")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(_lines(stream)) == 4 * 50 * 2


def test_on_a_terminal_a_stage_at_work_is_shown_live_and_its_end_stays() -> None:
    shown = _on_a_terminal(SHOWN)
    assert "› tokenize/train" in shown
    assert "shard 1 of 5" in shown
    assert "started" not in shown
    lines = [
        line for line in shown.replace("\r", "\n").split("\n") if "tokenize/train" in line and "+" in line
    ]
    assert len(lines) == 1
    assert "Computed  2.0 s" in lines[0]
    assert shown.rstrip().endswith("good-bye")
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor comes back"


def test_on_a_terminal_many_threads_do_not_wait_for_one_another_for_ever() -> None:
    shown = _on_a_terminal(BUSY)
    for name in "abcd":
        assert f"{name} says 199" in shown


def test_noise_of_python_of_descriptors_and_of_children_goes_to_the_log_and_not_to_a_pipe(
    tmp_path: Path,
) -> None:
    log = tmp_path / "logs" / "run.log"
    done = subprocess.run(
        [sys.executable, "-c", NOISY.format(log=str(log))], capture_output=True, text=True, check=True
    )
    assert done.stdout == "result\n"
    assert done.stderr == "seen\nprose\n"
    noise = log.read_text()
    assert [noise.count(f"{kind} noise") for kind in ("python", "descriptor", "child")] == [2, 2, 2]


def test_noise_goes_to_the_log_and_not_to_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    shown = _on_a_terminal(NOISY.format(log=str(log)))
    assert "noise" not in shown
    assert "seen" in shown
    assert shown.endswith("result\r\nprose\r\n")
    assert log.read_text().count("noise") == 6


def test_after_an_error_the_descriptors_are_what_they_were(tmp_path: Path) -> None:
    before = os.fstat(1), os.fstat(2), len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(RuntimeError, match="inside"), quiet(tmp_path / "run.log"):
        raise RuntimeError("inside")
    after = os.fstat(1), os.fstat(2), len(list(Path("/dev/fd").iterdir()))
    assert [(state.st_dev, state.st_ino) for state in before[:2]] == [
        (state.st_dev, state.st_ino) for state in after[:2]
    ]
    assert before[2] == after[2]


def test_a_second_run_of_the_same_second_appends_to_the_log(tmp_path: Path) -> None:
    for text in ("first", "second"):
        code = f"print({text!r})"
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys\nfrom pathlib import Path\nfrom rnnsearch.flows.console import quiet\n"
                f"with quiet(Path({str(tmp_path / 'run.log')!r})):\n    {code}",
            ],
            check=True,
        )
    assert (tmp_path / "run.log").read_text() == "first\nsecond\n"
