"""The files of the repository; the modules of the three packages, their syntax trees and their imports."""

from __future__ import annotations

import ast
import functools
import gc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pearl_qdrant", "ingest", "training")


@dataclass(frozen=True)
class Import:
    """An import: importing and imported module, file and line, and whether it is for type checkers only."""

    importer: str
    imported: str
    place: str
    for_types: bool = False


def tracked_files() -> list[Path]:
    """All files that git tracks or would add; without git, the test is skipped."""
    try:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name and path of every module of the three packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module's syntax tree, the module itself first; read once for all tests.

    With collections of garbage in between, which finds none, it takes ten times as long.
    """
    gc.disable()
    try:
        return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))
    finally:
        gc.enable()


def imports_of(name: str, path: Path) -> Iterator[Import]:
    """All imports of a module, also those within functions and type-checking blocks."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    nodes = nodes_of(path)
    for_types = {
        inner
        for node in nodes
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            named = [inner if (inner := f"{source}.{alias.name}") in MODULES else source for alias in node.names]
        else:
            continue
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        yield from (Import(name, target, place, node in for_types) for target in named)


@functools.cache
def all_imports() -> list[Import]:
    """All imports of the three packages."""
    return [found for name, path in MODULES.items() for found in imports_of(name, path)]


def project() -> dict[str, Any]:
    """pyproject.toml, parsed."""
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return parsed
