"""The code digest, on small packages written for the purpose."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rnnsearch.storage.code import CodeDigest, CodeError, code_digest
from rnnsearch.storage.recipes import compare_code

Digester = Callable[..., CodeDigest]

PACKAGE = {
    "__init__.py": "",
    "text/__init__.py": '"""Text."""\n',
    "text/clean.py": (
        '"""Cleaning."""\n'
        "import re\n"
        "from demo.text import letters\n"
        "from demo.text.config import Limits as Bounds\n"
        "from demo.text.unused import nothing\n"
        "\n"
        "SPACES = re.compile(' +')\n"
        "\n"
        "def clean(line: str, bounds: Bounds = Bounds()) -> str:\n"
        '    """Clean a line."""\n'
        "    # runs of spaces\n"
        "    return letters.fold(SPACES.sub(' ', line))[: bounds.most]\n"
        "\n"
        "def other(line):\n"
        "    return line\n"
    ),
    "text/letters.py": (
        "from . import tables\n\n"
        "def fold(line):\n    return line.translate(tables.FOLD)\n\n"
        "def unfold(line):\n    return line\n"
    ),
    "text/tables.py": "FOLD = {1: 2}\nOTHER = {3: 4}\n",
    "text/config.py": "from dataclasses import dataclass\n\n@dataclass\nclass Limits:\n    most: int = 50\n",
    "text/unused.py": "def nothing():\n    pass\n",
}


@pytest.fixture
def digest_of(tmp_path: Path) -> Digester:
    """The digest of `demo.text.clean:clean` in the package above with some files replaced or edited."""
    made = 0

    def digest(
        *,
        files: Mapping[str, str] | None = None,
        edits: Mapping[str, tuple[str, str]] | None = None,
        roots: tuple[str, ...] = ("demo.text.clean:clean",),
        data: tuple[str, ...] = (),
        outside: tuple[str, ...] = (),
    ) -> CodeDigest:
        nonlocal made
        made += 1
        folder = tmp_path / str(made) / "demo"
        texts = {**PACKAGE, **(files or {})}
        for path, (old, new) in (edits or {}).items():
            assert old in texts[path]
            texts[path] = texts[path].replace(old, new)
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return code_digest(roots, data, outside=outside, package=folder, name="demo")

    return digest


def test_the_parts_are_what_the_root_reaches_and_nothing_else(digest_of: Digester) -> None:
    assert set(digest_of().parts) == {
        "demo.text.clean:clean",
        "demo.text.clean:SPACES",
        "demo.text.letters:fold",
        "demo.text.tables:FOLD",
        "demo.text.config:Limits",
    }


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("text/clean.py", ('"""Clean a line."""', '"""Another docstring."""')),
        ("text/clean.py", ('"""Cleaning."""', "")),
        ("text/clean.py", ("    # runs of spaces\n", "")),
        ("text/clean.py", ("-> str", "-> object")),
        ("text/clean.py", ("    # runs of spaces\n", "\n\n    pass\n")),
        ("text/clean.py", ("def other(line):\n    return line", "def other(line):\n    return line + 'x'")),
        ("text/letters.py", ("def unfold(line):\n    return line", "def unfold(line):\n    return None")),
        ("text/tables.py", ("3: 4", "3: 5")),
        ("text/unused.py", ("def nothing():\n    pass", "def nothing():\n    return 1")),
        ("text/config.py", ("most: int = 50\n", 'most: int = 50\n    """Of words."""\n')),
    ],
)
def test_what_decides_nothing_changes_nothing(digest_of: Digester, path: str, edit: tuple[str, str]) -> None:
    assert digest_of(edits={path: edit})[:2] == digest_of()[:2]


@pytest.mark.parametrize(
    ("path", "edit", "changed"),
    [
        ("text/tables.py", ("1: 2", "1: 3"), {"demo.text.tables:FOLD"}),
        ("text/letters.py", ("line.translate", "line.strip().translate"), {"demo.text.letters:fold"}),
        ("text/config.py", ("50", "51"), {"demo.text.config:Limits"}),
        ("text/config.py", ("@dataclass\n", "@dataclass(frozen=True)\n"), {"demo.text.config:Limits"}),
        ("text/clean.py", ("' +'", "'  +'"), {"demo.text.clean:SPACES"}),
        ("text/clean.py", ("import re\n", "import regex as re\n"), {"demo.text.clean:SPACES"}),
    ],
)
def test_a_change_two_modules_away_is_named_exactly(
    digest_of: Digester, path: str, edit: tuple[str, str], changed: set[str]
) -> None:
    old, new = digest_of(), digest_of(edits={path: edit})
    assert old.digest != new.digest
    assert {change.name for change in compare_code(old.parts, new.parts)} == changed


def test_swapping_two_imported_names_is_a_change(digest_of: Digester) -> None:
    root = "from demo.text.tables import FOLD as a, OTHER as b\ndef clean():\n    return a, b\n"
    swapped = root.replace("FOLD as a, OTHER as b", "OTHER as a, FOLD as b")
    assert (
        digest_of(files={"text/clean.py": root}).digest != digest_of(files={"text/clean.py": swapped}).digest
    )


@pytest.mark.parametrize(
    "root",
    [
        "import demo.text.tables\ndef clean():\n    return demo.text.tables.FOLD\n",
        "import demo.text.tables as t\ndef clean():\n    return t.FOLD\n",
        "from demo.text.tables import FOLD\ndef clean(x=FOLD):\n    return x\n",
        "from demo.text import tables\ndef clean():\n    return [x for x in tables.FOLD]\n",
        "from demo.text import tables\ndef clean():\n    return getattr(tables, 'FO' + 'LD')\n",
        "def clean():\n    from demo.text.tables import FOLD\n    return FOLD\n",
        "def clean():\n    import demo.text.tables as t\n    return t\n",
        "from demo.text.tables import FOLD\ndef clean():\n    def inner():\n        return FOLD\n    return inner\n",
        "from demo.text.tables import FOLD\nclean = lambda: FOLD\n",
        "from demo.text.tables import FOLD\nclass clean:\n    x: 'list[FOLD]'\n",
        "from demo.text.tables import FOLD\nclass Base:\n    fold = FOLD\nclass clean(Base):\n    pass\n",
        "from demo.text.tables import FOLD\ndef deco(f):\n    return FOLD\n@deco\ndef clean():\n    return 1\n",
        "from demo.text.tables import FOLD\nif FOLD:\n    clean = 1\nelse:\n    clean = 2\n",
        "from demo.text.tables import FOLD\nclean = {}\nclean['a'] = FOLD\n",
        "try:\n    from demo.text.tables import FOLD\nexcept OSError:\n    FOLD = 1\ndef clean():\n    return FOLD\n",
        "try:\n    from demo.text.tables import FOLD\nexcept* OSError:\n    FOLD = 1\ndef clean():\n    return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean(FOLD):\n    def g():\n        global FOLD; return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean(FOLD=FOLD):\n    return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean():\n    return [FOLD for FOLD in FOLD]\n",
        "from demo.text.tables import FOLD\ndef clean():\n    return globals()['FOLD']\n",
    ],
)
def test_every_way_to_name_a_definition_reaches_it(digest_of: Digester, root: str) -> None:
    assert "demo.text.tables:FOLD" in digest_of(files={"text/clean.py": root}).parts


@pytest.mark.parametrize(
    "root",
    [
        "from demo.text.tables import FOLD\ndef clean(FOLD):\n    return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean():\n    FOLD = 1\n    return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean(x):\n    return [FOLD for FOLD in x]\n",
        "from demo.text.tables import FOLD\ndef clean(x):\n    match x:\n        case [FOLD]: return FOLD\n",
        "from demo.text.tables import FOLD\ndef clean(x):\n    if (FOLD := x):\n        return FOLD\n",
    ],
)
def test_a_local_of_the_same_name_reaches_nothing(digest_of: Digester, root: str) -> None:
    assert "demo.text.tables:FOLD" not in digest_of(files={"text/clean.py": root}).parts


def test_an_effect_of_a_module_that_is_only_imported_counts(digest_of: Digester) -> None:
    registers = {"text/unused.py": "import codecs\ndef nothing():\n    pass\ncodecs.register(nothing)\n"}
    parts = digest_of(files=registers).parts
    assert {"demo.text.unused:<module>", "demo.text.unused:nothing"} <= set(parts)


def test_a_decorator_that_may_register_counts_as_an_effect(digest_of: Digester) -> None:
    registers = "import atexit\n@atexit.register\ndef nothing():\n    return 1\n"
    old = digest_of(files={"text/unused.py": registers})
    new = digest_of(files={"text/unused.py": registers.replace("return 1", "return 2")})
    names = [change.name for change in compare_code(old.parts, new.parts)]
    assert names == ["demo.text.unused:<module>", "demo.text.unused:nothing"]


def test_a_recursion_between_modules_ends(digest_of: Digester) -> None:
    ring = {
        "text/clean.py": "from demo.text import letters\ndef clean():\n    return letters.fold()\n",
        "text/letters.py": "from demo.text import clean\ndef fold():\n    return clean.clean()\n",
    }
    assert "demo.text.letters:fold" in digest_of(files=ring).parts


def test_a_module_as_root_means_all_that_is_in_it(digest_of: Digester) -> None:
    assert "demo.text.clean:other" in digest_of(roots=("demo.text.clean",)).parts


def test_nothing_outside_is_followed_unless_it_is_a_root(digest_of: Digester) -> None:
    without = digest_of(outside=("demo.text.letters",))
    assert "demo.text.letters:fold" not in without.parts
    assert (
        without.digest
        != digest_of(
            outside=("demo.text.letters",), edits={"text/clean.py": ("letters.fold", "letters.unfold")}
        ).digest
    )
    both = digest_of(
        outside=("demo.text.letters",), roots=("demo.text.clean:clean", "demo.text.letters:fold")
    )
    assert set(both.parts) == set(digest_of().parts)


def test_a_data_file_counts_by_its_bytes(digest_of: Digester) -> None:
    old = digest_of(files={"page.html": "<p>"}, data=("page.html",))
    new = digest_of(files={"page.html": "<b>"}, data=("page.html",))
    assert [change.name for change in compare_code(old.parts, new.parts)] == ["file:page.html"]


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\ndef clean(x):\n    return importlib.import_module(x)\n",
        "from importlib import import_module\ndef clean(x):\n    return import_module(x)\n",
        "def clean(x):\n    import importlib\n    return importlib.import_module(x)\n",
        "import importlib.util\ndef clean(x):\n    return importlib.util.find_spec(x)\n",
        "def clean(x):\n    return __import__(x)\n",
        "def clean(x):\n    return eval(x)\n",
        "def clean(x):\n    exec(x)\n",
        "import sys\ndef clean(x):\n    return sys.modules[x]\n",
        "import runpy\ndef clean(x):\n    return runpy.run_path(x)\n",
        "from demo.text.letters import *\ndef clean(x):\n    return fold(x)\n",
        "class Base:\n    pass\ndef clean():\n    return Base.__subclasses__()\n",
        "from demo.text.tables import MISSING\ndef clean():\n    return MISSING\n",
        "from demo.text import missing\ndef clean():\n    return missing.x\n",
        "def clean(:\n",
    ],
)
def test_code_that_the_syntax_does_not_tell_is_refused(digest_of: Digester, code: str) -> None:
    with pytest.raises(CodeError):
        digest_of(files={"text/clean.py": code})


@pytest.mark.parametrize(
    "code",
    [
        "from importlib import metadata\ndef clean(x):\n    return metadata.version(x)\n",
        "def clean(model):\n    return model.eval()\n",
        "import importlib\ndef clean(x):\n    return x\ndef other(x):\n    return importlib.import_module(x)\n",
    ],
)
def test_what_only_looks_dynamic_or_is_not_reached_is_allowed(digest_of: Digester, code: str) -> None:
    assert "demo.text.clean:clean" in digest_of(files={"text/clean.py": code}).parts


@pytest.mark.parametrize("root", ["demo.text.missing:x", "demo.text.clean:claen", "demo.text.clean:"])
def test_an_unknown_root_is_refused_with_a_hint(digest_of: Digester, root: str) -> None:
    if root.endswith(":"):
        assert "demo.text.clean:other" in digest_of(roots=(root,)).parts
        return
    with pytest.raises(CodeError, match="did you mean clean" if "claen" in root else "no module"):
        digest_of(roots=(root,))


def test_nothing_is_imported(digest_of: Digester) -> None:
    digest_of(files={"text/unused.py": "raise RuntimeError\ndef nothing():\n    pass\n"})
    assert not any(name == "demo" or name.startswith("demo.") for name in sys.modules)


def test_linked_islands_of_the_real_package_are_found() -> None:
    parts = code_digest(["rnnsearch.storage.parquet:write_table"]).parts
    assert "rnnsearch.storage.parquet:canonical" in parts
    assert "rnnsearch.storage.errors:StoreError" in parts
    assert not any("ledger" in part for part in parts)


def test_the_source_of_each_definition_reached_is_its_text_in_the_file(digest_of: Digester) -> None:
    sources = digest_of().sources
    assert sources["demo.text.tables:FOLD"] == "FOLD = {1: 2}\n"
    assert sources["demo.text.config:Limits"] == "@dataclass\nclass Limits:\n    most: int = 50\n"
    assert "    # runs of spaces\n" in sources["demo.text.clean:clean"]
