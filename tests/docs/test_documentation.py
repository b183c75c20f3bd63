"""The documentation keeps step with the code: links, citations, commands and names are what they say."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from rnnsearch.flows.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.name not in {"CHANGELOG.md"}
)
CODE = ("flows", "pipeline", "model", "storage", "tests", "infra")
CITATION = re.compile(r"\b(protocol|architecture)(?: (\d(?:\.\d)?)\b|,? traps? (\d+)(?: and (\d+))?)")


def _cited() -> Iterator[tuple[str, str, str]]:
    """Each citation in the code: the place, the page, and the heading's number or the trap's anchor."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_symlink() or path.suffix not in {".py", ".toml", ".cpp"} or "package" in path.parts:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for page, section, *traps in CITATION.findall(line):
                    place = f"{path.relative_to(ROOT)}:{number}"
                    if section:
                        yield place, page, section
                    yield from ((place, page, f"trap-{trap}") for trap in traps if trap)


def _targets(page: str) -> set[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^#+ (\d(?:\.\d)?)\.? ", text, re.M)
    return {*numbers, *re.findall(r'<a id="([^"]+)"', text)}


def test_every_citation_in_the_code_has_a_target() -> None:
    targets = {page: _targets(page) for page in ("protocol", "architecture")}
    cited = list(_cited())
    assert len(cited) > 40
    assert [each for each in cited if each[2] not in targets[each[1]]] == []


def test_no_page_outside_the_repository_is_cited() -> None:
    foreign = re.compile(r"\b(PAPER|DESIGN|STYLE) (\d|trap)")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "package" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if foreign.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(target)
    assert broken == []


def _anchors(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Each `rnnsearch …` of a code block, with the page that shows it."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in block.splitlines():
                for part in line.split("|"):
                    words = shlex.split(part, comments=True)
                    if words and words[0].split("/")[-1] == "rnnsearch":
                        yield page.name, words[1:]


def test_every_command_that_a_page_shows_exists_with_its_options() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    shown = list(_commands())
    assert len(shown) > 10
    unknown = []
    for page, words in shown:
        command = program.commands.get(words[0]) if words and not words[0].startswith("-") else program
        options = (
            {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if command
            else {}
        )
        wrong = [word for word in words[1:] if word.startswith("-") and word.partition("=")[0] not in options]
        if command is None or wrong:
            unknown.append((page, words, wrong))
    assert unknown == []


def test_every_command_is_shown_on_some_page() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    shown = {words[0] for _, words in _commands() if words}
    assert sorted(set(program.commands) - shown) == []


def test_the_glossary_names_files_that_exist_and_each_term_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1:-1] for row in re.findall(r"^\|.*\|$", text, re.M)]
    terms = [row[0].strip() for row in rows if row[0].strip() not in {"term", "---"}]
    assert len(terms) == len(set(terms))
    named = [path for row in rows for path in re.findall(r"`([a-z_]+/[^`]*)`", row[-1])]
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_make_help_names_every_target_that_contributing_names() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^make ([a-z-]+)", text, re.M))
    assert len(named) > 2
    assert sorted(name for name in named if f"make {name}" not in listed) == []
