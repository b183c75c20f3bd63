"""Proof that a process executes the code that a stage's key counts.

The driver notes the sources that the digest read. A worker compares them with those that it loaded, before and after
its work, and refuses to open other files of the package.
"""

import functools
import hashlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rnnsearch
from rnnsearch.flows.recipe import code_of, read_code
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.loading import LOADED


class CodeMismatchError(RuntimeError):
    """A process executes other code, or reads other files, than the key of its stage counts."""


class Proof(NamedTuple):
    """Hashes of the code and data files in a stage's key, as read by the driver."""

    roots: tuple[str, ...]
    code: Digest
    modules: Mapping[str, str]  # to the SHA-256 of their source
    files: Mapping[str, str]  # data files, by their path inside the package


@functools.cache
def proof_of(roots: tuple[str, ...]) -> Proof:
    """What `roots` reach, with the sources as they are now."""
    code = code_of(roots)
    names = {part.partition(":")[0] for part in code.parts if not part.startswith("file:")}
    files = [part.partition(":")[2] for part in code.parts if part.startswith("file:")]
    return Proof(
        roots=roots,
        code=code.digest,
        modules={name: _hash(_source(name)) for name in sorted(names)},
        files={path: _hash(_folder() / path) for path in files},
    )


@contextmanager
def proved(proof: Proof) -> Iterator[None]:
    """Check code and opened files around a block of work. Raises CodeMismatchError."""
    check(proof)
    _watch.begin(proof.files)
    try:
        yield
    finally:
        _watch.end()
    check(proof)  # what was imported meanwhile


def check(proof: Proof) -> None:
    """Raise CodeMismatchError if this process loaded other code than `proof` contains. Each file is read once."""
    for name, digest in proof.modules.items():
        if name in sys.modules and LOADED.get(name) != digest:
            _compare_definitions(proof, name)
    for path, digest in proof.files.items():
        if _hash_once(path) != digest:
            raise _mismatch(path)


_equal: set[tuple[Digest, str, str]] = set()  # code, module and loaded source that were found to be equal


def _compare_definitions(proof: Proof, module: str) -> None:
    """Raise CodeMismatchError unless the sources differ only in what is not counted, such as comments."""
    loaded = LOADED.get(module, "")
    if (proof.code, module, loaded) in _equal:
        return
    if loaded != _hash(_source(module)):
        raise _mismatch(module)  # edited after it was loaded: what is executed can no longer be read
    if read_code(proof.roots).digest != proof.code:
        raise _mismatch(module)
    _equal.add((proof.code, module, loaded))


def _mismatch(what: str) -> CodeMismatchError:
    return CodeMismatchError(
        f"a worker on {socket.gethostname()} has another {what} than the key of this stage counts: it was edited "
        "after the run began, or that machine has another version; nothing was recorded. Install the same package "
        "everywhere and run again"
    )


class _Watch:
    """Sees every file that this process opens; an audit hook cannot be taken away, so there is one."""

    def __init__(self) -> None:
        self.counted: frozenset[str] | None = None
        self.folders: tuple[str, ...] = ()

    def begin(self, files: Mapping[str, str]) -> None:
        """Refuse files of the package other than these."""
        if not self.folders:
            folder = _folder()
            real = [folder, *(Path(entry.path).resolve() for entry in os.scandir(folder) if entry.is_dir())]
            self.folders = tuple(f"{each}{os.sep}" for each in real)
            sys.addaudithook(self.look)
        self.counted = frozenset(
            name for path in files for name in (str(_folder() / path), str((_folder() / path).resolve()))
        )

    def end(self) -> None:
        """Let the process open any file."""
        self.counted = None

    def look(self, event: str, arguments: tuple[Any, ...]) -> None:
        """CodeMismatchError for a file of the package that is read and not counted."""
        if event != "open" or self.counted is None:
            return
        path, mode = arguments[0], arguments[1]
        if not isinstance(path, str | os.PathLike) or (mode is not None and "r" not in mode):
            return
        name = os.fspath(path)
        if not isinstance(name, str) or not name.startswith(self.folders):
            return
        if name in self.counted or "__pycache__" in name or name.endswith(".py"):
            return
        raise CodeMismatchError(
            f"a stage opened {name}, which its key does not count; declare the file among the `files` of its kind"
        )


_watch = _Watch()


def _folder() -> Path:
    return Path(rnnsearch.__path__[0])


def _source(module: str) -> Path:
    """The file of a module of the package, without importing it."""
    place = _folder().joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _hash(path: Path) -> str:
    """The SHA-256 of a file; nothing where it is not there."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@functools.cache
def _hash_once(path: str) -> str:
    return _hash(_folder() / path)
