"""An import hook that records the source hash of each loaded module.

Python takes bytecode for that of a source which has the same size and time. A source that was edited without
changing either would then be counted as it is now, and executed as it was. Here bytecode counts only if it holds the
hash of its source (PEP 552), and what was loaded is remembered.
"""

import importlib.util
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LOADED: dict[str, str] = {}
"""SHA-256 of the source that each module of the package was loaded from."""

_CHECKED = (0b11).to_bytes(4, "little")  # flags of bytecode that is checked against the hash of its source
_HEADER = 16  # bytes
_PACKAGE = __name__.partition(".")[0]


def install() -> None:
    """Install the hook for all further modules of the package."""
    if any(type(finder).__name__ == _Finder.__name__ for finder in sys.meta_path):
        return
    for name in (_PACKAGE, __name__.rpartition(".")[0], __name__):
        if (file := getattr(sys.modules[name], "__file__", None)) is not None:
            LOADED[name] = sha256(Path(file).read_bytes()).hexdigest()
    sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{_PACKAGE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        # Other packages put subclasses in its place, such as beartype's, which Prefect brings along.
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        LOADED.pop(fullname, None)
        return super().get_code(fullname)

    def get_data(self, path: str) -> bytes:
        """A file; OSError for bytecode that is not checked against its source."""
        data = super().get_data(path)
        if path.endswith(".pyc"):
            if data[4:8] != _CHECKED:
                raise OSError(f"{path} is not checked against its source")
        elif path == self.path:
            LOADED.setdefault(self.name, sha256(data).hexdigest())
        return data

    def set_data(self, path: str, data: "ReadableBuffer", *, _mode: int = 0o666) -> None:
        """Write bytecode with the hash of its source instead of size and time."""
        if path.endswith(".pyc"):
            source = super().get_data(self.path)
            if sha256(source).hexdigest() != LOADED.get(self.name):
                return  # edited just now
            code = bytes(data)
            data = code[:4] + _CHECKED + importlib.util.source_hash(source) + code[_HEADER:]
        super().set_data(path, data, _mode=_mode)
