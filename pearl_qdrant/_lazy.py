"""Module attributes that are imported on first use (PEP 562).

A package that exports through this module costs nothing to import. It repeats its exports under `TYPE_CHECKING`, so
that type checkers see them too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

SIBLINGS = ("ingest", "training")
"""Packages of this project beside this one; a program may have files of the same names in its own folder."""


def import_siblings() -> None:
    """Import the packages beside this one, whatever lies first on the search path. Raises ImportError if another module
    of the name is imported already.
    """
    for name in SIBLINGS:
        ours = Path(__file__).resolve().parents[1] / name / "__init__.py"
        module = sys.modules.get(name)
        if module is None:
            spec = spec_from_file_location(name, ours, submodule_search_locations=[str(ours.parent)])
            if spec is None or spec.loader is None:
                raise ImportError(f"pearl-qdrant is installed without its package '{name}' ({ours})", name=name)
            module = sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(module)
        found = getattr(module, "__file__", None)
        if found is None or Path(found).resolve() != ours:
            raise ImportError(
                f"The module '{name}' that is imported already is {found or 'a folder'}, and pearl-qdrant has a "
                f"package of this name ({ours.parent}). Rename yours, or import from pearl_qdrant before it.",
                name=name,
                path=found,
            )


def lazy_exports(package: str, module_of: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: The package's `__name__`.
        module_of: The module that defines each exported name.
    """

    def get_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module_of[name].split(".")[0] in SIBLINGS:
            import_siblings()
        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get_attribute, list_names
