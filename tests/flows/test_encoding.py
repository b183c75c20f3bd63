"""Text is UTF-8 whatever the locale: in files, on standard output and on standard error."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from written_run import write_run

if TYPE_CHECKING:
    from conftest import Command

ROOT = Path(__file__).parents[2]
PARTS = ("flows", "model", "pipeline", "storage")
LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _text_mode(call: ast.Call) -> bool:
    """Whether a call opens a file of a `Path`, or a file by name, as text."""
    mode = next((keyword.value for keyword in call.keywords if keyword.arg == "mode"), None)
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("read_text", "write_text"):  # the encoding may stand without its name
            return len(call.args) < {"read_text": 1, "write_text": 2}[call.func.attr]
        mode = mode or (call.args[0] if call.args else None)
        of_path = not call.args or (isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rwxabt+"))
        known = {each.arg for each in call.keywords} <= {"mode", "buffering", "encoding", "errors", "newline"}
        if call.func.attr != "open" or not of_path or not known:
            return False
    elif isinstance(call.func, ast.Name) and call.func.id == "open":
        mode = mode or (call.args[1] if len(call.args) > 1 else None)
    else:
        return False
    return not (isinstance(mode, ast.Constant) and "b" in str(mode.value))


def _without_encoding(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and _text_mode(node)
            and "encoding" not in {keyword.arg for keyword in node.keywords}
        ):
            yield node.lineno


def test_every_text_file_is_opened_with_an_encoding() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        for line in _without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("bad", ["p.read_text()", "p.open()", "p.open('a')", "open(p)", "p.write_text(x)"])
def test_a_file_that_is_opened_without_one_is_seen(bad: str) -> None:
    assert list(_without_encoding(bad)) == [1]
    good = bad.replace(")", ", encoding='utf-8')").replace("(, ", "(")
    assert list(_without_encoding(good)) == []


@pytest.mark.parametrize(
    "good",
    [
        *("p.open('rb')", "open(p, 'wb')", "Store.open(where, create=False)"),
        *("p.write_text(x, 'ascii')", "p.read_text('utf-8')"),
    ],
)
def test_what_names_an_encoding_or_is_no_text_is_left_alone(good: str) -> None:
    assert list(_without_encoding(good)) == []


@pytest.mark.slow
def test_a_report_is_drawn_where_the_locale_knows_ascii_only(rnnsearch: "Command", tmp_path: Path) -> None:
    write_run(tmp_path / "store")
    folder = tmp_path / "é"
    done = rnnsearch("report", "--store", tmp_path / "store", "--to", folder, **LOCALE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'report.html'}\n"
    assert "près du" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_plan_in_words_of_any_language_is_printed_where_the_locale_knows_ascii_only(
    rnnsearch: "Command", own_profile: Path
) -> None:
    title = "title=Un été à Łódź"
    done = rnnsearch("plan", "-p", own_profile, "--set", title, cwd=own_profile.parent, **LOCALE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Un été à Łódź: ")
