"""What a code digest sees of small packages: edits that keep it, edits that change it, and what it refuses."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rnnsearch.storage.code import CodeDigest, CodeError, code_digest
from rnnsearch.storage.recipes import compare_code

Files = Mapping[str, str]
Digester = Callable[..., CodeDigest]


@pytest.fixture
def digest_of(tmp_path: Path) -> Digester:
    """Write these files as a package into a new folder and return the code digest of `demo.main:run`."""
    made = 0

    def digest(files: Files, root: str = "demo.main:run") -> CodeDigest:
        nonlocal made
        made += 1
        folder = tmp_path / str(made) / "demo"
        for path, text in {"__init__.py": "", **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return code_digest([root], package=folder, name="demo")

    return digest


def _main(*lines: str) -> Files:
    return {"main.py": "\n".join(lines) + "\n"}


TABLE = "TABLE = {}\n"
READS = "def run():\n    return TABLE.get('x')\n"

KEEPS: dict[str, tuple[Files, Files]] = {
    "a helper is renamed": (
        _main("def helper(x):", "    return x + 1", "def run(x):", "    return helper(x)"),
        _main("def other(x):", "    return x + 1", "def run(x):", "    return other(x)"),
    ),
    "a helper moves to another module": (
        _main("def helper(x):", "    return x + 1", "def run(x):", "    return helper(x)"),
        {
            "aid.py": "def helper(x):\n    return x + 1\n",
            **_main("from demo import aid", "def run(x):", "    return aid.helper(x)"),
        },
    ),
    "the style of an import": (
        _main("import os.path as p", "def run(x):", "    return p.join(x, 'a')"),
        _main("from os.path import join", "def run(x):", "    return join(x, 'a')"),
    ),
    "the style of an import of our own module": (
        {
            "aid.py": "def f():\n    return 1\n",
            **_main("import demo.aid as c", "def run():", "    return c.f()"),
        },
        {
            "aid.py": "def f():\n    return 1\n",
            **_main("from demo.aid import f", "def run():", "    return f()"),
        },
    ),
    "an import moves into the function": (
        _main("import os", "def run():", "    return os.sep"),
        _main("def run():", "    import os", "    return os.sep"),
    ),
    "a local variable is renamed": (
        _main("def run(x):", "    total = x", "    return [total + each for each in x]"),
        _main("def run(x):", "    sum_ = x", "    return [sum_ + one for one in x]"),
    ),
    "a nested function and the name of an error are renamed": (
        _main(
            "def run(x):",
            "    def g():",
            "        return x",
            "    try:",
            "        return g()",
            "    except OSError as e:",
            "        raise ValueError(f'{e}') from e",
        ),
        _main(
            "def run(x):",
            "    def h():",
            "        return x",
            "    try:",
            "        return h()",
            "    except OSError as f:",
            "        raise ValueError(f'{f}') from f",
        ),
    ),
    "a parameter that is only passed by position is renamed": (
        _main("def run(x, /, *rest):", "    return x, rest"),
        _main("def run(y, /, *others):", "    return y, others"),
    ),
    "annotations of a plain function": (
        _main("def run(x: int) -> int:", "    y: int = x", "    return y"),
        _main("def run(x):", "    y = x", "    return y"),
    ),
    "docstrings, comments and layout": (
        _main("def run(x):", "    '''One.'''", "    # why", "    return (x +", "        1)"),
        _main("", "def run(x):", "    return x + 1"),
    ),
    "the text of an assertion": (
        _main("def run(x):", "    assert x, 'one'", "    return x"),
        _main("def run(x):", "    assert x, 'two'", "    return x"),
    ),
    "the text of an error": (
        _main("def run(x):", "    if not x:", "        raise ValueError(f'no {x}')", "    return x"),
        _main(
            "def run(x):",
            "    if not x:",
            "        raise ValueError(f'there is no {x}; give one')",
            "    return x",
        ),
    ),
    "a recursion is renamed and turned around": (
        _main("def run(n):", "    return odd(n - 1)", "def odd(n):", "    return run(n + 2)"),
        {
            "aid.py": "from demo import main\ndef strange(n):\n    return main.run(n + 2)\n",
            **_main("from demo.aid import strange", "def run(n):", "    return strange(n - 1)"),
        },
    ),
    "an unused neighbour": (
        _main(
            "import re",
            "OTHER = re.compile('a')",
            "def other():",
            "    return 1",
            "def run():",
            "    return 2",
        ),
        _main(
            "import re",
            "OTHER = re.compile('b')",
            "def other():",
            "    return 3",
            "def run():",
            "    return 2",
        ),
    ),
    "an unused class beside": (
        _main(
            "class Other:",
            "    x = 1",
            "    @property",
            "    def y(self):",
            "        return 1",
            "def run():",
            "    return 2",
        ),
        _main(
            "class Other:",
            "    x = 2",
            "    @property",
            "    def y(self):",
            "        return 3",
            "def run():",
            "    return 2",
        ),
    ),
    "an unused constant made by a pure function": (
        _main("def make(n):", "    return [n]", "OTHER = make(1)", "def run():", "    return 2"),
        _main("def make(n):", "    return [n]", "OTHER = make(3)", "def run():", "    return 2"),
    ),
    "a module is split": (
        _main(
            "A = 1", "def f():", "    return A", "def g():", "    return f()", "def run():", "    return g()"
        ),
        {
            "low.py": "A = 1\ndef f():\n    return A\n",
            "mid.py": "from demo.low import f\ndef g():\n    return f()\n",
            **_main("from .mid import g", "def run():", "    return g()"),
        },
    ),
}

CHANGES: dict[str, tuple[Files, Files]] = {
    "a constant two modules away": (
        {
            "aid.py": "A = 1\ndef f():\n    return A\n",
            **_main("from demo.aid import f", "def run():", "    return f()"),
        },
        {
            "aid.py": "A = 2\ndef f():\n    return A\n",
            **_main("from demo.aid import f", "def run():", "    return f()"),
        },
    ),
    "an operator": (_main("def run(x):", "    return x + 1"), _main("def run(x):", "    return x - 1")),
    "the type of a constant": (_main("def run():", "    return 1"), _main("def run():", "    return True")),
    "the target of a call": (
        _main("def f(x):", "    return x", "def g(x):", "    return -x", "def run(x):", "    return f(x)"),
        _main("def f(x):", "    return x", "def g(x):", "    return -x", "def run(x):", "    return g(x)"),
    ),
    "two variables are swapped": (
        _main("def run(x, y):", "    a, b = x, y", "    return a - b"),
        _main("def run(x, y):", "    a, b = x, y", "    return b - a"),
    ),
    "which of two equal tables": (
        _main("A, B = {}, {}", "C = {}", "D = {}", "def run():", "    C[1] = 2", "    return C.get(1), D"),
        _main("A, B = {}, {}", "C = {}", "D = {}", "def run():", "    C[1] = 2", "    return D.get(1), D"),
    ),
    "which of two equal tables another function reads": (
        _main(
            "C = {}",
            "D = {}",
            "def f():",
            "    return C.get(1)",
            "def run():",
            "    C[1] = 2",
            "    return f(), D",
        ),
        _main(
            "C = {}",
            "D = {}",
            "def f():",
            "    return D.get(1)",
            "def run():",
            "    C[1] = 2",
            "    return f(), D",
        ),
    ),
    "which of two equal errors is caught": (
        _main(
            "class A(Exception):",
            "    pass",
            "class B(Exception):",
            "    pass",
            "def g():",
            "    raise A",
            "def run():",
            "    try:",
            "        g()",
            "    except A:",
            "        return 1",
            "    except B:",
            "        return 2",
        ),
        _main(
            "class A(Exception):",
            "    pass",
            "class B(Exception):",
            "    pass",
            "def g():",
            "    raise B",
            "def run():",
            "    try:",
            "        g()",
            "    except A:",
            "        return 1",
            "    except B:",
            "        return 2",
        ),
    ),
    "a default": (_main("def run(x=1):", "    return x"), _main("def run(x=2):", "    return x")),
    "a parameter that can be passed by name": (
        _main("def run(x):", "    return x"),
        _main("def run(y):", "    return y"),
    ),
    "a decorator": (
        _main("import functools", "def run():", "    return 1"),
        _main("import functools", "@functools.cache", "def run():", "    return 1"),
    ),
    "a base": (
        _main(
            "class A:",
            "    x = 1",
            "class B:",
            "    x = 2",
            "class C(A):",
            "    pass",
            "def run():",
            "    return C.x",
        ),
        _main(
            "class A:",
            "    x = 1",
            "class B:",
            "    x = 2",
            "class C(B):",
            "    pass",
            "def run():",
            "    return C.x",
        ),
    ),
    "the annotation of a field": (
        _main(
            "from typing import NamedTuple",
            "class C(NamedTuple):",
            "    x: int",
            "def run():",
            "    return C(1)",
        ),
        _main(
            "from typing import NamedTuple",
            "class C(NamedTuple):",
            "    x: str",
            "def run():",
            "    return C(1)",
        ),
    ),
    "annotations that are read": (
        _main(
            "from typing import get_type_hints",
            "def f(x: int):",
            "    return x",
            "def run():",
            "    return get_type_hints(f)",
        ),
        _main(
            "from typing import get_type_hints",
            "def f(x: str):",
            "    return x",
            "def run():",
            "    return get_type_hints(f)",
        ),
    ),
    "annotations below an unknown decorator": (
        _main("import other", "@other.checked", "def run(x: int):", "    return x"),
        _main("import other", "@other.checked", "def run(x: str):", "    return x"),
    ),
    "the text of an error that a handler reads": (
        _main(
            "def run():",
            "    try:",
            "        raise ValueError('one')",
            "    except ValueError as e:",
            "        return str(e)",
        ),
        _main(
            "def run():",
            "    try:",
            "        raise ValueError('two')",
            "    except ValueError as e:",
            "        return str(e)",
        ),
    ),
    "the name of a class that is read": (
        _main("class A:", "    pass", "def run():", "    return A.__name__"),
        _main("class B:", "    pass", "def run():", "    return B.__name__"),
    ),
    "local names where locals are read": (
        _main("def run():", "    a = 1", "    return locals()"),
        _main("def run():", "    b = 1", "    return locals()"),
    ),
    "a foreign library": (
        _main("import re", "def run(x):", "    return re.sub('a', 'b', x)"),
        _main("import regex as re", "def run(x):", "    return re.sub('a', 'b', x)"),
    ),
    "a module-level annotation that runs": (
        _main(
            "def f(x):", "    TABLE.append(x)", "TABLE = []", "a: f(1) = 2", "def run():", "    return TABLE"
        ),
        _main(
            "def f(x):", "    TABLE.append(x)", "TABLE = []", "a: f(2) = 2", "def run():", "    return TABLE"
        ),
    ),
    # Effects at import that bind a name.
    "an update that is assigned": (
        _main("TABLE = {}", "_ = TABLE.update(x=3)", READS),
        _main("TABLE = {}", "_ = TABLE.update(x=4)", READS),
    ),
    "a function that fills a table and is assigned": (
        _main(
            "TABLE = {}", "def _init():", "    TABLE['x'] = 1", "    return True", "_READY = _init()", READS
        ),
        _main(
            "TABLE = {}", "def _init():", "    TABLE['x'] = 2", "    return True", "_READY = _init()", READS
        ),
    ),
    "a function that changes what it is given": (
        _main(
            "TABLE = {}", "def _init(t):", "    t['x'] = 1", "    return True", "_READY = _init(TABLE)", READS
        ),
        _main(
            "TABLE = {}", "def _init(t):", "    t['x'] = 2", "    return True", "_READY = _init(TABLE)", READS
        ),
    ),
    "an update in a condition": (
        _main("TABLE = {}", "if TABLE.update(x=3):", "    pass", READS),
        _main("TABLE = {}", "if TABLE.update(x=4):", "    pass", READS),
    ),
    "an unbound method": (
        _main("TABLE = {}", "_ = dict.update(TABLE, x=3)", READS),
        _main("TABLE = {}", "_ = dict.update(TABLE, x=4)", READS),
    ),
    "an update in a comprehension, a default and a map": (
        _main("TABLE = []", "_ = [TABLE.append(x) for x in (1, 2)]", "def run():", "    return TABLE"),
        _main("TABLE = []", "_ = [TABLE.append(x) for x in (1, 3)]", "def run():", "    return TABLE"),
    ),
    "a method handed to map": (
        _main("TABLE = []", "_ = list(map(TABLE.append, (1, 2)))", "def run():", "    return TABLE"),
        _main("TABLE = []", "_ = list(map(TABLE.append, (1, 3)))", "def run():", "    return TABLE"),
    ),
    "an alias that is extended": (
        _main("TABLE = []", "alias = TABLE", "alias += [1]", "def run():", "    return TABLE"),
        _main("TABLE = []", "alias = TABLE", "alias += [2]", "def run():", "    return TABLE"),
    ),
    "a class body that changes a table": (
        _main("TABLE = {}", "class Other:", "    TABLE['x'] = 1", READS),
        _main("TABLE = {}", "class Other:", "    TABLE['x'] = 2", READS),
    ),
    "a class body that calls": (
        _main("TABLE = {}", "class Other:", "    y = TABLE.update(x=1)", READS),
        _main("TABLE = {}", "class Other:", "    y = TABLE.update(x=2)", READS),
    ),
    "a decorated method of a class that is not reached": (
        _main(
            "TABLE = {}",
            "def register(f):",
            "    TABLE['x'] = f",
            "    return f",
            "class Other:",
            "    @register",
            "    def f(self):",
            "        return 1",
            READS,
        ),
        _main(
            "TABLE = {}",
            "def register(f):",
            "    TABLE['x'] = f",
            "    return f",
            "class Other:",
            "    @register",
            "    def f(self):",
            "        return 2",
            READS,
        ),
    ),
    "a home-made decorator called cache": (
        _main(
            "TABLE = {}",
            "def cache(f):",
            "    TABLE['x'] = f",
            "    return f",
            "@cache",
            "def other():",
            "    return 1",
            READS,
        ),
        _main(
            "TABLE = {}",
            "def cache(f):",
            "    TABLE['x'] = f",
            "    return f",
            "@cache",
            "def other():",
            "    return 2",
            READS,
        ),
    ),
    "an effect of a module that is only imported": (
        {
            "table.py": "TABLE = {}\n",
            "fill.py": "from demo.table import TABLE\n_ = TABLE.update(x=1)\n",
            **_main("from demo.table import TABLE", "import demo.fill", READS),
        },
        {
            "table.py": "TABLE = {}\n",
            "fill.py": "from demo.table import TABLE\n_ = TABLE.update(x=2)\n",
            **_main("from demo.table import TABLE", "import demo.fill", READS),
        },
    ),
    "a foreign setting that is kept": (
        _main("import numpy as np", "_OLD = np.seterr(all='raise')", "def run():", "    return np.log(0)"),
        _main("import numpy as np", "_OLD = np.seterr(all='warn')", "def run():", "    return np.log(0)"),
    ),
    # Names that are followed.
    "a dotted use of an import inside a function": (
        {"aid.py": "A = 1\n", **_main("def run():", "    import demo.aid", "    return demo.aid.A")},
        {"aid.py": "A = 2\n", **_main("def run():", "    import demo.aid", "    return demo.aid.A")},
    ),
    "the dictionary of a module": (
        {"aid.py": "A = 1\n", **_main("from demo import aid", "def run():", "    return aid.__dict__['A']")},
        {"aid.py": "A = 2\n", **_main("from demo import aid", "def run():", "    return aid.__dict__['A']")},
    ),
    "vars of a module": (
        {"aid.py": "A = 1\n", **_main("from demo import aid", "def run():", "    return vars(aid)['A']")},
        {"aid.py": "A = 2\n", **_main("from demo import aid", "def run():", "    return vars(aid)['A']")},
    ),
    "a child process": (
        {
            "tool.py": "print(1)\n",
            **_main(
                "import subprocess, sys",
                "def run():",
                "    return subprocess.run([sys.executable, '-m', 'demo.tool'])",
            ),
        },
        {
            "tool.py": "print(2)\n",
            **_main(
                "import subprocess, sys",
                "def run():",
                "    return subprocess.run([sys.executable, '-m', 'demo.tool'])",
            ),
        },
    ),
    "a child process of a shell": (
        {
            "tool.py": "def main():\n    return 1\n",
            **_main("import os", "def run():", "    return os.system('python -m demo.tool x')"),
        },
        {
            "tool.py": "def main():\n    return 2\n",
            **_main("import os", "def run():", "    return os.system('python -m demo.tool x')"),
        },
    ),
    # Files beside the code.
    "a file beside the module": (
        {
            "words.txt": "a",
            **_main(
                "from pathlib import Path",
                "def run():",
                "    return Path(__file__).with_name('words.txt').read_text()",
            ),
        },
        {
            "words.txt": "b",
            **_main(
                "from pathlib import Path",
                "def run():",
                "    return Path(__file__).with_name('words.txt').read_text()",
            ),
        },
    ),
    "a folder of data": (
        {
            "data/words.txt": "a",
            **_main(
                "from pathlib import Path",
                "FOLDER = Path(__file__).parent / 'data'",
                "def run(x):",
                "    return (FOLDER / x).read_text()",
            ),
        },
        {
            "data/words.txt": "b",
            **_main(
                "from pathlib import Path",
                "FOLDER = Path(__file__).parent / 'data'",
                "def run(x):",
                "    return (FOLDER / x).read_text()",
            ),
        },
    ),
    "a file by os.path": (
        {
            "words.txt": "a",
            **_main(
                "import os",
                "def run():",
                "    return open(os.path.join(os.path.dirname(__file__), 'words.txt')).read()",
            ),
        },
        {
            "words.txt": "b",
            **_main(
                "import os",
                "def run():",
                "    return open(os.path.join(os.path.dirname(__file__), 'words.txt')).read()",
            ),
        },
    ),
    "a resource": (
        {
            "words.txt": "a",
            **_main(
                "from importlib import resources",
                "def run():",
                "    return (resources.files('demo') / 'words.txt').read_text()",
            ),
        },
        {
            "words.txt": "b",
            **_main(
                "from importlib import resources",
                "def run():",
                "    return (resources.files('demo') / 'words.txt').read_text()",
            ),
        },
    ),
    "the text of the module's docstring": (
        _main("'''One.'''", "def run():", "    return __doc__"),
        _main("'''Two.'''", "def run():", "    return __doc__"),
    ),
}

REFUSED: dict[str, Files] = {
    "getattr of sys.modules": _main("import sys", "def run():", "    return getattr(sys, 'modules')['x']"),
    "pydoc": _main("import pydoc", "def run(x):", "    return pydoc.locate(x)"),
    "an entry point": _main(
        "from importlib.metadata import EntryPoint", "def run(x):", "    return EntryPoint(x).load()"
    ),
    "entry points": _main(
        "from importlib import metadata", "def run():", "    return metadata.entry_points()"
    ),
    "pydantic's ImportString": _main(
        "from pydantic import BaseModel, ImportString", "class run(BaseModel):", "    x: ImportString"
    ),
    "a child process of no named module": _main(
        "import sys", "def run(x):", "    return [sys.executable, '-m', x]"
    ),
    "a child process of text": _main(
        "import sys", "def run():", "    return [sys.executable, '-c', 'import demo']"
    ),
    "a file of no constant name": _main(
        "from pathlib import Path", "def run(x):", "    return Path(__file__).with_name(x)"
    ),
    "a file in a folder of code": _main(
        "from pathlib import Path", "def run(x):", "    return Path(__file__).parent / x"
    ),
    "a resource of no constant name": _main(
        "import importlib.resources", "def run(x):", "    return importlib.resources.files(x)"
    ),
    "the docstring of a function": _main("def f():", "    '''Text.'''", "def run():", "    return f.__doc__"),
    "a function's globals": _main("def f():", "    pass", "def run():", "    return f.__globals__"),
    "a class that hears of its heirs": _main(
        "class Base:",
        "    def __init_subclass__(cls):",
        "        TABLE.append(cls)",
        "TABLE = []",
        "class Heir(Base):",
        "    pass",
        "def run():",
        "    return TABLE",
    ),
    "a metaclass that keeps a list": _main(
        "TABLE = []",
        "class Meta(type):",
        "    def __init__(cls, *a):",
        "        TABLE.append(cls)",
        "class Base(metaclass=Meta):",
        "    pass",
        "class Heir(Base):",
        "    pass",
        "def run():",
        "    return TABLE",
    ),
}


@pytest.mark.parametrize("edit", KEEPS)
def test_an_edit_that_cannot_change_a_value_keeps_the_digest(digest_of: Digester, edit: str) -> None:
    before, after = KEEPS[edit]
    assert digest_of(before).digest == digest_of(after).digest


@pytest.mark.parametrize("edit", CHANGES)
def test_an_edit_that_can_change_a_value_changes_the_digest(digest_of: Digester, edit: str) -> None:
    before, after = CHANGES[edit]
    assert digest_of(before).digest != digest_of(after).digest


@pytest.mark.parametrize("code", REFUSED)
def test_what_the_syntax_does_not_name_is_refused(digest_of: Digester, code: str) -> None:
    with pytest.raises(CodeError, match=r"demo\.main"):
        digest_of(REFUSED[code])


def _changed(old: CodeDigest, new: CodeDigest) -> list[str]:
    return [change.name for change in compare_code(old.parts, new.parts)]


def test_plan_names_what_changed_itself_by_its_present_name_and_not_its_callers(digest_of: Digester) -> None:
    before = digest_of(_main("def helper(x):", "    return x + 1", "def run(x):", "    return helper(x)"))
    aid = "def other(x):\n    return x + 1\n"
    moved = _main("from demo.aid import other", "def run(x):", "    return other(x)")
    assert _changed(before, digest_of({"aid.py": aid, **moved})) == []
    again = digest_of({"aid.py": aid.replace("+", "-"), **moved})
    assert _changed(digest_of({"aid.py": aid, **moved}), again) == ["demo.aid:other"]


def test_plan_names_the_caller_whose_call_goes_elsewhere(digest_of: Digester) -> None:
    before, after = CHANGES["the target of a call"]
    assert "demo.main:run" in _changed(digest_of(before), digest_of(after))
