"""Who imports whom: the order of the packages, and the libraries that they declare."""

from __future__ import annotations

import ast
import re
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

BASE = ("errors", "installing", "records", "phrase_types", "_version")
READING = (
    "ingest.io.report",
    "ingest.formats",
    "ingest.readers.tsv.layout",
    "ingest.io.streams",
    "ingest.io.lines",
    "ingest.io.byte_lines",
)
"""What training needs of ingest: bases through `open_reader`, texts and its own files through streams and lines."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "installing": (),
    "records": (),
    "phrase_types": (),
    "_version": (),
    "settings": BASE,
    "lexical": (),
    "encoder": (*BASE, "settings"),
    "store": (*BASE, "settings", "encoder", "lexical"),
    "linking": (*BASE, "settings", "encoder", "lexical", "store"),
    "ingest": (*BASE, "settings", "encoder", "lexical", "store"),
    "training": (*BASE, "settings", "encoder", "lexical", "store", "linking", *READING),
}
"""The order of design.md, section 2. The command line, on top, may import everything."""

TOP = ("cli", "__main__")
"""Parts of pearl_qdrant that compose the rest; nobody imports them but each other."""


@dataclass(frozen=True)
class Import:
    """One import: which module names which, where, and whether it is for type checkers alone."""

    importer: str
    imported: str
    place: str
    for_types: bool = False


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name and path of every module of the three packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def imports_of(name: str, path: Path) -> Iterator[Import]:
    """All imports of a module, those within functions and type-checking blocks too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
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


IMPORTS = [found for name, path in MODULES.items() for found in imports_of(name, path)]


def part(module: str) -> str:
    """The part of the project that a module belongs to: `pearl_qdrant.store.edge.store` is of `store`."""
    first, _, rest = module.partition(".")
    if first != "pearl_qdrant":
        return first
    return rest.split(".")[0]


def is_allowed(found: Import) -> bool:
    """Whether an import between the project's own modules goes downwards."""
    importer, imported = part(found.importer), part(found.imported)
    if importer in TOP:
        return True
    if importer == "":  # the lazy export list, which imports for type checkers alone
        return imported not in TOP
    return imported == importer or imported in MAY_IMPORT[importer] or found.imported in MAY_IMPORT[importer]


def test_packages_import_downwards_only() -> None:
    """No part of the project knows of a part above it."""
    own = [found for found in IMPORTS if found.imported.split(".")[0] in PACKAGES]

    assert len(own) > 10
    assert [f"{found.place} imports {found.imported}" for found in own if not is_allowed(found)] == []


def test_every_part_has_a_place_in_the_order() -> None:
    """A new top-level module or folder must be given its place in `MAY_IMPORT`."""
    assert {part(name) for name in MODULES} - {""} <= {*MAY_IMPORT, *TOP}


@pytest.mark.parametrize(
    "importer, imported",
    [
        ("pearl_qdrant.encoder.tokens", "pearl_qdrant.store.schema"),
        ("pearl_qdrant.records", "pearl_qdrant.errors"),
        ("pearl_qdrant.linking.linker", "ingest.readers.tsv.reader"),
        ("pearl_qdrant.store.edge.store", "pearl_qdrant.cli"),
        ("ingest.readers.tsv.reader", "training.finetune.losses"),
        ("training.examples.sources", "ingest.readers.tsv.reader"),
        ("pearl_qdrant.store.edge.store", "pearl_qdrant"),
    ],
)
def test_an_upward_import_would_be_found(importer: str, imported: str) -> None:
    """The rule does refuse what it is there to refuse."""
    assert not is_allowed(Import(importer, imported, ""))


def project() -> dict[str, Any]:
    """pyproject.toml, parsed."""
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return parsed


def distributions(requirements: list[str]) -> set[str]:
    """Names of the required distributions, normalised."""
    return {re.split(r"[\s\[<>=!~;]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


DISTRIBUTION = {"PIL": "pillow", "qdrant_edge": "qdrant-edge-py", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Distributions that are not named as their module is, apart from - and _."""


def third_parties() -> Iterator[tuple[Import, str]]:
    """Imports of other people's modules, with the distribution that brings them."""
    for found in IMPORTS:
        top = found.imported.split(".")[0]
        if top in PACKAGES or top in sys.stdlib_module_names or found.for_types:
            continue
        yield found, DISTRIBUTION.get(top, top.replace("_", "-").lower())


def test_every_library_that_is_imported_is_declared() -> None:
    """Nothing works only because another package happens to bring a library along."""
    extras = project()["project"]["optional-dependencies"]
    base = distributions(project()["project"]["dependencies"])
    with_torch = base | distributions(extras["torch"])
    with_train = with_torch | distributions([*extras["train"], *extras["corpus"]])

    undeclared = [
        f"{found.place} imports {distribution}"
        for found, distribution in third_parties()
        if distribution not in (with_train if part(found.importer) == "training" else with_torch)
    ]

    assert undeclared == []


def test_pins_match_what_is_published() -> None:
    """constraints.txt pins every distribution that pyproject.toml names."""
    pins = distributions(re.findall(r"^[^#\s].*", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    extras = project()["project"]["optional-dependencies"]
    named = distributions([*project()["project"]["dependencies"], *(r for extra in extras.values() for r in extra)])

    assert named - pins == {"pearl-qdrant"}


def test_every_package_is_packaged() -> None:
    """A folder with modules is a package, and stands in pyproject.toml's explicit list."""
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES.values()}

    assert {folder for folder in folders if folder not in MODULES} == set()
    assert folders == set(project()["tool"]["setuptools"]["packages"])
