"""One module's syntax tree, taken apart without importing it: what it defines, imports and runs, and what is local.

A chain such as `("schemas", "PAIRS")` is a name and the attributes taken of it.
"""

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Chain = tuple[str, ...]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_LEAVES = (ast.Constant, ast.Lambda)  # in which no name of the scope around is bound


class Import(NamedTuple):
    """What a name is bound to by an import: a module, or a symbol of one."""

    module: str
    symbol: str | None  # None: the module itself
    whole: str | None = None  # of `import a.b.c`: a.b.c, where the name bound is `a`


class Bindings(NamedTuple):
    """The names that a scope binds."""

    stored: set[str]
    imports: dict[str, Import]  # those of `stored` that only imports bind
    released: set[str]  # declared global


class Module:
    """The syntax of one module."""

    def __init__(self, name: str, source: bytes, *, is_package: bool) -> None:
        """Parse the source and sort its top-level statements; SyntaxError as Python's parser."""
        tree = ast.parse(source)
        self.name = name
        self.source = source
        self.package = name if is_package else name.rpartition(".")[0]
        self.is_package = is_package
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, list[Import]] = {}
        self.loaded: list[Import] = []  # at import time, so not those for type checkers
        self.star: str | None = None  # a module of which everything is imported
        self.statements = tree.body
        self.docstring = ast.get_docstring(tree, clean=False)
        self.names_files = b"__file__" in source or b"resources" in source
        for statement in tree.body:
            self._sort(statement, loaded=True)

    def source_of(self, statements: Iterable[ast.stmt]) -> str:
        """The text of statements as it stands in the file, decorators included."""
        found = []
        for statement in statements:
            decorators = getattr(statement, "decorator_list", [])
            first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
            found.append("\n".join(self._lines[first - 1 : statement.end_lineno]))
        return "\n".join(found) + "\n"

    @functools.cached_property
    def _lines(self) -> Sequence[str]:
        return self.source.decode("utf-8", "replace").split("\n")

    @functools.cached_property
    def declared_global(self) -> frozenset[str]:
        """The names that functions of the module declare global."""
        if b"global" not in self.source:
            return frozenset()
        nodes = (node for statement in self.statements for node in ast.walk(statement))
        return frozenset(name for node in nodes if isinstance(node, ast.Global) for name in node.names)

    def _sort(self, statement: ast.stmt, *, loaded: bool, around: ast.stmt | None = None) -> None:
        """Note the names that a statement binds; `around` is the top-level compound statement that it stands in."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                self._sort_import(statement, loaded=loaded)
            case ast.If() if for_type_checkers(statement):
                for inner in statement.body:
                    self._sort(inner, loaded=False, around=around)
                for inner in statement.orelse:
                    self._sort(inner, loaded=loaded, around=around)
            case ast.If() | ast.Try() | ast.TryStar() | ast.With() | ast.For() | ast.While() | ast.Match():
                for name in bindings((statement,)).stored:
                    self._define(name, around or statement)
                for inner in inner_statements(statement):
                    self._sort(inner, loaded=loaded, around=around or statement)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(statement.name, around or statement)
            case _:
                for name in bindings((statement,)).stored:
                    self._define(name, around or statement)
                if isinstance(statement, ast.Assign | ast.AugAssign | ast.Delete):
                    self._sort_items(statement)

    def _sort_items(self, statement: ast.Assign | ast.AugAssign | ast.Delete) -> None:
        """`TABLE["a"] = 1` and `TABLE.a = 1` are part of what TABLE is."""
        targets = [statement.target] if isinstance(statement, ast.AugAssign) else statement.targets
        for target in targets:
            node: ast.expr = target
            while isinstance(node, ast.Subscript | ast.Attribute):
                node = node.value
            if node is not target and isinstance(node, ast.Name) and node.id in self.definitions:
                self._define(node.id, statement)

    def _sort_import(self, statement: ast.Import | ast.ImportFrom, *, loaded: bool) -> None:
        for name, target in imported(statement, self.package):
            if name == "*":
                self.star = target.module
            self.imports.setdefault(name, []).append(target)
            if loaded:
                self.loaded.append(target)

    def _define(self, name: str, statement: ast.stmt) -> None:
        statements = self.definitions.setdefault(name, [])
        if statement not in statements:
            statements.append(statement)


@functools.lru_cache(maxsize=2048)
def parse_module(name: str, source: bytes, *, is_package: bool) -> Module:
    """The module of this name and source; SyntaxError as Python's parser."""
    return Module(name, source, is_package=is_package)


def imported(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    """The names that an import statement binds, and to what; `package` is where relative ones start."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, None)
            else:
                root = alias.name.partition(".")[0]
                yield root, Import(root, None, alias.name)
        return
    base = statement.module or ""
    if statement.level:
        parents = package.split(".")[: len(package.split(".")) - statement.level + 1]
        base = ".".join([*parents, base] if base else parents)
    for alias in statement.names:
        yield alias.asname or alias.name, Import(base, alias.name)


def counts_for_nothing(node: ast.AST) -> bool:
    """Whether a statement does nothing: `pass`, a docstring, another constant on its own."""
    if isinstance(node, ast.Pass):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def binds_names(target: ast.expr) -> bool:
    """Whether an assignment to `target` only binds names: it changes no object."""
    match target:
        case ast.Name():
            return True
        case ast.Starred():
            return binds_names(target.value)
        case ast.Tuple() | ast.List():
            return all(binds_names(part) for part in target.elts)
    return False


def for_type_checkers(statement: ast.stmt) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`, whose body never runs."""
    if not isinstance(statement, ast.If):
        return False
    chain = chain_of(statement.test)
    return chain is not None and chain[-1] == "TYPE_CHECKING"


def chain_of(node: ast.AST) -> Chain | None:
    """The names of `a.b.c`, or None for another expression."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else None


def inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements one level inside a compound statement."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def bindings(nodes: Iterable[ast.AST], package: str = "") -> Bindings:
    """The names bound by `nodes` in their own scope, not in functions, classes and lambdas inside.

    `package` is where relative imports start.
    """
    names: set[str] = set()
    imports: dict[str, Import] = {}
    elsewhere: set[str] = set()
    released: set[str] = set()
    waiting: list[tuple[ast.AST, bool]] = [(node, False) for node in nodes]  # with: inside a comprehension?
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.Name):
            if not inside and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            continue
        if isinstance(node, _LEAVES):
            continue
        match node:
            case ast.NamedExpr():  # binds outside of the comprehension that it stands in
                names.add(node.target.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                continue
            case ast.Import() | ast.ImportFrom():
                imports.update(imported(node, package))
            case ast.Global():
                released.update(node.names)
            case ast.Nonlocal():
                elsewhere.update(node.names)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
                names.update({node.name} if node.name else ())
            case ast.MatchMapping():
                names.update({node.rest} if node.rest else ())
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inside = True
        waiting.extend((child, inside) for child in children(node))
    only = {name: target for name, target in imports.items() if name not in names}
    return Bindings({*names, *imports} - elsewhere - released, only, released)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes below one, as `ast.iter_child_nodes` but quicker, and without Load, Store and Del."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found.extend([item for item in value if isinstance(item, ast.AST)])
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a function, `*args` and `**kwargs` last."""
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]
