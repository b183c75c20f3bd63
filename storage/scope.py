"""Scopes of names inside a definition, and what binds a name."""

from rnnsearch.storage.package import Target
from rnnsearch.storage.syntax import Bindings


class Scope:
    """One scope of names inside a definition."""

    def __init__(self, kind: str, parent: "Scope | None", bound: Bindings) -> None:
        """`kind` is module, class or function; `parent` is the scope around."""
        self.kind = kind
        self.parent = parent
        self.bound = bound
        self.slots: dict[str, int] = {}
        self.classes: frozenset[str] = frozenset()  # parameters that are classes


TOP = Bindings(set(), {}, set())


def find_scope(name: str, scope: Scope) -> Scope | None:
    """The scope inside the definition that binds a name, or None for the module's names."""
    here: Scope | None = scope
    while here is not None and here.kind != "module":
        if name in here.bound.released:
            return None
        if name in here.bound.stored and (here is scope or here.kind != "class"):
            return here
        here = here.parent
    return None


def dotted_name(target: Target | None) -> str:
    """The name of a foreign or built-in object; empty for others."""
    if target is None or target.kind not in {"foreign", "builtin"}:
        return ""
    return target.name if target.kind == "foreign" else ".".join(("builtins", target.name, *target.rest))
