"""Import a `module:function` reference. Not part of the code digest: the reference itself is a root."""

import importlib
from collections.abc import Callable
from typing import Any


def resolve(reference: str) -> Callable[..., Any]:
    """The function `module:function`."""
    module, _, name = reference.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
