"""Module attributes that are imported on first use (PEP 562), and aliases for names that moved.

A package that exports through this module costs nothing to import. It repeats its exports under `TYPE_CHECKING`, so
that type checkers see them too.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, module_of: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: The package's `__name__`.
        module_of: The module that defines each exported name.
    """

    def get_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get_attribute, list_names


def moved_names(module: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a module whose names moved; using one warns with its new module.

    Args:
        module: The old module's `__name__`.
        module_of: The module that defines each name now.
    """

    def get_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new_module = module_of[name]
        warnings.warn(
            f"{module}.{name} moved to {new_module}.{name}; the old name goes away in the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(new_module), name)

    return get_attribute
