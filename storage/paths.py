"""Which file beside the code an expression names: `Path(__file__).with_name("table.json")` and its like."""

import ast
from pathlib import Path, PurePosixPath

from rnnsearch.storage.package import CodeError, Package, Target
from rnnsearch.storage.scope import Scope, dotted_name, find_scope
from rnnsearch.storage.syntax import Module, chain_of

_PATH_CALLS = frozenset(
    {"pathlib.Path", "pathlib.PurePath", "os.fspath", "os.path.abspath", "os.path.realpath"}
)
_SAME_PATH = frozenset({"resolve", "absolute", "as_posix"})


class Paths:
    """Paths inside the package, as expressions of one definition name them."""

    def __init__(self, package: Package, module: Module, place: str) -> None:
        """`place` is the definition in the module, for messages."""
        self._package = package
        self._module = module
        self._place = place

    def named_by(self, node: ast.expr, scope: Scope) -> PurePosixPath | None:
        """The path inside the package that an expression names, or None."""
        match node:
            case ast.Name(id="__file__"):
                return self._own_path(self._module.name)
            case ast.Attribute(value=value, attr="__file__"):
                target = self.target_of(value, scope)
                return self._own_path(target.module) if target and target.kind == "module" else None
            case ast.Attribute(value=value, attr="parent"):
                path = self.named_by(value, scope)
                return path and path.parent
            case ast.Subscript(
                value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(number))
            ):
                path = self.named_by(value, scope)
                return path and [path.parent, *path.parent.parents][number]
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(name))):
                path = self.named_by(left, scope)
                return path and path / name
            case ast.Call():
                return self._path_of_call(node, scope)
        return None

    def _path_of_call(self, node: ast.Call, scope: Scope) -> PurePosixPath | None:
        names = [
            each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        if (
            isinstance(node.func, ast.Attribute)
            and (path := self.named_by(node.func.value, scope)) is not None
        ):
            if node.func.attr in _SAME_PATH:
                return path
            if len(names) != len(node.args):
                return None
            if node.func.attr == "joinpath":
                return path.joinpath(*names)
            return path.with_name(names[0]) if node.func.attr == "with_name" and names else None
        target = dotted_name(self.target_of(node.func, scope))
        if not node.args:
            return None
        if target == "importlib.resources.files":
            return self._anchor(node.args[0], scope)
        if target in _PATH_CALLS or target == "builtins.str":
            return self.named_by(node.args[0], scope)
        if target == "os.path.dirname":
            path = self.named_by(node.args[0], scope)
            return path and path.parent
        if target == "os.path.join" and len(names) == len(node.args) - 1:
            path = self.named_by(node.args[0], scope)
            return path and path.joinpath(*names)
        return None

    def _anchor(self, node: ast.expr, scope: Scope) -> PurePosixPath | None:
        """The folder of a package that `importlib.resources.files` is given."""
        name = node.value if isinstance(node, ast.Constant) else None
        if name is None:
            target = self.target_of(node, scope)
            name = target.module if target and target.kind == "module" else None
        if name not in self._package.paths:
            return None
        path = self._own_path(str(name))
        return path.parent

    def _own_path(self, name: str) -> PurePosixPath:
        return PurePosixPath(Path(self._package.paths[name]).relative_to(self._package.folder).as_posix())

    def target_of(self, node: ast.expr, scope: Scope) -> Target | None:
        """What a chain means, if it is no local variable; nothing is written or refused."""
        chain = chain_of(node)
        if chain is None:
            return None
        place = find_scope(chain[0], scope)
        target = place.bound.imports.get(chain[0]) if place else None
        if place is not None and target is None:
            return None
        imports = self._module.imports.get(chain[0])
        target = target or (imports[-1] if imports else None)
        if target is not None and not self._package.is_ours(target.module):
            path = [target.module, *([target.symbol] if target.symbol else []), *chain[1:]]
            return Target("foreign", "", ".".join(path), ())
        try:
            if target is not None:
                return self._package.follow(self._module.name, target, chain[1:], self._place)
            return self._package.resolve(self._module, chain, self._place)
        except CodeError:
            return None
