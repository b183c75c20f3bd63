"""One module's syntax tree, taken apart without importing it: its definitions, imports, effects, and what each uses.

Docstrings, comments, `pass` and bare strings do not count. A use is a chain such as `("schemas", "PAIRS")`: a name
that is not bound in a function around it, and the attributes taken of it.
"""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Chain = tuple[str, ...]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_LEAVES = (ast.Constant, ast.Lambda)  # in which no name of the scope around is bound
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_PURE_DECORATORS = {
    "abc": ("abstractmethod",),
    "contextlib": ("contextmanager", "asynccontextmanager"),
    "dataclasses": ("dataclass",),
    "enum": ("unique",),
    "functools": ("cache", "lru_cache", "total_ordering", "wraps"),
    "torch": ("inference_mode", "no_grad"),
    "typing": ("final", "overload", "override", "runtime_checkable"),
}
"""Decorators that only change what they decorate; any other may register it somewhere, which is an effect."""

_PURE = frozenset(
    chain
    for module, names in _PURE_DECORATORS.items()
    for name in names
    for chain in ((module, name), (name,))
)


class Import(NamedTuple):
    """What a name is bound to by an import: a module, or a symbol of one."""

    module: str
    symbol: str | None  # None: the module itself
    whole: str | None = None  # of `import a.b.c`: a.b.c, where the name bound is `a`


class Uses(NamedTuple):
    """What a piece of code refers to outside of itself."""

    chains: frozenset[Chain]
    imports: tuple[Import, ...]  # made inside functions
    hidden: str | None  # a way to find classes that are not named: `__subclasses__`, `__init_subclass__`


class _Scope(NamedTuple):
    stored: set[str]  # names bound in it
    released: set[str]  # declared global: the module's, whatever is around


class Module:
    """The syntax of one module. Results are kept, so that a module is looked at once."""

    def __init__(self, name: str, tree: ast.Module, lines: Sequence[str], *, is_package: bool) -> None:
        """Sort the top-level statements of a tree; `lines` are its text."""
        self.name = name
        self._lines = lines
        self.package = name if is_package else name.rpartition(".")[0]
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, list[Import]] = {}
        self.effects: list[ast.stmt] = []
        self.loaded: list[Import] = []  # at import time, so not those for type checkers
        self.star: str | None = None  # a module of which everything is imported
        self._hashes: dict[str, str] = {}
        self._uses: dict[str, Uses] = {}
        for statement in tree.body:
            self._sort(statement, loaded=True)
            if _has_effect(statement):
                self.effects.append(statement)

    def hash_of(self, symbol: str) -> str:
        """The digest of a definition's syntax; "" is the module's effects."""
        if symbol not in self._hashes:
            self._hashes[symbol] = hash_syntax(self._statements(symbol))
        return self._hashes[symbol]

    def source_of(self, symbol: str) -> str:
        """The text of a definition as it stands in the file, decorators included; "" is the module's effects."""
        found = []
        for statement in self._statements(symbol):
            decorators = getattr(statement, "decorator_list", [])
            first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
            found.append("\n".join(self._lines[first - 1 : statement.end_lineno]))
        return "\n".join(found) + "\n"

    def uses_of(self, symbol: str) -> Uses:
        """What a definition uses; "" is the module's effects."""
        if symbol not in self._uses:
            visitor = _UseVisitor(self.package)
            for statement in self._statements(symbol):
                visitor.visit(statement, frozenset())
            self._uses[symbol] = Uses(frozenset(visitor.chains), tuple(visitor.imports), visitor.hidden)
        return self._uses[symbol]

    def _statements(self, symbol: str) -> Sequence[ast.stmt]:
        return self.definitions[symbol] if symbol else self.effects

    def _sort(self, statement: ast.stmt, *, loaded: bool, around: ast.stmt | None = None) -> None:
        """Note the names that a statement binds; `around` is the top-level compound statement that it stands in."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                self._sort_import(statement, loaded=loaded)
            case ast.If() | ast.Try() | ast.TryStar() | ast.With() | ast.For() | ast.While() | ast.Match():
                run = loaded and not _for_type_checkers(statement)
                for name in _stored_names(statement):
                    self._define(name, around or statement)
                for inner in _inner_statements(statement):
                    self._sort(inner, loaded=run, around=around or statement)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(statement.name, around or statement)
            case _:
                for name in _stored_names(statement):
                    self._define(name, around or statement)

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
    lines = source.decode("utf-8", "replace").split("\n")
    return Module(name, ast.parse(source), lines, is_package=is_package)


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


def hash_syntax(nodes: Iterable[ast.AST]) -> str:
    """The digest of syntax trees, without positions and what does not count."""
    out: list[str] = []
    for node in nodes:
        _write_node(node, out)
    return hashlib.sha256("\x1f".join(out).encode("utf-8", "surrogatepass")).hexdigest()


def _write_node(node: ast.AST, out: list[str]) -> None:
    out.append(node.__class__.__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            if not isinstance(value, ast.expr_context):
                _write_node(value, out)
        elif isinstance(value, list):
            out.append("[")
            for item in value:
                if not isinstance(item, ast.AST):
                    out.append(repr(item))
                elif not _counts_for_nothing(item):
                    _write_node(item, out)
            out.append("]")
        elif name not in {"kind", "type_comment"}:  # u"" is ""
            out.append(repr(value))


def _counts_for_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.Pass):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _has_effect(statement: ast.stmt) -> bool:
    """Whether a module-level statement may do more than bind names."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return False
        case ast.Expr():
            return not isinstance(statement.value, ast.Constant)
        case ast.Assign():
            return not all(_binds_names(target) for target in statement.targets)
        case ast.AnnAssign() | ast.AugAssign():
            return not _binds_names(statement.target)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not _only_pure(statement.decorator_list)
        case ast.ClassDef():
            return bool(statement.keywords) or not _only_pure(statement.decorator_list)
        case ast.If() | ast.Try() | ast.TryStar():
            return any(_has_effect(inner) for inner in _inner_statements(statement))
    return statement.__class__.__name__ != "TypeAlias"  # Python 3.12


def _binds_names(target: ast.expr) -> bool:
    match target:
        case ast.Name():
            return True
        case ast.Starred():
            return _binds_names(target.value)
        case ast.Tuple() | ast.List():
            return all(_binds_names(part) for part in target.elts)
    return False


def _only_pure(decorators: Iterable[ast.expr]) -> bool:
    called = [node.func if isinstance(node, ast.Call) else node for node in decorators]
    return all(_chain_of(node) in _PURE for node in called)


def _for_type_checkers(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    chain = _chain_of(statement.test)
    return chain is not None and chain[-1] == "TYPE_CHECKING"


def _chain_of(node: ast.AST) -> Chain | None:
    """The names of `a.b.c`, or None for another expression."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else None


def _inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements one level inside a compound statement."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _stored_names(*nodes: ast.AST) -> set[str]:
    """The names that are bound in this scope by `nodes`, not those of functions, classes and lambdas inside."""
    return _scope(nodes).stored


def _scope(nodes: Iterable[ast.AST]) -> _Scope:
    names: set[str] = set()
    elsewhere: set[str] = set()
    released: set[str] = set()
    waiting: list[tuple[ast.AST, bool]] = [
        (node, False) for node in nodes
    ]  # with: is it inside a comprehension?
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
                names.update(name for name, _ in imported(node, ""))
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
        waiting.extend((child, inside) for child in _children(node))
    return _Scope(names - elsewhere - released, released)


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes below one, as `ast.iter_child_nodes` but quicker, and without Load, Store and Del."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found.extend(item for item in value if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


class _UseVisitor:
    """Collects what code refers to. Where it errs, it finds too much."""

    def __init__(self, package: str) -> None:
        self.chains: set[Chain] = set()
        self.imports: list[Import] = []
        self.hidden: str | None = None
        self._package = package

    def visit(self, node: ast.AST, bound: frozenset[str]) -> None:
        if isinstance(node, ast.Name):
            if node.id not in bound:
                self.chains.add((node.id,))
            return
        if isinstance(node, ast.Constant):
            return
        match node:
            case ast.Attribute():
                self._visit_attribute(node, bound)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._visit_function(node, bound)
            case ast.Lambda():
                self._visit_arguments(node.args, bound)
                self.visit(node.body, bound | _argument_names(node.args))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._visit_comprehension(node, bound)
            case ast.AnnAssign():
                self._visit_annotation(node.annotation, bound)
                self._visit_all([node.target, *([node.value] if node.value else [])], bound)
            case ast.Import() | ast.ImportFrom():
                self.imports.extend(target for _, target in imported(node, self._package))
            case _:
                # A class body is visited like this too: its names are not seen from its methods.
                self._visit_all(_children(node), bound)

    def _visit_all(self, nodes: Iterable[ast.AST], bound: frozenset[str]) -> None:
        for node in nodes:
            self.visit(node, bound)

    def _visit_attribute(self, node: ast.Attribute, bound: frozenset[str]) -> None:
        if node.attr == "__subclasses__":
            self.hidden = node.attr
        chain = _chain_of(node)
        if chain is None:
            self.visit(node.value, bound)
        elif chain[0] not in bound:
            self.chains.add(chain)

    def _visit_function(self, node: FunctionNode, bound: frozenset[str]) -> None:
        if node.name == "__init_subclass__":
            self.hidden = node.name
        self._visit_all(node.decorator_list, bound)
        self._visit_all(getattr(node, "type_params", ()), bound)
        self._visit_arguments(node.args, bound)
        if node.returns is not None:
            self._visit_annotation(node.returns, bound)
        scope = _scope(node.body)
        self._visit_all(node.body, (bound | _argument_names(node.args) | scope.stored) - scope.released)

    def _visit_arguments(self, arguments: ast.arguments, bound: frozenset[str]) -> None:
        self._visit_all(
            [*arguments.defaults, *(default for default in arguments.kw_defaults if default)], bound
        )
        for argument in _all_arguments(arguments):
            if argument.annotation is not None:
                self._visit_annotation(argument.annotation, bound)

    def _visit_comprehension(self, node: Comprehension, bound: frozenset[str]) -> None:
        inner = bound | {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        self.visit(node.generators[0].iter, bound)  # evaluated outside
        for index, generator in enumerate(node.generators):
            self._visit_all([generator.target, *generator.ifs, *([generator.iter] if index else [])], inner)
        self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)

    def _visit_annotation(self, annotation: ast.expr, bound: frozenset[str]) -> None:
        self.visit(annotation, bound)
        for text in ast.walk(annotation):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                try:
                    self.visit(ast.parse(text.value, mode="eval"), bound)
                except SyntaxError:
                    continue  # a string of a Literal


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]


def _argument_names(arguments: ast.arguments) -> frozenset[str]:
    return frozenset(argument.arg for argument in _all_arguments(arguments))
