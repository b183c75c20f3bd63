"""The command line as such: its commands and options, its manners, and that it starts without the heavy parts."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command
from written_run import write_run

from rnnsearch.flows.cli import app
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command

COMMANDS = {
    "init": "profile text languages title json",
    "data": "stage run rows store json",
    "run": "profile set store until json",
    "plan": "stage profile set store json",
    "fetch": "source again profile set store json",
    "lock": "update profile set store json",
    "runs": "run store tag untag json",
    "lineage": "what store run down row used-by code json",
    "diff": "first second store sentences json",
    "translate": "file store run system model search nbest scores attention replace-unknown serve port json",
    "export": "folder store run system as of json",
    "import": "source run store json",
    "report": "run store to json",
    "verify": "store repair json",
    "gc": "store keep-last apply json",
    "adopt": "stage profile set store why undo json",
    "doctor": "store json",
    "deploy": "profile set store cron timezone name pool json",
}
HEAVY = ("torch", "prefect", "ray", "pyarrow", "matplotlib", "sacrebleu", "fastapi")


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and two profiles, one of them broken."""
    folder = tmp_path_factory.mktemp("completions")
    write_run(folder / "store")
    (folder / "mine.toml").write_text("", encoding="utf-8")
    (folder / "broken.toml").write_text("= =", encoding="utf-8")
    return folder


def _names(command: object) -> set[str]:
    """The arguments and long options of a command."""
    params = command.params  # type: ignore[attr-defined]
    options = {
        option.removeprefix("--") for param in params for option in param.opts if option.startswith("--")
    }
    arguments = {param.name for param in params if param.param_type_name == "argument"}
    return (options | arguments) - {"help", "quiet", "verbose"}


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


@pytest.mark.parametrize("name", ["--help", "run --help", "translate -h", "-h"])
def test_help_is_told_on_standard_output(rnnsearch: "Command", name: str) -> None:
    done = rnnsearch(*name.split())
    assert done.returncode == 0
    assert "Usage: rnnsearch" in done.stdout
    assert done.stderr == ""


def test_the_version_is_that_of_the_package(rnnsearch: "Command") -> None:
    done = rnnsearch("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"rnnsearch {version('rnnsearch')}\n", "")


def test_every_command_can_say_less_or_more_but_not_both(
    rnnsearch: "Command", own_profile: Path, tmp_path: Path
) -> None:
    for command in get_command(app).commands.values():  # type: ignore[attr-defined]
        options = {option for param in command.params for option in param.opts}
        assert {"-q", "--quiet", "-v", "--verbose"} <= options, command.name
    init = ("init", tmp_path / "new.toml")
    assert rnnsearch(*init, "-q", cwd=tmp_path).stderr == ""
    (tmp_path / "new.toml").unlink()
    assert "look through the file" in rnnsearch(*init, cwd=tmp_path).stderr
    quiet = rnnsearch(*init, "-q", cwd=tmp_path)
    assert quiet.returncode == 2
    assert quiet.stderr.startswith(f"rnnsearch: {tmp_path / 'new.toml'} is there already")
    verbose = rnnsearch(*init, "-v", cwd=tmp_path)
    assert verbose.returncode == 2
    assert verbose.stderr.startswith("Traceback")
    assert verbose.stderr.splitlines()[-1].startswith("rnnsearch: ")
    both = rnnsearch(*init, "-q", "-v", cwd=tmp_path)
    assert both.returncode == 2
    assert "exclude each other" in both.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rnnsearch tra", {"translate"}),
        ("rnnsearch run --profile ", {"demo", "smoke", "wmt14", "mine.toml"}),
        ("rnnsearch plan -p smoke train/", {"train/rnnencdec", "train/rnnsearch"}),
        ("rnnsearch adopt -p smoke shortl", {"shortlist"}),
        ("rnnsearch run -p smoke --set systems.rnnsearch.train.upd", {"systems.rnnsearch.train.updates="}),
        ("rnnsearch run -p smoke --set corpora.other.lic", {"corpora.other.licence="}),
        ("rnnsearch translate --search beam", {"beam="}),
        ("rnnsearch translate --store store --system rnns", {"rnnsearch"}),
        (
            "rnnsearch export --store store --as text --of shortlist:",
            {"shortlist:source", "shortlist:target"},
        ),
        ("rnnsearch run -p absent --set sea", set()),
        ("rnnsearch plan -p broken.toml ", set()),
        ("rnnsearch runs --store absent ", set()),
    ],
)
def test_a_shell_is_offered_what_may_come_next(
    rnnsearch: "Command", completions: Path, line: str, offered: set[str]
) -> None:
    cword = str(len(line.split(" ")) - 1)
    done = rnnsearch(cwd=completions, _RNNSEARCH_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=cword)
    assert done.stderr == ""
    found = set(done.stdout.split())
    assert offered <= found
    assert "mine.toml" in offered or found == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(rnnsearch: "Command", completions: Path, shell: str) -> None:
    done = rnnsearch(
        cwd=completions,
        _RNNSEARCH_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="rnnsearch plan -p smoke train/",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert done.stderr == ""
    assert {"train/rnnencdec", "train/rnnsearch"} <= set(re.findall(r"[^\s\"']+", done.stdout))


def test_a_shell_is_offered_the_runs_of_the_store(rnnsearch: "Command", completions: Path) -> None:
    (run,) = [each.id for each in Store.open(completions / "store").runs.list()]
    line = "rnnsearch report --store store "
    done = rnnsearch(cwd=completions, _RNNSEARCH_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="4")
    assert done.stdout.split() == [run]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_can_be_shown(rnnsearch: "Command", shell: str) -> None:
    done = rnnsearch(_RNNSEARCH_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert f"complete_{shell}" in done.stdout


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    code = f"import sys, rnnsearch.flows.cli; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_runs_are_listed_with_their_bleu_updates_and_duration(
    rnnsearch: "Command", completions: Path
) -> None:
    listed = rnnsearch("runs", "--store", completions / "store").stdout.splitlines()
    assert listed[0].split() == [
        "run",
        "profile",
        "state",
        "stages",
        "cached",
        "took",
        "BLEU",
        "updates",
        "tags",
    ]
    (found,) = json.loads(rnnsearch("runs", "--store", completions / "store", "--json").stdout)
    assert found["updates"] == 100
    assert 0 < found["bleu"] < 100
    assert listed[1].split()[-2:] == [f"{found['bleu']:.2f}", "100"]


def test_what_lists_and_plans_imports_nothing_that_trains() -> None:
    modules = (
        "import rnnsearch.flows.command_inspect, rnnsearch.flows.command_plan, rnnsearch.flows.completion"
    )
    code = f"import sys; {modules}; print(*[name for name in ('torch', 'prefect', 'ray') if name in sys.modules])"
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
