"""The command line as such: its commands and options, its manners, and that it starts without the heavy parts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

from rnnsearch.flows.cli import app

if TYPE_CHECKING:
    from conftest import Command

COMMANDS = {
    "init": "profile text languages title",
    "run": "profile set store",
    "plan": "stage profile set store json",
    "runs": "run store tag untag json",
    "lineage": "what store run down row used-by json",
    "diff": "first second store sentences json",
    "translate": "file store run system model search nbest scores attention replace-unknown serve port",
    "export": "folder store run system as of",
    "import": "source run store",
    "report": "run store to",
    "verify": "store repair json",
    "gc": "store keep-last apply json",
    "adopt": "stage profile set store why undo",
    "doctor": "store json",
    "deploy": "profile set store cron timezone name pool",
}
HEAVY = ("torch", "prefect", "ray", "pyarrow", "matplotlib", "sacrebleu", "fastapi")


def _names(command: object) -> set[str]:
    """The arguments and long options of a command."""
    params = command.params  # type: ignore[attr-defined]
    options = {
        option.removeprefix("--") for param in params for option in param.opts if option.startswith("--")
    }
    arguments = {param.name for param in params if param.param_type_name == "argument"}
    return (options | arguments) - {"help"}


def test_commands_and_options_are_these_and_scripts_may_rely_on_them() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    found = {name: _names(command) for name, command in commands.items()}
    for name, options in COMMANDS.items():
        assert set(options.split()) <= found[name], name
    new = {name: found[name] - set(COMMANDS.get(name, "").split()) for name in found}
    assert {name: extra for name, extra in new.items() if extra or name not in COMMANDS} == {}, (
        "list them here"
    )


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert command.help, name
        for param in command.params:
            assert getattr(param, "help", None), f"{name} {param.name}"


@pytest.mark.parametrize("name", ["", "run", "translate"])
def test_help_is_told_on_standard_output(rnnsearch: "Command", name: str) -> None:
    done = rnnsearch(*name.split(), "--help")
    assert done.returncode == 0
    assert "Usage: rnnsearch" in done.stdout
    assert done.stderr == ""


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    code = f"import sys, rnnsearch.flows.cli; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_unknown_command_or_option_is_refused_with_exit_code_2_on_standard_error(
    rnnsearch: "Command",
) -> None:
    for arguments in (("trian",), ("run", "--profil", "smoke"), ("translate", "--nbest", "0")):
        done = rnnsearch(*arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert "Error" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_store_is_where_the_environment_says_unless_an_option_says_otherwise(
    rnnsearch: "Command", tmp_path: Path
) -> None:
    by_environment = rnnsearch(
        "plan", "-p", "smoke", "download/lines-en", RNNSEARCH_STORE=str(tmp_path / "one"), cwd=tmp_path
    )
    assert f"store {tmp_path / 'one'}" in by_environment.stdout
    by_option = rnnsearch(
        *("plan", "-p", "smoke", "download/lines-en", "--store", tmp_path / "two"),
        RNNSEARCH_STORE=str(tmp_path / "one"),
        cwd=tmp_path,
    )
    assert f"store {tmp_path / 'two'}" in by_option.stdout
    by_default = rnnsearch("plan", "-p", "smoke", "download/lines-en", cwd=tmp_path)
    assert by_default.returncode == 0
    assert ", store .rnnsearch\n" in by_default.stdout
    assert list(tmp_path.iterdir()) == [], "a plan makes no store"


def test_a_reader_that_goes_away_ends_the_program_quietly(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("rnnsearch")
    environment = {**os.environ, "RNNSEARCH_STORE": str(tmp_path / "store"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [str(program), "plan", "-p", "wmt14", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before anything was written
        said = process.stderr.read().decode()
    assert process.returncode == 141
    assert said == ""


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nothing", "nothing"),
        ("file", "is a file; a store is a folder"),
        ("other", "is no store: it holds notes.txt"),
        ("later", "has layout 99, this version of rnnsearch knows"),
        ("gopher://x", "is no place for a store; give a folder or s3://bucket/prefix"),
    ],
)
def test_what_is_no_store_is_one_message_and_exit_code_2(
    rnnsearch: "Command", tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / "file").touch()
    for name, text in (("other/notes.txt", "mine"), ("later/store.json", json.dumps({"layout": 99}))):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    for command in (("runs",), ("report",), ("plan", "-p", "smoke")):
        if (place, command[0]) == ("nothing", "plan"):  # it may look where nothing is yet
            continue
        done = rnnsearch(*command, "--store", place, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("rnnsearch: ")
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "nothing").exists(), "looking makes nothing"
    assert list((tmp_path / "other").iterdir()) == [tmp_path / "other" / "notes.txt"]
