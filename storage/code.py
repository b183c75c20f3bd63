"""The code digest: what the roots of a stage reach inside the package, by content and without importing anything.

A definition's digest is that of its canonical syntax in which every reference is replaced by the digest of what it
refers to; definitions that refer to each other in a circle are hashed as one group. Names and places do not count.
Counted as well are the statements with effects of every module that is imported on the way, and the bytes of files
that the code names.
"""

import ast
import contextlib
import difflib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import rnnsearch
from rnnsearch.storage.definition import Key, Written, write_definition, write_hints
from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes
from rnnsearch.storage.effects import Effects
from rnnsearch.storage.package import CodeError, Package
from rnnsearch.storage.parts import Part
from rnnsearch.storage.syntax import Module

__all__ = ["CodeDigest", "CodeError", "code_digest"]

_LOADER = "rnnsearch.storage.loading"  # every module passes through it, and it decides what none of them does
_KEPT = 4  # packages whose digests are remembered
_PACKAGES: dict[tuple[Path, str, frozenset[str]], "_Graph"] = {}


class CodeDigest(NamedTuple):
    """What decides a stage on the side of code."""

    digest: Digest  # of the content of what is reached
    parts: Mapping[str, str]  # `module:symbol` or `file:path` to a `Part` as text
    sources: Mapping[str, str]  # `module:symbol` or `file:path` to its text


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
    package called `name`: by default where this one lies. CodeError for an unknown root or file, and for code or
    files that the syntax does not name: a star import, a dynamic import, text that is executed.
    """
    folder = package if package is not None else Path(rnnsearch.__path__[0])
    with _collector_paused():
        return _graph(folder, name, frozenset((*outside, _LOADER))).digest(tuple(roots), tuple(data))


def _graph(folder: Path, name: str, outside: frozenset[str]) -> "_Graph":
    """The graph of the package as it is now; what an earlier call found stands while no file changed."""
    key = (folder, name, outside)
    known = _PACKAGES.pop(key, None)
    graph = known if known is not None and known.package.is_current() else _Graph(Package(*key))
    _PACKAGES[key] = graph
    while len(_PACKAGES) > _KEPT:
        del _PACKAGES[next(iter(_PACKAGES))]
    return graph


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


class _Reached(NamedTuple):
    """What roots reach."""

    keys: tuple[Key, ...]  # in the order in which they are met
    entered: tuple[str, ...]  # modules that are imported
    reads: frozenset[str]  # see `Written.reads`


class _Graph:
    """The definitions of one package and their references, looked at as far as somebody asked."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._effects = Effects(package)
        self._written: dict[Key, Written] = {}
        self._full: dict[Key, str] = {}
        self._acting: dict[str, bool] = {}
        self._loads: dict[str, Sequence[str]] = {}
        self._tops_of: dict[str, list[Key]] = {}
        self._functions: dict[Key, bool] = {}
        self._parts: dict[Key, str] = {}
        self._digests: dict[tuple[Sequence[str], Sequence[str]], CodeDigest] = {}

    def digest(self, roots: tuple[str, ...], data: tuple[str, ...]) -> CodeDigest:
        """The digest of what roots and data files reach."""
        if (roots, data) not in self._digests:
            self._digests[roots, data] = self._digest(roots, data)
        return self._digests[roots, data]

    def _digest(self, roots: Sequence[str], data: Sequence[str]) -> CodeDigest:
        starts = [self._starts(root) for root in roots]
        named = [key for group in starts for key in group]
        reached = self._reach(named)
        hints: list[Key] = []
        while "hints" in reached.reads:
            values = {value for key in reached.keys for value in self.written(key).values}
            wanted = [key for key in reached.keys if key in values or f"{key.module}:{key.symbol}" in roots]
            found = [Key("hints", key.module, key.symbol) for key in wanted if self._has_hints(key)]
            if found == hints:
                break
            hints = found
            reached = self._reach([*named, *hints])
        effects = [Key("effects", name, "") for name in reached.entered if self._acts(name)]
        files = [Key("file", "", path) for path in data]
        content = {
            "roots": [sorted(self.full(key) for key in group) for group in starts],
            "files": [self.full(key) for key in files],
            "effects": sorted(self.full(key) for key in effects),
            "hints": [self.full(key) for key in hints],
            "shared": self._shared(reached.keys),
            "facets": [facet.own for facet in self._facets(reached).values()],
        }
        keys = [key for key in (*reached.keys, *files) if key.kind != "module"]
        parts = {key.place: self._part(key) for key in keys}
        parts |= {place: part.to_text() for place, part in self._facets(reached).items()}
        sources = {key.place: self._source(key) for key in keys if key.kind != "hints"}
        return CodeDigest(
            hash_bytes(canonical_json(content)), dict(sorted(parts.items())), dict(sorted(sources.items()))
        )

    def written(self, key: Key) -> Written:
        """The canonical syntax of what is reached."""
        if key not in self._written:
            self._written[key] = self._write(key)
        return self._written[key]

    def full(self, key: Key) -> str:
        """The digest of something with all that it refers to."""
        if key not in self._full:
            self._hash_from(key)
        return self._full[key]

    def _write(self, key: Key) -> Written:
        if key.kind == "file":
            return _plain(hash_bytes(self.package.file(key.symbol)))
        module = self.package.known_module(key.module)
        if key.kind == "module":
            names = sorted({*module.definitions, *module.imports})
            targets = [self.package.resolve(module, (name,), key.place) for name in names]
            ours = [
                (
                    name,
                    Key(
                        "definition" if target.kind == "definition" else "module", target.module, target.name
                    ),
                )
                for name, target in zip(names, targets, strict=True)
                if target.kind in {"definition", "module"}
            ]
            entered = {name for target in targets for name in target.through} | {key.module}
            words = [
                each for name, target in zip(names, targets, strict=True) for each in (name, target.kind)
            ]
            foreign = [target.name for target in targets if target.kind == "foreign"]
            own = hash_bytes("\x1f".join([*words, *foreign]).encode())
            return Written(
                own, tuple(each for _, each in ours), frozenset(), "", frozenset(entered), frozenset()
            )
        statements = self._statements(key, module)
        write = write_hints if key.kind == "hints" else write_definition
        return write(self.package, module, key, statements)

    def _statements(self, key: Key, module: Module) -> Sequence[ast.stmt]:
        if key.kind == "effects":
            return self._effects.of(module)
        return module.definitions.get(key.symbol, [])

    def _starts(self, root: str) -> list[Key]:
        """What a root means: a definition, or those of a module that no other one of it refers to."""
        name, _, symbol = root.partition(":")
        module = self.package.module(name)
        if module is None:
            raise CodeError(
                f"no module {name} in {self.package.folder}; a root is written as {self.package.name}.module:symbol"
            )
        if not symbol:
            if name not in self._tops_of:
                self._tops_of[name] = self._tops(module)
            return self._tops_of[name]
        if symbol not in module.definitions and symbol not in module.imports:
            near = difflib.get_close_matches(symbol, module.definitions, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CodeError(f"{name} has no {symbol} at its top level{hint}")
        target = self.package.resolve(module, (symbol,), f"the root {root}")
        if target.kind not in {"definition", "module"}:
            raise CodeError(
                f"the root {root} is not of this package: {symbol} is imported from {target.name}"
            )
        return [Key("definition" if target.kind == "definition" else "module", target.module, target.name)]

    def _tops(self, module: Module) -> list[Key]:
        keys = [Key("definition", module.name, symbol) for symbol in module.definitions]
        if not keys:
            return [Key("module", module.name, "")]
        below: set[Key] = set()
        tops: list[Key] = []
        reach = {key: self._below(key) for key in keys}
        for key in keys:
            if key in below:
                continue
            above = [other for other in keys if other != key and key in reach[other]]
            if all(other in reach[key] for other in above):  # of a circle the first stands for all
                tops.append(key)
                below |= reach[key]
        return sorted(tops, key=self.full)

    def _below(self, start: Key) -> set[Key]:
        """What a definition refers to, and so on."""
        met: set[Key] = set()
        waiting = [start]
        while waiting:
            key = waiting.pop()
            if key not in met:
                met.add(key)
                waiting.extend(self.written(key).references)
        return met

    def _reach(self, starts: Iterable[Key]) -> _Reached:
        """Follow references from the starts and from the effects of every module that is imported."""
        met: dict[Key, None] = {}
        entered: dict[str, None] = {}
        reads: set[str] = set()
        waiting = list(starts)[::-1]
        while waiting:
            key = waiting.pop()
            if key in met:
                continue
            met[key] = None
            written = self.written(key)
            reads |= written.reads
            waiting.extend(reversed(written.references))
            for name in sorted(written.entered.difference(entered)):
                waiting[:0] = self._enter(name, entered)
        return _Reached(tuple(met), tuple(entered), frozenset(reads))

    def _enter(self, name: str, entered: dict[str, None]) -> list[Key]:
        """Note that a module is imported, with those that it imports; their effects."""
        found: list[Key] = []
        waiting = [name]
        while waiting:
            here = waiting.pop()
            if here in entered or here not in self.package.paths:
                continue
            entered[here] = None
            if self._acts(here):
                found.append(Key("effects", here, ""))
            waiting += self._imports(here)
        return found

    def _imports(self, name: str) -> Sequence[str]:
        """The modules that run before a module does: the package around it, and what it imports."""
        if name not in self._loads:
            found = [name.rpartition(".")[0]]
            for target in self.package.known_module(name).loaded:
                found += [target.whole or target.module, f"{target.module}.{target.symbol}"]
            ours = (each for each in dict.fromkeys(found) if each in self.package.paths)
            self._loads[name] = [each for each in ours if not self.package.is_cut(name, each)]
        return self._loads[name]

    def _acts(self, name: str) -> bool:
        if name not in self._acting:
            self._acting[name] = bool(self._effects.of(self.package.known_module(name)))
        return self._acting[name]

    def _has_hints(self, key: Key) -> bool:
        """Whether it is a function."""
        if key not in self._functions:
            known = self.package.known_module(key.module) if key.kind == "definition" else None
            statements = known.definitions.get(key.symbol, []) if known is not None else []
            self._functions[key] = any(
                isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in statements
            )
        return self._functions[key]

    def _hash_from(self, start: Key) -> None:
        """Hash what `start` refers to before it, circles as one group (Tarjan's algorithm)."""
        number: dict[Key, int] = {}
        low: dict[Key, int] = {}
        path: list[Key] = []
        on_path: set[Key] = set()
        calls: list[tuple[Key, Iterator[Key]]] = []

        def begin(key: Key) -> None:
            number[key] = low[key] = len(number)
            path.append(key)
            on_path.add(key)
            calls.append((key, iter(self.written(key).references)))

        begin(start)
        while calls:
            key, left = calls[-1]
            for other in left:
                if other in self._full:
                    continue
                if other not in number:
                    begin(other)
                    break
                if other in on_path:
                    low[key] = min(low[key], number[other])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[key])
                if low[key] == number[key]:
                    place = path.index(key)
                    group = path[place:]
                    del path[place:]
                    on_path.difference_update(group)
                    self._hash_group(group)

    def _hash_group(self, group: Sequence[Key]) -> None:
        """Hash definitions that refer to each other: unfold each as often as there are members."""
        colours = {key: self.written(key).own for key in group}
        rounds = (
            1 if len(group) == 1 and group[0] not in self.written(group[0]).references else len(group) + 1
        )
        for _ in range(rounds):
            colours = {
                key: hash_bytes(
                    "\n".join(
                        [
                            self.written(key).own,
                            *(
                                colours[each] if each in colours else self._full[each]
                                for each in self.written(key).references
                            ),
                        ]
                    ).encode()
                )
                for key in group
            }
        self._full.update(colours)

    def _shared(self, keys: Sequence[Key]) -> list[int]:
        """Which of several classes or variables of equal content each reference means.

        Two empty classes of errors, or two empty tables, are equal by content and yet two.
        """
        count: dict[str, int] = {}
        for key in keys:
            if self._has_identity(key):
                count[self.full(key)] = count.get(self.full(key), 0) + 1
        numbers: dict[Key, int] = {}
        references = (each for key in keys for each in self.written(key).references)
        twins = (each for each in references if self._has_identity(each) and count[self.full(each)] > 1)
        return [numbers.setdefault(each, len(numbers)) for each in twins]

    def _has_identity(self, key: Key) -> bool:
        return key.kind == "definition" and not self._has_hints(key)

    def _facets(self, reached: _Reached) -> Mapping[str, Part]:
        """What counts only for stages that read it: the texts of errors, the names of classes and functions."""
        found: dict[str, Part] = {}
        for key in reached.keys:
            if key.kind not in {"definition", "effects"}:
                continue
            if "texts" in reached.reads and (texts := self.written(key).texts):
                found[f"{key.place} (texts)"] = Part(texts, texts)
            kinds = {"ClassDef"} if "class names" in reached.reads else set()
            if "names" in reached.reads:
                kinds |= {"ClassDef", "FunctionDef", "AsyncFunctionDef"}
            statements = self.package.known_module(key.module).definitions.get(key.symbol, [])
            if key.kind == "definition" and any(each.__class__.__name__ in kinds for each in statements):
                name = hash_bytes(key.symbol.encode())
                found[f"{key.place} (name)"] = Part(name, name)
        return found

    def _part(self, key: Key) -> str:
        if key not in self._parts:
            written = self.written(key)
            part = Part(written.own, self.full(key), tuple(each.place for each in written.references))
            self._parts[key] = part.to_text()
        return self._parts[key]

    def _source(self, key: Key) -> str:
        if key.kind == "file":
            return self.package.file(key.symbol).decode("utf-8", "replace")
        module = self.package.known_module(key.module)
        return module.source_of(self._statements(key, module))


def _plain(own: str) -> Written:
    return Written(own, (), frozenset(), "", frozenset(), frozenset())
