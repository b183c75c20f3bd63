"""Random refactorings of the real pipeline keep the code digest of every stage; random changes do not."""

import ast
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import rnnsearch
from rnnsearch.flows.dag import build
from rnnsearch.flows.recipe import BOUNDARY
from rnnsearch.flows.settings import load_settings
from rnnsearch.storage.code import CodeDigest, code_digest

ISLAND = "rnnsearch.pipeline"
ROOTS = {stage.kind: stage.roots for stage in build(load_settings("smoke"))}
MOVES, CHANGES = 6, 12  # of each kind, and in all: a whole package is read and written for each


class Copy:
    """A copy of the package that can be refactored; roots follow."""

    def __init__(self, folder: Path) -> None:
        ignore = shutil.ignore_patterns("__pycache__", "*.toml", "smoke*", "templates", "web")
        self.folder = shutil.copytree(rnnsearch.__path__[0], folder / "rnnsearch", ignore=ignore)
        self.roots = dict(ROOTS)
        self.made = 0

    def codes(self) -> dict[str, CodeDigest]:
        return {kind: self.code(kind) for kind in self.roots}

    def code(self, kind: str) -> CodeDigest:
        files = [root for root in self.roots[kind] if "/" in root]
        code = [root for root in self.roots[kind] if "/" not in root]
        return code_digest(code, files, outside=BOUNDARY, package=self.folder)

    def path(self, module: str) -> Path:
        path = self.folder.joinpath(*module.split(".")[1:])
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def rename(self, module: str, symbol: str) -> bool:
        """Give a function or a constant another name, if the name means nothing else in its module."""
        text = self.path(module).read_text()
        tree = ast.parse(text)
        names = sum(isinstance(node, ast.Name) and node.id == symbol for node in ast.walk(tree))
        names += sum(isinstance(node, ast.FunctionDef) and node.name == symbol for node in tree.body)
        if names != len(re.findall(rf"\b{symbol}\b", text)) or self._is_attribute(module, symbol):
            return False
        self.made += 1
        new = f"renamed_{self.made}"
        self.path(module).write_text(re.sub(rf"\b{symbol}\b", new, text))
        self._redirect(module, symbol, module, new)
        return True

    def move(self, module: str, symbol: str) -> bool:
        """Move a function into a module of its own, which imports what it needs."""
        text = self.path(module).read_text()
        tree = ast.parse(text)
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == symbol]
        if not found or found[0].decorator_list or self._is_attribute(module, symbol):
            return False
        self.made += 1
        new = f"{ISLAND}.moved_{self.made}"
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        others = {name for node in tree.body for name in _defined(node)} - {symbol}
        used = {node.id for node in ast.walk(found[0]) if isinstance(node, ast.Name)} & others
        lines = [ast.unparse(node) for node in imports]
        lines += [f"from {module} import {name}" for name in sorted(used)]
        lines.append(ast.unparse(found[0]))
        self.path(new).write_text("\n".join(lines) + "\n")
        tree.body[tree.body.index(found[0])] = ast.ImportFrom(new, [ast.alias(symbol)], 0)
        self.path(module).write_text(ast.unparse(ast.fix_missing_locations(tree)))
        self._redirect(module, symbol, new, symbol)
        return True

    def _is_attribute(self, module: str, symbol: str) -> bool:
        last = module.rpartition(".")[2]
        return any(
            re.search(rf"\b{last}\.{symbol}\b", path.read_text()) for path in self.folder.rglob("*.py")
        )

    def _redirect(self, module: str, symbol: str, new_module: str, new: str) -> None:
        """Make every other module, and the roots, import from the new place under the old name."""
        for path in self.folder.rglob("*.py"):
            text = path.read_text()
            if module not in text or path in (self.path(module), self.path(new_module)):
                continue
            tree = ast.parse(text)
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module == module:
                    moved = [alias for alias in node.names if alias.name == symbol]
                    if not moved:
                        continue
                    kept = [alias for alias in node.names if alias not in moved]
                    line = ast.ImportFrom(new_module, [ast.alias(new, moved[0].asname or symbol)], 0)
                    node.names = kept or line.names
                    node.module = module if kept else new_module
                    if kept:
                        tree.body.insert(1, line)
            path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        old = f"{module}:{symbol}"
        for kind, roots in self.roots.items():
            self.roots[kind] = tuple(f"{new_module}:{new}" if root == old else root for root in roots)


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            )
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _reached(codes: Mapping[str, CodeDigest]) -> list[tuple[str, str]]:
    places = {place for code in codes.values() for place in code.parts if place.startswith(f"{ISLAND}.")}
    return [tuple(place.split(":")) for place in sorted(places) if "<" not in place and "(" not in place]  # type: ignore[misc]


@pytest.mark.parametrize("seed", [1])
def test_random_moves_and_renames_leave_the_codes_of_all_stages(tmp_path: Path, seed: int) -> None:
    copy, chance = Copy(tmp_path), random.Random(seed)
    before = copy.codes()
    done = Counter[str]()
    places = _reached(before)
    chance.shuffle(places)
    for module, symbol in places:
        kind = chance.choice(["rename", "move"])
        done[kind] += getattr(copy, kind)(module, symbol)
        if min(done["rename"], done["move"]) >= MOVES:
            break
    assert min(done["rename"], done["move"]) >= MOVES
    after = copy.codes()
    assert [kind for kind in before if before[kind].digest != after[kind].digest] == []


def _mutations(tree: ast.AST) -> Iterator[ast.AST]:
    """The operators, constants and names called in a function, outside of what does not count."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns"} or isinstance(tree, ast.Raise | ast.Assert):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.AST):
                yield from _mutations(child)
    if isinstance(tree, ast.BinOp | ast.Compare | ast.Constant) or (
        isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name | ast.Attribute)
    ):
        yield tree


def _mutate(node: ast.AST) -> None:
    match node:
        case ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case ast.Compare():
            node.ops[0] = ast.NotEq() if isinstance(node.ops[0], ast.Eq) else ast.Eq()
        case ast.Constant():
            node.value = (
                1
                if node.value is None or isinstance(node.value, bytes)
                else node.value * 2 + type(node.value)(1)
            )
        case ast.Call():
            node.func = ast.Name("print" if ast.unparse(node.func) != "print" else "repr")


@pytest.mark.parametrize("seed", [3])
def test_random_changes_of_operators_constants_and_calls_change_the_codes(tmp_path: Path, seed: int) -> None:
    copy, chance = Copy(tmp_path), random.Random(seed)
    before = copy.codes()
    places = _reached(before)
    made = 0
    while made < CHANGES:
        module, symbol = chance.choice(places)
        path = copy.path(module)
        text = path.read_text()
        tree = ast.parse(text)
        body = [node for node in tree.body if symbol in _defined(node)]
        found = [each for node in body for each in _mutations(node)]
        if not found:
            continue
        node = chance.choice(found)
        was = ast.unparse(node)
        _mutate(node)
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        kinds = [kind for kind, code in before.items() if f"{module}:{symbol}" in code.parts]
        for kind in kinds[:2]:
            assert copy.code(kind).digest != before[kind].digest, (
                f"{module}:{symbol}: {was} -> {ast.unparse(node)}"
            )
        path.write_text(text)
        made += 1
