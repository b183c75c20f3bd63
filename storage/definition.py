"""One definition as canonical syntax: what can change a value, and nothing else.

References to other definitions are numbered; local variables are numbered in the order of their use. Left out are
positions, docstrings, the definition's own name, how names were imported, annotations of plain functions and the
texts of errors. The last two are kept aside, for stages that read them.
"""

import ast
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.package import CodeError, Package, Target
from rnnsearch.storage.paths import Paths
from rnnsearch.storage.scope import TOP, Scope, dotted_name, find_scope
from rnnsearch.storage.syntax import (
    Bindings,
    Chain,
    Comprehension,
    FunctionNode,
    Import,
    Module,
    all_arguments,
    bindings,
    chain_of,
    children,
    counts_for_nothing,
    imported,
)

Kind = Literal["definition", "effects", "hints", "module", "file"]

PLAIN_DECORATORS = frozenset(
    [
        "abc.abstractmethod",
        "builtins.classmethod",
        "builtins.property",
        "builtins.staticmethod",
        "contextlib.asynccontextmanager",
        "contextlib.contextmanager",
        "dataclasses.dataclass",
        "enum.unique",
        "functools.cache",
        "functools.cached_property",
        "functools.lru_cache",
        "functools.total_ordering",
        "functools.wraps",
        "torch.autograd.function.once_differentiable",
        "torch.inference_mode",
        "torch.no_grad",
        "typing.final",
        "typing.overload",
        "typing.override",
        "typing.runtime_checkable",
    ]
)
"""Decorators that only change what they decorate, and read no annotations of functions."""

_READ_HINTS = frozenset(
    ["inspect.getfullargspec", "inspect.get_annotations", "inspect.signature", "typing.get_type_hints"]
)
_READ_TEXTS = frozenset(["sys.exc_info", "sys.exception", "sys.last_value"])
_CARRIERS = frozenset({"StopIteration", "StopAsyncIteration", "SystemExit", "GeneratorExit"})
_NO_TEXT = frozenset({"errno", "returncode", "lineno"})  # attributes of errors
_NAMES = frozenset({"__name__", "__qualname__", "__module__"})
_LOCALS = frozenset({"locals", "vars", "dir"})
_REFUSED_ATTRIBUTES = frozenset(
    {
        "__subclasses__",
        "__globals__",
        "__code__",
        "__doc__",
        "f_globals",
        "f_locals",
        "__loader__",
        "__spec__",
    }
)
_CHILD = re.compile(r"(?:^|\s)-m\s+([\w.]+)")


class Key(NamedTuple):
    """What is reached: a definition, what a module runs when it is imported, a whole module, a file."""

    kind: Kind
    module: str
    symbol: str  # of a file its path inside the package

    @property
    def place(self) -> str:
        """As people read it."""
        match self.kind:
            case "file":
                return f"file:{self.symbol}"
            case "effects":
                return f"{self.module}:<module>"
            case "hints":
                return f"{self.module}:{self.symbol} (annotations)"
            case "module":
                return f"{self.module}:*"
        return f"{self.module}:{self.symbol}"


class Written(NamedTuple):
    """One definition's canonical syntax, by digest, and what it refers to."""

    own: str  # the digest of the syntax, with numbers for references
    references: tuple[Key, ...]  # in the order of their numbers
    values: frozenset[Key]  # of these, what is used other than by a call
    texts: str  # the digest of the texts of errors
    entered: frozenset[str]  # modules that run when this does
    reads: frozenset[str]  # of "hints", "texts", "class names", "names"


def write_definition(package: Package, module: Module, key: Key, statements: Sequence[ast.stmt]) -> Written:
    """The canonical syntax of top-level statements. CodeError for what the syntax does not tell."""
    writer = _Writer(package, module, key, keep=False)
    writer.statements(statements, writer.top)
    if writer.sees_locals:
        writer = _Writer(package, module, key, keep=True)
        writer.statements(statements, writer.top)
    return writer.written()


def write_hints(package: Package, module: Module, key: Key, statements: Sequence[ast.stmt]) -> Written:
    """The canonical syntax of the annotations of functions."""
    writer = _Writer(package, module, key, keep=False)
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            writer.hints(statement)
    return writer.written()


class _Writer:
    """Writes syntax as a sequence of words."""

    def __init__(self, package: Package, module: Module, key: Key, *, keep: bool) -> None:
        self.top = Scope("module", None, TOP)
        self.sees_locals = False
        self._package = package
        self._module = module
        self._key = key
        self._place = key.place
        self._paths = Paths(package, module, key.place)
        self._keep = keep  # the names of local variables
        self._out: list[str] = []
        self._references: dict[Key, int] = {}
        self._values: set[Key] = set()
        self._texts: list[str] = []
        self._entered: set[str] = {module.name}
        self._reads: set[str] = set()
        self._slots = 0
        self._raising = 0

    def written(self) -> Written:
        """What was written."""
        return Written(
            own=_digest(self._out),
            references=tuple(self._references),
            values=frozenset(self._values),
            texts=_digest(self._texts) if self._texts else "",
            entered=frozenset(self._entered),
            reads=frozenset(self._reads),
        )

    def statements(self, nodes: Iterable[ast.stmt], scope: Scope) -> None:
        """Write statements, without those that do nothing."""
        self._out.append("[")
        for node in nodes:
            if not counts_for_nothing(node) and not _declares_only(node, scope):
                self.write(node, scope)
        self._out.append("]")

    def hints(self, node: FunctionNode) -> None:
        """Write the annotations of a function by parameter."""
        for argument in all_arguments(node.args):
            self._out.append(argument.arg)
            if argument.annotation is not None:
                self._annotation(argument.annotation, self.top)
        if node.returns is not None:
            self._out.append("->")
            self._annotation(node.returns, self.top)

    def write(self, node: ast.AST, scope: Scope) -> None:
        """Write one node and what is in it."""
        if self._module.names_files and isinstance(node, ast.expr) and self._file(node, scope):
            return
        match node:
            case ast.Name():
                self._chain((node.id,), scope, called=False)
            case ast.Attribute():
                self._attribute(node, scope, called=False)
            case ast.Constant():
                self._constant(node)
            case ast.Call():
                self._call(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope)
            case ast.Lambda():
                self._lambda(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
            case ast.AnnAssign():
                self._annotated(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Raise():
                self._raise(node, scope)
            case ast.Assert():
                self._out.append("Assert")
                self.write(node.test, scope)
                self._message(node.msg, scope)
            case ast.ExceptHandler():
                self._handler(node, scope)
            case ast.List() | ast.Tuple():
                self._check_child(node.elts)
                self._fields(node, scope)
            case ast.Global():
                self._out.append("Global")
                for name in sorted(node.names):
                    self._chain((name,), self.top, called=True)
            case ast.Nonlocal():
                self._out.append("Nonlocal")
                for name in node.names:
                    self._name(name, scope)
            case ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
                self._pattern(node, scope)
            case _:
                self._fields(node, scope)

    def _fields(self, node: ast.AST, scope: Scope) -> None:
        self._out.append(node.__class__.__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                if not isinstance(value, ast.expr_context):
                    self.write(value, scope)
            elif isinstance(value, list):
                if value and isinstance(value[0], ast.stmt):
                    self.statements(value, scope)
                    continue
                self._out.append("[")
                for item in value:
                    if isinstance(item, ast.AST):
                        self.write(item, scope)
                    else:
                        self._out.append(repr(item))
                self._out.append("]")
            elif name != "type_comment":
                self._out.append(repr(value))

    def _constant(self, node: ast.Constant) -> None:
        self._out.append(repr(node.value))
        if isinstance(node.value, str) and self._package.name in node.value:
            self._named_in_text(node.value)

    def _named_in_text(self, text: str) -> None:
        """Follow a text that names a module of the package, as a child process or a registry of names does."""
        child = _CHILD.search(text)
        name, _, symbol = (child.group(1) if child else text).partition(":")
        module = (
            self._package.module(name) if name in self._package.paths and name != self._package.name else None
        )
        if module is None:
            return
        self._entered.add(name)
        if symbol and symbol in module.definitions:
            self._refer(Key("definition", name, symbol))
        else:
            self._refer(Key("module", name, ""))

    def _check_child(self, items: Sequence[ast.expr]) -> None:
        """Refuse a command line for Python whose code is not named in it."""
        for item, after in itertools.pairwise(items):
            if not isinstance(item, ast.Constant) or item.value not in {"-m", "-c"}:
                continue
            python = any(chain_of(each) == ("sys", "executable") for each in items)
            if (item.value == "-c" and python) or (
                item.value == "-m" and not isinstance(after, ast.Constant)
            ):
                raise CodeError(
                    f"{self._place} starts a program by {item.value}: the syntax does not tell what that runs; "
                    "name the module in a constant after -m"
                )

    # Names.

    def _chain(self, chain: Chain, scope: Scope, *, called: bool) -> None:
        """Write a name and the attributes after it."""
        place = find_scope(chain[0], scope)
        if place is not None and chain[0] not in place.bound.imports:
            self._local(chain[0], place)
            self._attributes(chain[1:])
            return
        if place is not None:
            self._target(self._follow(place.bound.imports[chain[0]], chain[1:]), called=called)
            return
        if chain[0] in _LOCALS:
            self.sees_locals = True
        if chain == ("__doc__",) and "__doc__" not in self._module.definitions:
            self._out.append(repr(self._module.docstring))
            return
        if chain == ("__file__",):
            raise CodeError(
                f"{self._place} uses __file__: the syntax does not tell which file is read; write "
                "Path(__file__).with_name('table.json') in one expression"
            )
        if chain == ("__name__",) and "__name__" not in self._module.definitions:
            self._out.append(self._module.name)
            return
        self._target(self._package.resolve(self._module, chain, self._place), called=called)

    def _follow(self, target: Import, rest: Chain) -> Target:
        return self._package.follow(self._module.name, target, rest, self._place)

    def _local(self, name: str, place: Scope) -> None:
        if place.kind == "class":
            self._out.append(f"field {name}")
            return
        if name not in place.slots:
            place.slots[name] = self._slots
            self._slots += 1
        self._out.append(f"${place.slots[name]}{' ' + name if self._keep else ''}")

    def _target(self, target: Target, *, called: bool) -> None:
        self._entered.update(target.through)
        match target.kind:
            case "definition" | "module":
                key = Key(
                    "definition" if target.kind == "definition" else "module", target.module, target.name
                )
                if not called or target.rest:
                    self._values.add(key)
                self._refer(key)
            case "foreign":
                self._out.append(f"foreign {target.name}")
                self._note_foreign(target.name)
            case "builtin":
                self._out.append(f"builtin {target.name}")
                if target.name in {"globals", "vars"}:
                    self._refer(Key("module", self._module.name, ""))
            case "unknown":
                self._out.append(f"unknown {target.name}")
        self._attributes(target.rest)

    def _note_foreign(self, dotted: str) -> None:
        if dotted in _READ_HINTS:
            self._reads.add("hints")
        if dotted in _READ_TEXTS or dotted.startswith("traceback."):
            self._reads.add("texts")

    def _refer(self, key: Key) -> None:
        self._out.append(f"@{self._references.setdefault(key, len(self._references))}")

    def _name(self, name: str, scope: Scope) -> None:
        """Write a name that is bound here."""
        place = scope if name in scope.bound.stored else find_scope(name, scope)
        if place is None or place.kind == "module":
            key = Key("definition", self._module.name, name)
            if key == self._key:
                self._out.append("self")
            elif self._key.kind == "definition":
                self._refer(key)
            else:
                self._out.append("bound")
                self._refer(key)
        else:
            self._local(name, place)

    def _attribute(self, node: ast.Attribute, scope: Scope, *, called: bool) -> None:
        chain = chain_of(node)
        if node.attr in _NAMES and not self._raising:
            self._reads.add("class names" if self._is_class(node.value, scope) else "names")
        if node.attr in _REFUSED_ATTRIBUTES:
            raise CodeError(
                f"{self._place} uses {node.attr}: it hides code or text from the digest; name what is used"
            )
        if chain is not None:
            self._chain(chain, scope, called=called)
            return
        self.write(node.value, scope)
        self._attributes((node.attr,))

    def _attributes(self, names: Chain) -> None:
        for name in names:
            self._out.append(f".{name}")
            if name == "__annotations__":
                self._reads.add("hints")
            if name in _REFUSED_ATTRIBUTES:
                raise CodeError(
                    f"{self._place} uses {name}: it hides code or text from the digest; name what is used"
                )

    def _is_class(self, node: ast.expr, scope: Scope) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="type"), args=[_]):
                return True
            case ast.Attribute(attr="__class__"):
                return True
            case ast.Name(id=name):
                place = find_scope(name, scope)
                return name == "cls" or (place is not None and name in place.classes)
        return False

    # Functions and classes.

    def _function(self, node: FunctionNode, scope: Scope) -> None:
        if node.name == "__init_subclass__":
            raise CodeError(
                f"{self._place} has __init_subclass__: it sees classes that the digest does not; name them in a list"
            )
        self._out.append(node.__class__.__name__)
        self._name(node.name, scope)
        self._out.append("[")
        for decorator in node.decorator_list:
            self.write(decorator, scope)
        self._out.append("]")
        inner = self._type_parameters(node, scope)
        hinted = any(not self._is_plain(decorator, scope) for decorator in node.decorator_list)
        self._arguments(node.args, inner, hinted=hinted)
        if node.returns is not None and (hinted or _has_call(node.returns)):
            self._annotation(node.returns, inner)
        bound = bindings(node.body, self._module.package)
        names = {argument.arg for argument in all_arguments(node.args)}
        only = {name: target for name, target in bound.imports.items() if name not in names}
        body = Scope("function", inner, Bindings(bound.stored | names, only, bound.released))
        body.classes = frozenset(
            argument.arg
            for argument in all_arguments(node.args)
            if isinstance(argument.annotation, ast.Subscript)
            and chain_of(argument.annotation.value) in {("type",), ("Type",), ("typing", "Type")}
        )
        for argument in all_arguments(node.args):
            self._local(argument.arg, body)
        if node.name in {"__exit__", "__aexit__"} and len(names) > 2:
            self._reads.add("texts")
        self.statements(node.body, body)

    def _type_parameters(self, node: ast.AST, scope: Scope) -> Scope:
        parameters = getattr(node, "type_params", [])
        if not parameters:
            return scope
        inner = Scope("function", scope, Bindings({each.name for each in parameters}, {}, set()))
        for each in parameters:
            self._out.append(each.__class__.__name__)
            self._local(each.name, inner)
            for child in children(each):
                self.write(child, inner)
        return inner

    def _is_plain(self, decorator: ast.expr, scope: Scope) -> bool:
        chain = chain_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if chain is None:
            return False
        if find_scope(chain[0], scope) is not None:
            return chain[-1] in {"setter", "getter", "deleter"}
        target = self._package.resolve(self._module, chain, self._place)
        return dotted_name(target) in PLAIN_DECORATORS

    def _lambda(self, node: ast.Lambda, scope: Scope) -> None:
        self._out.append("Lambda")
        self._arguments(node.args, scope, hinted=False)
        names = {argument.arg for argument in all_arguments(node.args)}
        inner = Scope("function", scope, Bindings(names, {}, set()))
        for argument in all_arguments(node.args):
            self._local(argument.arg, inner)
        self.write(node.body, inner)

    def _arguments(self, arguments: ast.arguments, scope: Scope, *, hinted: bool) -> None:
        """Write parameters: by name those that can be passed by name, and their defaults."""
        self._out.append(f"arguments {len(arguments.posonlyargs)}")
        self._out.append("*" if arguments.vararg else "")
        self._out.append("**" if arguments.kwarg else "")
        self._out.extend(argument.arg for argument in arguments.args)
        self._out.append("|")
        self._out.extend(argument.arg for argument in arguments.kwonlyargs)
        self._out.append("[")
        for default in (*arguments.defaults, None, *arguments.kw_defaults):
            if default is None:
                self._out.append("-")
            else:
                self.write(default, scope)
        self._out.append("]")
        for argument in all_arguments(arguments):
            if argument.annotation is not None and (hinted or _has_call(argument.annotation)):
                self._out.append(":")
                self._annotation(argument.annotation, scope)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._out.append("ClassDef")
        self._name(node.name, scope)
        inner = self._type_parameters(node, scope)
        for group in (node.decorator_list, node.bases, node.keywords):
            self._out.append("[")
            for each in group:
                self.write(each, inner)
            self._out.append("]")
        for keyword in node.keywords:
            chain = chain_of(keyword.value) if keyword.arg == "metaclass" else None
            if chain and self._package.resolve(self._module, chain, self._place).kind == "definition":
                raise CodeError(
                    f"{self._place} has the metaclass {'.'.join(chain)}: it sees classes that the digest does not; "
                    "name them in a list"
                )
        self.statements(node.body, Scope("class", inner, bindings(node.body, self._module.package)))

    def _comprehension(self, node: Comprehension, scope: Scope) -> None:
        self._out.append(node.__class__.__name__)
        targets = (each.target for each in node.generators)
        names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        inner = Scope("function", scope, Bindings(names, {}, set()))
        for index, generator in enumerate(node.generators):
            self._out.append(f"for {generator.is_async}")
            self.write(generator.iter, inner if index else scope)  # the first is evaluated outside
            self.write(generator.target, inner)
            for condition in generator.ifs:
                self._out.append("if")
                self.write(condition, inner)
        for each in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.write(each, inner)

    # Statements.

    def _annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        in_function = scope.kind == "function"
        self._out.append("Assign" if in_function else "AnnAssign")
        self._out.append("[")
        self.write(node.target, scope)
        self._out.append("]")
        if not in_function:
            self._annotation(node.annotation, scope)
        if node.value is not None:
            self.write(node.value, scope)

    def _annotation(self, node: ast.expr, scope: Scope) -> None:
        """Write an annotation, with what is quoted in it read as code."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                self.write(ast.parse(node.value, mode="eval").body, scope)
            except SyntaxError:
                self._out.append(repr(node.value))  # a string of a Literal
            return
        self.write(node, scope)
        for text in ast.walk(node):
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.isidentifier():
                target = None
                if text.value in self._module.definitions or text.value in self._module.imports:
                    target = self._package.resolve(self._module, (text.value,), self._place)
                if target is not None:
                    self._target(target, called=False)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        """Write what an import binds, where more than imports bind the name; note that the module runs."""
        for name, target in imported(node, self._module.package):
            if name == "*":
                raise CodeError(f"{self._place} imports everything from {target.module}: name what is used")
            for loaded in (target.whole or target.module, f"{target.module}.{target.symbol}"):
                if loaded in self._package.paths and not self._package.is_cut(self._module.name, loaded):
                    self._entered.add(loaded)
            if name in scope.bound.imports:
                self._follow(target, ())  # refuse what is not there
                continue
            self._out.append("Import")
            self._name(name, scope)
            self._target(self._follow(target, ()), called=False)

    def _raise(self, node: ast.Raise, scope: Scope) -> None:
        self._out.append("Raise")
        self._raising += 1
        carrier = isinstance(node.exc, ast.Call) and (chain_of(node.exc.func) or ("",))[-1] in _CARRIERS
        if isinstance(node.exc, ast.Call) and not carrier:
            call = node.exc
            self._callee(call.func, scope)
            self._out.append("(")
            for argument in call.args:
                self._message(argument, scope)
            for keyword in call.keywords:
                self.write(keyword, scope)
            self._out.append(")")
        elif node.exc is not None:
            self.write(node.exc, scope)
        if node.cause is not None:
            self._out.append("from")
            self.write(node.cause, scope)
        self._raising -= 1

    def _message(self, node: ast.expr | None, scope: Scope) -> None:
        """Write an argument of an error without its text; what is computed for the text stays."""
        match node:
            case None:
                self._texts.append("none")
            case ast.Constant(value=str(text)):
                self._texts.append(repr(text))
            case ast.JoinedStr():
                for part in node.values:
                    self._message(part, scope)
            case ast.FormattedValue():
                self.write(node, scope)
            case ast.BinOp(op=ast.Add()):
                self._message(node.left, scope)
                self._message(node.right, scope)
            case ast.IfExp():
                self.write(node.test, scope)
                self._message(node.body, scope)
                self._message(node.orelse, scope)
            case _:
                self.write(node, scope)

    def _handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        self._out.append("ExceptHandler")
        if node.type is not None:
            self.write(node.type, scope)
        if node.name is not None:
            self._out.append("as")
            self._name(node.name, scope)
            if any(_reads_error(each, node.name) for each in node.body):
                self._reads.add("texts")
        self.statements(node.body, scope)

    def _pattern(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping, scope: Scope) -> None:
        self._out.append(node.__class__.__name__)
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        for child in children(node):
            self.write(child, scope)
        if name is None:
            self._out.append("-")
        else:
            self._name(name, scope)

    # Calls and files.

    def _call(self, node: ast.Call, scope: Scope) -> None:
        self._out.append("Call")
        self._callee(node.func, scope)
        self._out.append("(")
        for argument in node.args:
            self.write(argument, scope)
        for keyword in node.keywords:
            self._out.append(f"{keyword.arg}=")
            self.write(keyword.value, scope)
        self._out.append(")")
        self._check_child(node.args)

    def _callee(self, node: ast.expr, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self._chain((node.id,), scope, called=True)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, scope, called=True)
        else:
            self.write(node, scope)

    def _file(self, node: ast.expr, scope: Scope) -> bool:
        """Write an expression that names a file of the package, as its bytes; False for any other expression."""
        path = self._paths.named_by(node, scope)
        if path is None:
            return False
        self._out.append("file")
        for each in self._package.files_of("" if str(path) == "." else str(path), self._place):
            self._refer(Key("file", "", each))
        return True


def _declares_only(node: ast.stmt, scope: Scope) -> bool:
    """Whether a statement of a function only annotates a local variable."""
    return (
        isinstance(node, ast.AnnAssign)
        and node.value is None
        and scope.kind == "function"
        and isinstance(node.target, ast.Name)
    )


def _has_call(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(annotation))


def _reads_error(node: ast.AST, name: str) -> bool:
    """Whether a handler uses the error otherwise than to raise another."""
    if isinstance(node, ast.Raise):
        return False
    if isinstance(node, ast.Attribute) and node.attr in _NO_TEXT:
        return False
    if isinstance(node, ast.Name):
        return node.id == name
    return any(_reads_error(child, name) for child in children(node))


def _digest(words: Iterable[str]) -> str:
    return hash_bytes("\x1f".join(words).encode("utf-8", "surrogatepass"))
