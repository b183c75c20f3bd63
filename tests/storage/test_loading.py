"""What was loaded is what the source says, and it is known from which source."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

PRINT = (
    "import rnnsearch.part as part; from rnnsearch.storage.loading import LOADED\n"
    "print(part.VALUE, LOADED['rnnsearch.part'])"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the same name that loads its modules in the same way."""
    import rnnsearch
    from rnnsearch.storage import loading

    folder = tmp_path / "rnnsearch"
    (folder / "storage").mkdir(parents=True)
    (folder / "__init__.py").write_text(Path(str(rnnsearch.__file__)).read_text(encoding="utf-8"))
    (folder / "storage" / "__init__.py").write_text("")
    (folder / "storage" / "loading.py").write_text(Path(str(loading.__file__)).read_text(encoding="utf-8"))
    (folder / "part.py").write_text("VALUE = 1\n")
    return folder


def _print(package: Path, code: str = PRINT) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def _edit(path: Path, old: str, new: str) -> None:
    """Change a source and keep its size and times."""
    state = path.stat()
    text = path.read_text(encoding="utf-8")
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new), encoding="utf-8")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_bytecode_of_a_source_that_was_edited_at_equal_size_and_time_is_not_executed(package: Path) -> None:
    part = package / "part.py"
    assert _print(package)[0] == "1"
    _edit(part, "VALUE = 1", "VALUE = 2")
    assert _print(package) == ["2", sha256(part.read_bytes()).hexdigest()]


def test_bytecode_that_another_program_wrote_by_size_and_time_is_not_trusted(package: Path) -> None:
    part = package / "part.py"
    subprocess.run([sys.executable, "-m", "py_compile", str(part)], check=True, timeout=60)
    _edit(part, "VALUE = 1", "VALUE = 2")
    assert _print(package)[0] == "2"


def test_bytecode_with_the_hash_of_its_source_is_written_and_used_again(package: Path) -> None:
    _print(package)
    (bytecode,) = (package / "__pycache__").glob("part.*.pyc")
    assert bytecode.read_bytes()[4:8] == b"\x03\0\0\0"
    state = bytecode.stat()
    _print(package)
    assert bytecode.stat().st_mtime_ns == state.st_mtime_ns


def test_a_source_that_is_read_again_later_does_not_count_as_loaded(package: Path) -> None:
    code = (
        "import inspect, pathlib, rnnsearch.part as part; from rnnsearch.storage.loading import LOADED\n"
        "before = LOADED['rnnsearch.part']\n"
        "pathlib.Path(part.__file__).write_text('VALUE = 3\\n'); part.__loader__.get_source('rnnsearch.part')\n"
        "print(LOADED['rnnsearch.part'] == before)"
    )
    assert _print(package, code) == ["True"]


def test_a_path_hook_of_another_package_changes_nothing(package: Path) -> None:
    hook = (
        "import hashlib, importlib.machinery as m, pathlib, sys, types, typing\n"
        "class Theirs(m.SourceFileLoader): pass\n"
        "sys.path_hooks.insert(0, m.FileFinder.path_hook((Theirs, ['.py'])))\n"
        "sys.path_importer_cache.clear()\n"
    )
    assert _print(package, hook + PRINT)[1] == sha256((package / "part.py").read_bytes()).hexdigest()
