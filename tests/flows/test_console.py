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

from rnnsearch.flows import console as module
from rnnsearch.flows.console import RunConsole, quiet

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
from rnnsearch.flows.console import RunConsole, quiet
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


def test_progress_is_a_line_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    console.begin("train/rnnsearch")
    console.progress("train/rnnsearch", "update 1 of 40")
    assert len(_lines(stream)) == 1
    monkeypatch.setattr(module, "_LINE_SECONDS", 0.0)
    console.progress("train/rnnsearch", "update 2 of 40")
    assert _lines(stream)[1] == "  train/rnnsearch                  update 2 of 40"


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
    assert "›  tokenize/train" in shown
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
