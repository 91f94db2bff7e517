"""Module attributes that are imported on first use (PEP 562).

A package that exports through this module costs nothing to import: it imports its exports under `TYPE_CHECKING`, where
type checkers see them, and this module reads there where they are, as SPEC 1 of Scientific Python does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
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


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, by its `__name__`."""

    @cache
    def module_of() -> dict[str, str]:
        """The module of each name that the package imports under `TYPE_CHECKING`, and exports."""
        found = sys.modules[package]
        source = found.__spec__.loader.get_source(package)  # type: ignore[union-attr] # it was imported from a file
        blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        modules = {alias.name: str(node.module) for node in imports for alias in node.names}
        return {name: modules[name] for name in found.__all__ if name in modules}

    def get_attribute(name: str) -> Any:
        module = module_of().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module.split(".")[0] in SIBLINGS:
            import_siblings()
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute, lambda: sorted({*vars(sys.modules[package]), *module_of()})
