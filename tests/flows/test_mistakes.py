"""Nobody's mistake ends in a traceback: every option of every command is given what it cannot use."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command
from written_run import write_run

from rnnsearch.flows import cli
from rnnsearch.flows.cli import app, main

LONG = "x" * 300  # longer than a file's name may be
NO_STORES = ("file", "other", "file/below", "gopher://x", "s3://", LONG, "/proc/self/store")
NO_RUNS = ("absent", "", "../../etc", LONG, "*", "%s")
NO_PROFILES = (
    "absent",
    "absent.toml",
    "folder.toml",
    "binary.toml",
    "",
    "file/below.toml",
    LONG,
    f"{LONG}.toml",
)
NO_SETTINGS = (
    *("=", "beam", "search..beam=1", "search.beam.width=1", "a.b.c.d=1"),
    *("search.beam=inf", "search.beam=1e400", "search.beam=true", f"search.beam={10**30}", "search=[1]"),
    *("systems=3", "systems.rnnsearch=3", "sources.x={}", "holdout=1979-05-27", "title={}", "select=nan"),
    *(
        "corpora.lines.format.format=pdf",
        "placement.train_workers=1000000000",
        f"search.beam={'9' * 5000}",
        f"search.beam=0x{'f' * 5000}",
        f"search.beam=[0x{'f' * 5000}]",
    ),
    *("sources.lines-en.url='http://['", 'sources.lines-en.url="a\\u0000b"', "systems.rnnsearch.continues=x"),
)
ABSURD = ("-1", str(10**30), "x", "1.5", "nan", "inf", "")
ANY = ()  # whatever text there is, it can be used


class Mistakes(NamedTuple):
    """What a command cannot use, by parameter, and the arguments with which it works otherwise."""

    values: Mapping[str, Sequence[str]]
    usual: Sequence[str] = ()
    code: int = 2


IN_STORE = ("--store", "store")
COMMANDS = {
    "init": Mistakes(
        {
            "profile": ("folder.toml", "file/below.toml", "text.txt", "/proc/self/x.toml", f"{LONG}.toml"),
            "text": ("absent file", "folder.toml file", "binary.toml file", "file file", f"{LONG} file"),
            "languages": ANY,  # codes are looked up by the profile
            "title": ANY,
        },
        ("new.toml",),
    ),
    "run": Mistakes(
        {
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": NO_STORES,
            "until": ("absent", "", LONG),
        },
        ("-p", "smoke"),
    ),
    "fetch": Mistakes(
        {
            "source": ("absent", "", LONG),
            "again": ("absent", ""),
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": NO_STORES,
        },
        ("-p", "smoke", "--store", "planned"),
    ),
    "lock": Mistakes(
        {
            "update": ("absent", ""),
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": NO_STORES,
        },
        ("-p", "smoke", "--store", "planned"),
    ),
    "data": Mistakes(
        {
            "stage": ("absent", "", LONG),
            "run": NO_RUNS,
            "rows": ("0", *ABSURD),
            "store": ("absent", *NO_STORES),
        },
        IN_STORE,
    ),
    "plan": Mistakes(
        {
            "stage": ("absent", "", LONG),
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": NO_STORES[:-1],  # it makes none, so that one may be where none can be made
        },
        ("-p", "smoke", "--store", "planned"),
    ),
    "runs": Mistakes(
        {"run": NO_RUNS, "store": ("absent", *NO_STORES), "tag": ("x",), "untag": ("x",)}, IN_STORE
    ),
    "lineage": Mistakes({"what": NO_RUNS, "run": NO_RUNS, "store": ("absent", *NO_STORES)}, IN_STORE),
    "diff": Mistakes(
        {"first": NO_RUNS, "second": NO_RUNS, "store": ("absent", *NO_STORES), "sentences": ABSURD},
        IN_STORE,
    ),
    "translate": Mistakes(
        {
            "file": ("absent.en", "folder.toml", "", f"{LONG}.en", "file/below", "binary.toml"),
            "store": ("absent", *NO_STORES),
            "run": NO_RUNS,
            "system": ("absent", ""),
            "model": ("absent", "file", "folder.toml", "hollow", LONG),
            "search": ("beam", "beam=inf", "preset=x", "=", "n_best=x", "a.b=1"),
            "n_best": ("0", *ABSURD),
            "attention": ("absent/a.html", "a.gif", "folder.html", "file/a.html", "", f"{LONG}.html"),
            "replace_unknown": ("absent.tsv", "folder.toml", "binary.toml", "file/x", LONG, "words.tsv"),
            "port": ("99999", *ABSURD),
        },
        (*IN_STORE, "text.txt"),
    ),
    "export": Mistakes(
        {
            "folder": ("folder.toml", "file", "file/below", "/proc/self/x", LONG),
            "store": ("absent", *NO_STORES),
            "run": NO_RUNS,
            "system": ("absent", ""),
            "as_": ("onnx", ""),
            "of": ("absent:x", "train/rnnsearch:absent", "", ":"),
        },
        (*IN_STORE, "new"),
    ),
    "import_": Mistakes(
        {"source": ("absent", *NO_STORES), "run": NO_RUNS, "store": NO_STORES}, ("--store", "imported")
    ),
    "report": Mistakes(
        {
            "run": NO_RUNS,
            "store": ("absent", *NO_STORES),
            "to": ("file", "file/below", "/proc/self/x", LONG),
        },
        IN_STORE,
    ),
    "verify": Mistakes({"store": ("absent", *NO_STORES)}),
    "gc": Mistakes({"store": ("absent", *NO_STORES), "keep_last": ABSURD}, IN_STORE),
    "adopt": Mistakes(
        {
            "stage": ("absent", "", "gate"),
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": ("absent", *NO_STORES),
            "why": ("",),
        },
        (*IN_STORE, "-p", "smoke"),
    ),
    "doctor": Mistakes({"store": NO_STORES}, code=1),  # it says what it finds
    "deploy": Mistakes(
        {
            "profile": NO_PROFILES,
            "override": NO_SETTINGS,
            "store": ANY,  # it is another machine's
            "cron": ("x", "", "61 * * * *", "* * * * * * * *", LONG),
            "timezone": ("x", "", "../../etc/passwd", "America", LONG),
            "name": ANY,
            "pool": ANY,
        },
        ("-p", "smoke"),
    ),
}


def _cases() -> Iterator[tuple[str, str, str]]:
    for command, mistakes in COMMANDS.items():
        for name, values in mistakes.values.items():
            for value in values:
                yield command, name, value


def _parameters(command: str) -> Mapping[str, object]:
    params = get_command(app).commands[command.removesuffix("_")].params  # type: ignore[attr-defined]
    return {param.name: param for param in params if not getattr(param, "is_flag", False)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run, and beside it everything that is not what a command asks for."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_run(folder / "store")
    for name in ("folder.toml", "folder.html", "other", "hollow"):
        (folder / name).mkdir()
    (folder / "other/notes").write_text("mine", encoding="utf-8")
    (folder / "hollow/text.json").write_text("{}", encoding="utf-8")
    (folder / "file").write_text("one\n", encoding="utf-8")
    (folder / "text.txt").write_text("a grey cat\n", encoding="utf-8")
    (folder / "words.tsv").write_text("a word without a tab\n", encoding="utf-8")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00\xff\n")
    return folder


def test_every_option_that_takes_a_value_is_in_the_table() -> None:
    names = {name.removesuffix("_") for name in COMMANDS}
    assert names == set(get_command(app).commands)  # type: ignore[attr-defined]
    for command, mistakes in COMMANDS.items():
        assert set(mistakes.values) == set(_parameters(command)), command


@pytest.mark.parametrize(("command", "name", "value"), list(_cases()), ids=lambda text: text[:40])
def test_a_mistake_is_one_message_and_exit_code_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    name: str,
    value: str,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.delenv("RNNSEARCH_STORE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cli, "ENVIRONMENT", {})  # this process's stays as it is
    before = sorted(folder.iterdir())
    param = _parameters(command)[name]
    given = value.split(" ") if command == "init" and name == "text" else [value]
    usual = list(COMMANDS[command].usual)
    if param.param_type_name == "argument":  # type: ignore[attr-defined]
        arguments = _in_place(command, name, value, usual)
    else:
        arguments = [*_without(usual, param.opts), param.opts[0], *given]  # type: ignore[attr-defined]
        arguments += _others(command)
    monkeypatch.setattr(sys, "argv", ["rnnsearch", command.removesuffix("_"), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capfd.readouterr()
    assert "Traceback" not in told.err + told.out
    assert ended.value.code == COMMANDS[command].code, told.err
    if ended.value.code == 2:
        assert told.out == ""
        assert told.err.startswith(("rnnsearch: ", "Usage: ")), told.err
        assert len(told.err) < 2_500, told.err
    assert set(folder.iterdir()) - set(before) <= {folder / "planned"}


def _without(usual: Sequence[str], options: Sequence[str]) -> list[str]:
    """The usual arguments less an option and its value."""
    for option in options:
        if option in usual:
            at = list(usual).index(option)
            return [*usual[:at], *usual[at + 2 :]]
    return list(usual)


def _in_place(command: str, name: str, value: str, usual: Sequence[str]) -> list[str]:
    """The value as the argument `name`; those before it are what they should be."""
    options = list(usual) if command != "init" else []
    if command in ("translate", "export"):
        options = list(usual[:-1])
    if command == "diff":
        return [*options, *(["absent", value] if name == "second" else [value, "absent"])]
    return [*options, "--", value] if value.startswith("-") else [*options, value]


def _others(command: str) -> list[str]:
    """Arguments that a command needs besides its options."""
    return {"lineage": ["gate"], "diff": ["a", "b"], "adopt": ["gate"], "import_": ["store"]}.get(command, [])
