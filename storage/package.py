"""A Python package as text: its modules, and what a name in one of them refers to. Nothing is imported."""

import builtins
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.syntax import Chain, Import, Module, parse_module

_PACKAGE_FILE = "__init__.py"
_LONGEST = 100  # imports of imports until a circle is assumed

_DYNAMIC_BUILTINS = frozenset({"__import__", "eval", "exec", "compile", "breakpoint"})
_HIDDEN_NAMES = frozenset({"__package__", "__spec__", "__loader__", "__path__", "__builtins__"})
_HIDING = frozenset(
    [
        "builtins",
        "code",
        "codeop",
        "dill",
        "importlib",
        "imp",
        "linecache",
        "marshal",
        "pkg_resources",
        "pkgutil",
        "pydoc",
        "runpy",
        "zipimport",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "inspect.currentframe",
        "inspect.getdoc",
        "inspect.getfile",
        "inspect.getmodule",
        "inspect.getsource",
        "inspect.getsourcefile",
        "inspect.getsourcelines",
        "inspect.stack",
        "pydantic.ImportString",
        "pydantic.types.ImportString",
        "sys._getframe",
        "sys.meta_path",
        "sys.modules",
        "sys.path",
        "sys.path_hooks",
        "types.CodeType",
        "types.FunctionType",
        "unittest.mock",
    ]
)
"""Foreign names by which a program reaches code that its syntax does not name."""

_KNOWN = frozenset(
    [
        "importlib.metadata.version",
        "importlib.metadata.PackageNotFoundError",
        "importlib.metadata.metadata",
        "importlib.metadata.requires",
    ]
)
"""Names below those of `_HIDING` that run no code."""


class CodeError(StoreError):
    """The code that roots reach cannot be told from the syntax alone, or a root does not exist."""


class Target(NamedTuple):
    """What a chain of names refers to."""

    kind: Literal["definition", "module", "foreign", "builtin", "unknown"]
    module: str  # of a definition, or the module; else empty
    name: str  # of the definition, of the builtin, or the dotted name of a foreign object
    rest: Chain  # the attributes after it
    through: tuple[str, ...] = ()  # modules of the package that the imports on the way run


class Package:
    """The modules below one folder. Every file is read once, so that it is one state of the package."""

    def __init__(self, folder: Path, name: str, outside: frozenset[str]) -> None:
        """Look for the modules in `folder`; those `outside` (and below them) count as foreign."""
        self.folder = folder
        self.name = name
        self.outside = outside
        self.paths = dict(_module_paths(folder, name))
        self._modules: dict[str, Module] = {}
        self._files: dict[str, bytes] = {}

    def is_current(self) -> bool:
        """Whether the folder still holds the modules and bytes that were read."""
        return (
            dict(_module_paths(self.folder, self.name)) == self.paths
            and all(_bytes(self.paths[name]) == module.source for name, module in self._modules.items())
            and all(_bytes(self._place(path)) == content for path, content in self._files.items())
        )

    def _place(self, path: str) -> str:
        return os.path.join(self.folder, path)  # noqa: PTH118 - see `_module_paths`

    def module(self, name: str) -> Module | None:
        """The module of a name, or None if the package has none such."""
        if name in self.paths and name not in self._modules:
            path = self.paths[name]
            try:
                source = _read(path)
                module = parse_module(name, source, is_package=path.endswith(f"{os.sep}{_PACKAGE_FILE}"))
            except OSError as error:
                raise CodeError(f"cannot read {path}: {error.strerror}") from error
            except SyntaxError as error:
                raise CodeError(f"{path}, line {error.lineno}: {error.msg}; correct it first") from error
            if module.star is not None:
                raise CodeError(
                    f"{name} imports everything from {module.star}: the syntax does not tell what that is; "
                    "name what is used"
                )
            self._modules[name] = module
        return self._modules.get(name)

    def known_module(self, name: str) -> Module:
        """The module of a name that the package has."""
        module = self.module(name)
        if module is None:
            raise CodeError(f"no module {name} in {self.folder}")
        return module

    def file(self, path: str) -> bytes:
        """The bytes of a file of the package that is not Python."""
        if path not in self._files:
            try:
                self._files[path] = (self.folder / path).read_bytes()
            except OSError as error:
                raise CodeError(f"cannot read the file {path} in {self.folder}: {error.strerror}") from error
        return self._files[path]

    def files_of(self, path: str, place: str) -> tuple[str, ...]:
        """The file at a path inside the package, or all files of a folder of data."""
        full = self.folder / path
        found = sorted(each for each in full.rglob("*") if each.is_file()) if full.is_dir() else [full]
        if any(each.suffix in {".py", ".pyc"} for each in found):
            raise CodeError(
                f"{place} reads {path or 'the folder of the package'}, which has Python code in it: "
                "name one data file in one expression, such as Path(__file__).with_name('table.json')"
            )
        return tuple(each.relative_to(self.folder).as_posix() for each in found)

    def is_ours(self, name: str) -> bool:
        """Whether a dotted name is in this package."""
        return name == self.name or name.startswith(f"{self.name}.")

    def resolve(self, module: Module, chain: Chain, place: str) -> Target:
        """What a chain of names means at the top level of a module; `place` is who asks, for the message."""
        name = chain[0]
        if name in module.definitions:
            return Target("definition", module.name, name, chain[1:], (module.name,))
        if name in module.imports:
            return self.follow(module.name, module.imports[name][-1], chain[1:], place, (module.name,))
        if name in module.declared_global:
            return Target("definition", module.name, name, chain[1:], (module.name,))
        if name in _DYNAMIC_BUILTINS:
            raise CodeError(
                f"{place} uses {name}: the syntax does not tell what that runs; call functions by name"
            )
        if name in _HIDDEN_NAMES:
            raise CodeError(f"{place} uses {name}: it hides code or files from the digest; import by name")
        return Target("builtin" if hasattr(builtins, name) else "unknown", "", name, chain[1:])

    def follow(
        self, user: str, target: Import, rest: Chain, place: str, through: tuple[str, ...] = ()
    ) -> Target:
        """What an import in the module `user` and the attributes after it mean."""
        if not self.is_ours(target.module):
            path = [target.module, *([target.symbol] if target.symbol else []), *rest]
            return self._foreign(".".join(path), place, through)
        if target.symbol is not None:
            rest = (target.symbol, *rest)
        return self._attribute(user, target.module, rest, place, through)

    def is_cut(self, user: str, name: str) -> bool:
        """Whether the way from one module to another leads outside."""
        return _is_below(name, self.outside) and not _is_below(user, self.outside)

    def _attribute(self, user: str, name: str, chain: Chain, place: str, through: tuple[str, ...]) -> Target:
        if self.is_cut(user, name):
            return Target("foreign", "", ".".join((name, *chain)), (), through)
        module = self.module(name)
        if module is None:
            raise CodeError(f"no module {name} in {self.folder}, but {user} imports it")
        if len(through) > _LONGEST:
            raise CodeError(f"{place}: the imports of {name} lead in a circle")
        through = (*through, name)
        if not chain or chain[0] == "__dict__":
            return Target("module", name, "", chain, through)
        symbol = chain[0]
        if symbol in module.definitions:
            return Target("definition", name, symbol, chain[1:], through)
        if symbol in module.imports:
            return self.follow(name, module.imports[symbol][-1], chain[1:], place, through)
        if f"{name}.{symbol}" in self.paths:
            return self._attribute(user, f"{name}.{symbol}", chain[1:], place, through)
        if symbol in module.declared_global:
            return Target("definition", name, symbol, chain[1:], through)
        if "__getattr__" in module.definitions:
            return Target("definition", name, "__getattr__", chain, through)
        if symbol == "__name__":
            return Target("unknown", "", name, chain[1:], through)
        if symbol.startswith("__"):
            raise CodeError(f"{place} uses {name}.{symbol}: it hides code or files from the digest")
        raise CodeError(f"{name} has no {symbol} at its top level, but it is used")

    def _foreign(self, dotted: str, place: str, through: tuple[str, ...]) -> Target:
        parts = dotted.split(".")
        heads = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        if (heads & _HIDING and not heads & _KNOWN) or dotted == "sys":
            raise CodeError(
                f"{place} uses {dotted}: the syntax does not tell what code or file that reaches; import it by name"
            )
        return Target("foreign", "", dotted, (), through)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see `_module_paths`
        return file.read()


def _bytes(path: str) -> bytes | None:
    try:
        return _read(path)
    except OSError:
        return None


def _module_paths(folder: str | Path, name: str) -> Iterator[tuple[str, str]]:
    """Every module below a package's folder; islands may be links.

    Paths are text: this looks at the whole package for every digest, and `Path` costs more than the looking.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise CodeError(f"cannot list {folder}, the folder of {name}: {error.strerror}") from error
    for entry in entries:
        if entry.name == _PACKAGE_FILE:
            yield name, entry.path
        elif entry.name.endswith(".py"):
            yield f"{name}.{entry.name.removesuffix('.py')}", entry.path
        elif entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir():
            yield from _module_paths(entry.path, f"{name}.{entry.name}")


def _is_below(name: str, modules: frozenset[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
