"""The code digest: what the roots of a stage reach inside the package, by syntax and without importing anything.

From each root one follows the names that it uses: in its own module, through imports, as attributes of modules;
base classes, decorators, defaults and annotations too. Counted are the definitions reached, the imports that bind
the names used (those of other people's packages by name: their versions are in the recipe), and the module-level
statements with effects of every module that gets imported on the way. Not counted: docstrings and comments.
"""

import contextlib
import difflib
import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import rnnsearch
from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.syntax import Chain, Import, Module, parse_module

EFFECTS = "<module>"
"""Symbol of a module's statements with effects."""

_PACKAGE_FILE = "__init__.py"
_LOADER = "rnnsearch.storage.loading"  # every module passes through it, and it decides what none of them does
_DYNAMIC_BUILTINS = frozenset({"__import__", "eval", "exec"})
_DYNAMIC_MODULES = frozenset({"importlib", "runpy", "pkgutil", "zipimport", "imp"})
_HARMLESS = frozenset({"metadata", "resources"})  # of importlib: they read files, and run no code


class CodeError(StoreError):
    """The code that roots reach cannot be told from the syntax alone, or a root does not exist."""


class CodeDigest(NamedTuple):
    """What decides a stage on the side of code."""

    digest: Digest  # of the canonical JSON of the parts
    parts: Mapping[str, str]  # `module:symbol` or `file:path` to the digest of its syntax or bytes
    sources: Mapping[str, str]  # `module:symbol` to its text as it stands in the file


def code_digest(
    roots: Iterable[str],
    data: Iterable[str] = (),
    *,
    outside: Iterable[str] = (),
    package: Path | None = None,
    name: str = "rnnsearch",
) -> CodeDigest:
    """The digest of the code that `roots` reach.

    A root is `rnnsearch.pipeline.clean:clean_shard`, or a module for all that is in it; `data` are other files, by
    their path inside the package. The search does not go into the modules `outside` (nor those below them), as if
    they were other people's: they must not decide bytes, or be roots themselves. `package` is the folder of the
    package called `name`: by default where this one lies. CodeError for an unknown root or file, a star import, or
    code that imports or executes text.
    """
    folder = package if package is not None else Path(rnnsearch.__path__[0])
    reach = _Reach(folder, name, frozenset((*outside, _LOADER)))
    with _collector_paused():
        for root in roots:
            module, _, symbol = root.partition(":")
            reach.root(module, symbol)
    for path in data:
        reach.data(path)
    parts = dict(sorted(reach.parts.items()))
    return CodeDigest(hash_bytes(canonical_json(parts)), parts, dict(sorted(reach.sources.items())))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's collector looks at every node of the growing trees, again and again: a third of the time."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class _Reach:
    """The search from the roots."""

    def __init__(self, folder: Path, name: str, outside: frozenset[str]) -> None:
        self.parts: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self._folder = folder
        self._name = name
        self._outside = outside
        self._paths = dict(_module_paths(folder, name))
        self._modules: dict[str, Module] = {}
        self._entered: set[str] = set()
        self._waiting: list[tuple[Module, str]] = []
        self._whole: set[str] = set()

    def root(self, name: str, symbol: str) -> None:
        """Reach a symbol, or a whole module."""
        module = self._module(name)
        if module is None:
            raise CodeError(
                f"no module {name} in {self._folder}; a root is written as {self._name}.module:symbol"
            )
        if not symbol:
            self._reach_whole(module)
        elif symbol in module.definitions or symbol in module.imports:
            self._resolve(module, (symbol,), f"the root {name}")
        else:
            near = difflib.get_close_matches(symbol, module.definitions, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CodeError(f"{name} has no {symbol} at its top level{hint}")
        self._drain()

    def data(self, path: str) -> None:
        """Count a file that is not Python."""
        try:
            content = (self._folder / path).read_bytes()
        except OSError as error:
            raise CodeError(
                f"cannot read the declared file {path} in {self._folder}: {error.strerror}"
            ) from error
        self.parts[f"file:{path}"] = hash_bytes(content)

    def _drain(self) -> None:
        while self._waiting:
            module, symbol = self._waiting.pop()
            uses = module.uses_of(symbol)
            place = f"{module.name}:{symbol or EFFECTS}"
            if uses.hidden is not None:
                raise CodeError(
                    f"{place} uses {uses.hidden}: classes found by existing hide code from the digest; "
                    "name them in a list"
                )
            for chain in uses.chains:
                self._resolve(module, chain, place)
            for target in uses.imports:
                self._follow(module.name, target, (), place)

    def _enter(self, module: Module) -> None:
        """Count what happens when a module is imported."""
        if module.name in self._entered:
            return
        self._entered.add(module.name)
        if module.star is not None:
            raise CodeError(
                f"{module.name} imports everything from {module.star}: the syntax does not tell what that is; "
                "name what is used"
            )
        if module.effects:
            self.parts[f"{module.name}:{EFFECTS}"] = module.hash_of("")
            self.sources[f"{module.name}:{EFFECTS}"] = module.source_of("")
            self._waiting.append((module, ""))
        parent = self._module(module.name.rpartition(".")[0])
        if parent is not None:
            self._enter(parent)
        for target in module.loaded:
            for name in (target.whole or target.module, f"{target.module}.{target.symbol}"):
                if not self._is_cut(module.name, name) and (loaded := self._module(name)) is not None:
                    self._enter(loaded)

    def _reach(self, module: Module, symbol: str) -> None:
        """Count a definition and queue what it uses, or follow the import that binds the name."""
        self._enter(module)
        place = f"{module.name}:{symbol}"
        if place in self.parts:
            return
        targets = module.imports.get(symbol, [])
        bindings = [f"{target.whole or target.module}:{target.symbol or ''}" for target in targets]
        if symbol in module.definitions:
            self.parts[place] = hash_bytes("\n".join([module.hash_of(symbol), *bindings]).encode())
            self.sources[place] = module.source_of(symbol)
            self._waiting.append((module, symbol))
        else:
            self.parts[place] = hash_bytes("\n".join(bindings).encode())

    def _resolve(self, module: Module, chain: Chain, place: str) -> None:
        """Reach what a chain of names means in a module."""
        name = chain[0]
        known = name in module.definitions or name in module.imports
        if known:
            self._reach(module, name)
            for target in module.imports.get(name, ()):
                self._follow(module.name, target, chain[1:], place)
        elif name in _DYNAMIC_BUILTINS:
            raise CodeError(
                f"{place} uses {name}: the syntax does not tell what that runs; call functions by name"
            )
        elif name in {"globals", "vars"}:
            self._reach_whole(module)

    def _follow(self, user: str, target: Import, rest: Chain, place: str) -> None:
        """Reach what an import in the module `user` and the attributes after it mean."""
        if not self._is_ours(target.module):
            self._check_foreign(target, rest, place)
            return
        if target.symbol is not None:
            rest = (target.symbol, *rest)
        self._reach_attribute(user, target.module, rest)

    def _reach_attribute(self, user: str, name: str, chain: Chain) -> None:
        """Reach `chain` in a module: a name of it, a submodule's, or all of it where it is used as a value."""
        if self._is_cut(user, name):
            return
        module = self._module(name)
        if module is None:
            raise CodeError(f"no module {name} in {self._folder}, but {user} imports it")
        self._enter(module)
        if not chain:
            self._reach_whole(module)
            return
        symbol = chain[0]
        if symbol in module.definitions or symbol in module.imports:
            self._resolve(module, chain, module.name)
        elif f"{name}.{symbol}" in self._paths:
            self._reach_attribute(user, f"{name}.{symbol}", chain[1:])
        elif "__getattr__" in module.definitions:
            self._reach(module, "__getattr__")
        elif not symbol.startswith("__"):  # __name__, __file__ … every module has
            raise CodeError(f"{name} has no {symbol} at its top level, but it is used")

    def _reach_whole(self, module: Module) -> None:
        self._enter(module)
        if module.name in self._whole:
            return
        self._whole.add(module.name)
        for symbol in [*module.definitions, *module.imports]:
            self._resolve(module, (symbol,), module.name)

    def _check_foreign(self, target: Import, rest: Chain, place: str) -> None:
        names = [*(target.whole or target.module).split("."), *([target.symbol] if target.symbol else [])]
        path = [target.module, *rest] if target.whole else [*names, *rest]
        if path[0] in _DYNAMIC_MODULES and not (len(path) > 1 and path[1] in _HARMLESS):
            raise CodeError(
                f"{place} uses {'.'.join(path)}: a dynamic import hides code from the digest; import it at the top"
            )
        if path[:2] == ["sys", "modules"] or (path[0] == "builtins" and path[-1] in _DYNAMIC_BUILTINS):
            raise CodeError(f"{place} uses {'.'.join(path)}: it hides code from the digest; import by name")

    def _is_ours(self, name: str) -> bool:
        return name == self._name or name.startswith(f"{self._name}.")

    def _is_cut(self, user: str, name: str) -> bool:
        """Whether the way from one module to another leads outside."""
        return _is_below(name, self._outside) and not _is_below(user, self._outside)

    def _module(self, name: str) -> Module | None:
        """The module of a name, or None if the package has none such."""
        if name in self._paths and name not in self._modules:
            self._modules[name] = _parse(name, self._paths[name])
        return self._modules.get(name)


def _parse(name: str, path: Path) -> Module:
    try:
        return parse_module(name, path.read_bytes(), is_package=path.name == _PACKAGE_FILE)
    except OSError as error:
        raise CodeError(f"cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        raise CodeError(f"{path}, line {error.lineno}: {error.msg}; mend it first") from error


def _module_paths(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Every module below a package's folder; islands may be links."""
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise CodeError(f"cannot list {folder}, the folder of {name}: {error.strerror}") from error
    for entry in entries:
        if entry.name == _PACKAGE_FILE:
            yield name, folder / entry.name
        elif entry.name.endswith(".py"):
            yield f"{name}.{entry.name.removesuffix('.py')}", folder / entry.name
        elif entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir():
            yield from _module_paths(folder / entry.name, f"{name}.{entry.name}")


def _is_below(name: str, modules: frozenset[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
