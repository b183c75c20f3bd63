"""The code digest: what the roots of a stage reach inside the package, by syntax and without importing anything.

From each root one follows the names that it uses: in its own module, through imports, as attributes of modules;
base classes, decorators, defaults and annotations too. Counted are the definitions reached, the imports that bind
the names used (those of other people's packages by name: their versions are in the recipe), and the module-level
statements with effects of every module that gets imported on the way. Not counted: docstrings and comments.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import rnnsearch
from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.syntax import Chain, Import, Module, parse_module

EFFECTS = "<module>"
"""Symbol of a module's statements with effects."""

_DYNAMIC_BUILTINS = frozenset({"__import__", "eval", "exec"})
_DYNAMIC_MODULES = frozenset({"importlib", "runpy", "pkgutil", "zipimport", "imp"})
_HARMLESS = frozenset({"metadata", "resources"})  # of importlib: they read files, and run no code


class CodeError(StoreError):
    """The code that roots reach cannot be told from the syntax alone, or a root does not exist."""


class CodeDigest(NamedTuple):
    """What decides a stage on the side of code."""

    digest: Digest  # of the canonical JSON of the parts
    parts: Mapping[str, str]  # `module:symbol` or `file:path` to the digest of its syntax or bytes


def code_digest(
    roots: Iterable[str], data: Iterable[str] = (), *, package: Path | None = None, name: str = "rnnsearch"
) -> CodeDigest:
    """The digest of the code that `roots` reach.

    A root is `rnnsearch.pipeline.clean:clean_shard`, or a module for all that is in it; `data` are other files, by
    their path inside the package. `package` is the folder of the package called `name`: by default where this one
    lies. CodeError for an unknown root or file, a star import, or code that imports or executes text.
    """
    folder = package if package is not None else Path(rnnsearch.__path__[0])
    reach = _Reach(folder, name)
    for root in roots:
        module, _, symbol = root.partition(":")
        reach.root(module, symbol)
    for path in data:
        reach.data(path)
    parts = dict(sorted(reach.parts.items()))
    return CodeDigest(hash_bytes(canonical_json(parts)), parts)


class _Reach:
    """The search from the roots."""

    def __init__(self, folder: Path, name: str) -> None:
        self.parts: dict[str, str] = {}
        self._folder = folder
        self._name = name
        self._modules: dict[str, Module | None] = {}
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
            self._reach(module, symbol)
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
            for chain in uses.chains:
                self._resolve(module, chain, place)
            for target in uses.imports:
                self._follow(target, (), place)

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
            self._waiting.append((module, ""))
        parent = self._module(module.name.rpartition(".")[0])
        if parent is not None:
            self._enter(parent)
        for target in module.loaded:
            for name in (target.whole or target.module, f"{target.module}.{target.symbol}"):
                if (loaded := self._module(name)) is not None:
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
                self._follow(target, chain[1:], place)
        elif name in _DYNAMIC_BUILTINS:
            raise CodeError(
                f"{place} uses {name}: the syntax does not tell what that runs; call functions by name"
            )
        elif name in {"globals", "vars"}:
            self._reach_whole(module)

    def _follow(self, target: Import, rest: Chain, place: str) -> None:
        """Reach what an import and the attributes after it mean."""
        if not self._is_ours(target.module):
            self._check_foreign(target, rest, place)
        elif target.whole is not None:
            self._enter_all(target.whole)
            self._reach_attribute(target.module, rest)
        elif target.symbol is None:
            self._reach_attribute(target.module, rest)
        else:
            self._reach_attribute(target.module, (target.symbol, *rest))

    def _enter_all(self, name: str) -> None:
        module = self._module(name)
        if module is not None:
            self._enter(module)

    def _reach_attribute(self, name: str, chain: Chain) -> None:
        """Reach `chain` in a module: a name of it, a submodule's, or all of it where it is used as a value."""
        module = self._module(name)
        if module is None:
            raise CodeError(f"no module {name} in {self._folder}, but it is imported")
        self._enter(module)
        if not chain:
            self._reach_whole(module)
            return
        symbol = chain[0]
        if symbol in module.definitions or symbol in module.imports:
            self._resolve(module, chain, module.name)
        elif self._module(f"{name}.{symbol}") is not None:
            self._reach_attribute(f"{name}.{symbol}", chain[1:])
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

    def _module(self, name: str) -> Module | None:
        """The module of a name, or None if the package has none such."""
        if name not in self._modules:
            self._modules[name] = self._parse(name) if self._is_ours(name) else None
        return self._modules[name]

    def _parse(self, name: str) -> Module | None:
        parts: Sequence[str] = name.split(".")[1:]
        base = self._folder.joinpath(*parts)
        candidates = [(base / "__init__.py", True)]
        if parts:
            candidates.append((base.with_name(f"{base.name}.py"), False))
        for path, is_package in candidates:
            try:
                source = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise CodeError(f"cannot read {path}: {error.strerror}") from error
            try:
                return parse_module(name, source, is_package=is_package)
            except SyntaxError as error:
                raise CodeError(f"{path}, line {error.lineno}: {error.msg}; mend it first") from error
        return None
