"""Whether a statement does more than bind names when its module is imported.

Every other statement counts for all who import the module. Where this errs, it finds an effect.
"""

import ast
from collections.abc import Iterable
from typing import NamedTuple

from rnnsearch.storage.definition import PLAIN_DECORATORS
from rnnsearch.storage.package import CodeError, Package, Target
from rnnsearch.storage.purity import PURE_BUILTINS, READING, is_pure_foreign
from rnnsearch.storage.scope import dotted_name
from rnnsearch.storage.syntax import (
    FunctionNode,
    Module,
    all_arguments,
    bindings,
    binds_names,
    chain_of,
    children,
    inner_statements,
)

_PURE_DECORATORS = PLAIN_DECORATORS | frozenset(
    [
        "pydantic.computed_field",
        "pydantic.field_serializer",
        "pydantic.field_validator",
        "pydantic.model_serializer",
        "pydantic.model_validator",
        "pydantic.validate_call",
    ]
)
_RUN_BY_CALL = frozenset({"__init__", "__new__", "__post_init__", "model_post_init"})


class _Locals(NamedTuple):
    """The names of a function around an expression."""

    all: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()  # those bound only to objects that the function made


_NONE = _Locals()


class Effects:
    """Looks for effects in the modules of one package, and remembers what it found of functions."""

    def __init__(self, package: Package) -> None:
        """Look at modules of `package`."""
        self._package = package
        self._pure: dict[tuple[str, str], bool] = {}
        self._found: dict[str, list[ast.stmt]] = {}

    def of(self, module: Module) -> list[ast.stmt]:
        """The top-level statements of a module that have effects."""
        if module.name not in self._found:
            acting = (statement for statement in module.statements if self._acts(module, statement, _NONE))
            self._found[module.name] = list(acting)
        return self._found[module.name]

    def _acts(self, module: Module, node: ast.stmt, names: _Locals) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global() | ast.Nonlocal():
                return False
            case ast.Expr():
                return not isinstance(node.value, ast.Constant)
            case ast.Assign():
                return not all(map(binds_names, node.targets)) or self._runs(module, node.value, names)
            case ast.AnnAssign():
                parts = [node.annotation, *([node.value] if node.value else [])]
                return not binds_names(node.target) or any(self._runs(module, part, names) for part in parts)
            case ast.AugAssign():
                immutable = isinstance(node.value, ast.Constant | ast.JoinedStr)
                return not (binds_names(node.target) and immutable)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function_acts(module, node, names)
            case ast.ClassDef():
                return self._class_acts(module, node, names)
            case ast.If():
                return self._runs(module, node.test, names) or self._any_acts(module, node, names)
            case ast.Try() | ast.TryStar():
                return self._any_acts(module, node, names)
        return node.__class__.__name__ != "TypeAlias"  # Python 3.12

    def _any_acts(self, module: Module, node: ast.stmt, names: _Locals) -> bool:
        return any(self._acts(module, inner, names) for inner in inner_statements(node))

    def _function_acts(self, module: Module, node: FunctionNode, names: _Locals) -> bool:
        hints = [argument.annotation for argument in all_arguments(node.args)]
        run = [*node.args.defaults, *node.args.kw_defaults, *hints, node.returns]
        return not all(self._decorates(module, each, names) for each in node.decorator_list) or any(
            self._runs(module, each, names) for each in run if each is not None
        )

    def _class_acts(self, module: Module, node: ast.ClassDef, names: _Locals) -> bool:
        if not all(self._decorates(module, each, names) for each in node.decorator_list):
            return True
        if any(
            self._runs(module, each, names) for each in (*node.bases, *(key.value for key in node.keywords))
        ):
            return True
        inner = _Locals(names.all | bindings(node.body).stored, names.fresh)
        return self._is_watched(module, node) or any(self._acts(module, each, inner) for each in node.body)

    def _is_watched(self, module: Module, node: ast.ClassDef, depth: int = 0) -> bool:
        """Whether a class of this package hears of the new class: by a metaclass or `__init_subclass__`."""
        for keyword in node.keywords:
            target = self._target(module, keyword.value, _NONE)
            if keyword.arg == "metaclass" and dotted_name(target) not in {"abc.ABCMeta", "enum.EnumMeta"}:
                return True
        for base in node.bases:
            target = self._target(module, base, _NONE)
            if target is None or target.kind != "definition" or depth > len(self._package.paths):
                continue
            around = self._package.known_module(target.module)
            for each in around.definitions.get(target.name, []):
                if isinstance(each, ast.ClassDef) and (
                    "__init_subclass__" in bindings(each.body).stored
                    or self._is_watched(around, each, depth + 1)
                ):
                    return True
        return False

    def _decorates(self, module: Module, node: ast.expr, names: _Locals) -> bool:
        """Whether a decorator only changes what it decorates."""
        called = node.func if isinstance(node, ast.Call) else node
        chain = chain_of(called)
        if chain is None:
            return False
        if chain[0] in names.all:
            return chain[-1] in {"setter", "getter", "deleter"}
        if isinstance(node, ast.Call) and any(
            self._runs(module, each, names) for each in (*node.args, *(key.value for key in node.keywords))
        ):
            return False
        target = self._target(module, called, names)
        return dotted_name(target) in _PURE_DECORATORS or self._is_pure_target(target)

    def _runs(self, module: Module, node: ast.expr, names: _Locals) -> bool:
        """Whether evaluating an expression may change something."""
        waiting: list[ast.AST] = [node]
        while waiting:
            each = waiting.pop()
            if isinstance(each, ast.Lambda):
                waiting.extend((*each.args.defaults, *(one for one in each.args.kw_defaults if one)))
                continue
            if isinstance(each, ast.Await | ast.Yield | ast.YieldFrom):
                return True
            if isinstance(each, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                bound = {
                    name.id
                    for generator in each.generators
                    for name in ast.walk(generator.target)
                    if isinstance(name, ast.Name)
                }
                names = names._replace(all=names.all | bound)
            if isinstance(each, ast.Call) and not self._call_is_pure(module, each, names):
                return True
            waiting.extend(children(each))
        return False

    def _call_is_pure(self, module: Module, node: ast.Call, names: _Locals) -> bool:
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not all(self._is_passed_safely(module, each, names) for each in given):
            return False
        chain = chain_of(node.func)
        if chain is None:
            if not isinstance(node.func, ast.Attribute):
                return False
            return node.func.attr in READING or self._is_fresh(module, node.func.value, names)
        if chain[0] in names.all:
            return len(chain) > 1 and (chain[-1] in READING or (len(chain) == 2 and chain[0] in names.fresh))
        target = self._target(module, node.func, names)
        if target is None or target.kind == "unknown":
            return False
        if target.kind == "builtin":
            return target.name in PURE_BUILTINS and all(each in READING for each in target.rest)
        if target.kind == "foreign":
            return is_pure_foreign(target.name)
        return self._is_pure_target(target)

    def _is_fresh(self, module: Module, node: ast.expr, names: _Locals) -> bool:
        """Whether an expression makes a new object, which nobody else has."""
        if isinstance(node, ast.Call):
            target = self._target(module, node.func, names)
            return target is not None and target.kind in {"foreign", "builtin"}
        literals = ast.Constant | ast.JoinedStr | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.BinOp
        return isinstance(node, literals | ast.DictComp | ast.SetComp)

    def _is_passed_safely(self, module: Module, node: ast.expr, names: _Locals) -> bool:
        """Whether a function that is given a value cannot change something by calling it."""
        target = self._target(module, node, names)
        if target is None or target.kind != "definition":
            return True
        if target.rest:
            return target.rest[-1] in READING or not self._is_value(target)
        return self._is_value(target) or self._is_pure_target(target)

    def _is_value(self, target: Target) -> bool:
        """Whether a definition is neither a function nor a class."""
        statements = self._package.known_module(target.module).definitions.get(target.name, [])
        return not any(
            isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for each in statements
        )

    def _is_pure_target(self, target: Target | None) -> bool:
        """Whether calling a definition of the package changes nothing that outlives the call."""
        if target is None or target.kind != "definition":
            return False
        module = self._package.known_module(target.module)
        statements = module.definitions.get(target.name, [])
        if target.rest:
            plain = all(
                isinstance(each, ast.Assign | ast.AnnAssign)
                and each.value is not None
                and self._is_fresh(module, each.value, _NONE)
                for each in statements
            )
            return plain and target.rest[-1] in READING
        key = (target.module, target.name)
        if key not in self._pure:
            self._pure[key] = True  # of a recursion: judged by the rest of it
            self._pure[key] = bool(statements) and all(self._is_pure(module, each) for each in statements)
        return self._pure[key]

    def _is_pure(self, module: Module, node: ast.stmt) -> bool:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._body_is_pure(module, node, method=False)
            case ast.ClassDef():
                methods = [
                    each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                run = (each for each in methods if each.name in _RUN_BY_CALL or _has_hook(each))
                bases = (self._target(module, base, _NONE) for base in node.bases)
                return all(self._body_is_pure(module, each, method=True) for each in run) and all(
                    base is not None and (base.kind in {"foreign", "builtin"} or self._is_pure_target(base))
                    for base in bases
                )
        return False

    def _body_is_pure(self, module: Module, function: FunctionNode, *, method: bool) -> bool:
        arguments = {argument.arg for argument in all_arguments(function.args)}
        nodes = [each for statement in function.body for each in ast.walk(statement)]
        stored = bindings(function.body).stored
        shared = {name.id for each in nodes for name in _bound_to_others(each) if isinstance(name, ast.Name)}
        fresh = stored - arguments - shared
        own = {function.args.args[0].arg} if method and function.args.args else set()
        inner = {name for each in nodes for name in _inner_names(each)}
        names = _Locals(frozenset(arguments | stored | inner), frozenset(fresh))
        for each in nodes:
            if isinstance(
                each, ast.Global | ast.Import | ast.ImportFrom | ast.With | ast.AsyncWith | ast.Delete
            ):
                return False
            if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
                base: ast.expr = each
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                if not (isinstance(base, ast.Name) and base.id in fresh | own):
                    return False
            if (
                isinstance(each, ast.AugAssign)
                and isinstance(each.target, ast.Name)
                and each.target.id not in fresh
            ):
                return False
            if isinstance(each, ast.Call) and not self._call_is_pure(module, each, names):
                return False
        return True

    def _target(self, module: Module, node: ast.expr, names: _Locals) -> Target | None:
        chain = chain_of(node)
        if chain is None or chain[0] in names.all:
            return None
        try:
            return self._package.resolve(module, chain, module.name)
        except CodeError:  # refused when the statement is reached
            return Target("unknown", "", chain[0], chain[1:])


def _has_hook(function: FunctionNode) -> bool:
    """Whether a method is decorated, such as by pydantic to check a value."""
    chains = [chain_of(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list]
    return any(chain not in {("property",), ("staticmethod",), ("classmethod",)} for chain in chains)


def _bound_to_others(node: ast.AST) -> Iterable[ast.AST]:
    """The targets of a binding whose value may be an object that others have."""
    fresh = (
        ast.List
        | ast.Dict
        | ast.Set
        | ast.ListComp
        | ast.DictComp
        | ast.SetComp
        | ast.Constant
        | ast.JoinedStr
    )
    match node:
        case ast.Assign() if not isinstance(node.value, fresh):
            return [each for target in node.targets for each in ast.walk(target)]
        case ast.AnnAssign() if node.value is not None and not isinstance(node.value, fresh):
            return [node.target]
        case ast.NamedExpr() | ast.For() | ast.AsyncFor():
            return list(ast.walk(node.target))
        case ast.withitem() if node.optional_vars is not None:
            return list(ast.walk(node.optional_vars))
    return []


def _inner_names(node: ast.AST) -> Iterable[str]:
    """Names that inner functions and comprehensions bind."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return [argument.arg for argument in all_arguments(node.args)]
        case ast.comprehension():
            return [each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)]
    return []
