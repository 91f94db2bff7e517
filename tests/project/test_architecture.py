"""The architecture: order of imports, declared libraries, sizes of folders, files and functions."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from source_tree import MODULES, PACKAGES, ROOT, Import, all_imports, nodes_of, project

BASE = ("cells", "child", "errors", "installing", "pieces", "records", "phrase_types", "_version", "_lazy")
READING = (
    "ingest.io.report",
    "ingest.io.reasons",
    "ingest.formats",
    "ingest.base.format",
    "ingest.io.streams",
    "ingest.io.encoding",
)
"""What training needs of ingest: bases through `open_reader`, texts and its own files through streams and lines."""

LIMITS = tuple(f"pearl_qdrant.service.{one}" for one in ("settings", "lanes", "connections", "gate", "observing"))
"""What the MCP server needs of the service: the same limits."""

STORE = (*BASE, "options", "settings", "binary_tables", "encoder", "lexical", "store")
LINKING = (*STORE, "linking")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*BASE, "lexical", "progress"), ()),
    **dict.fromkeys(("settings", "options"), BASE),
    **dict.fromkeys(("binary_tables", "report"), (*BASE, "settings")),
    "encoder": (*BASE, "settings", "lexical"),
    **dict.fromkeys(("store", "doctor", "linking"), STORE),
    **dict.fromkeys(("transfer", "service", "resolution", "crosswalk"), LINKING),
    "integrations": (*LINKING, *LIMITS, "resolution"),
    "ingest": (*STORE, "pearl_qdrant.linking.learned.learning"),
    "training": (*LINKING, *READING, "progress"),
}
"""What each part of the project may import. The command line, on top, may import everything."""

TOP = ("cli", "__main__")
"""Parts of pearl_qdrant that use all others; only they may import each other."""


def part(module: str) -> str:
    """The part of the project that a module belongs to: `store` for `pearl_qdrant.store.edge.store`."""
    first, _, rest = module.partition(".")
    if first != "pearl_qdrant":
        return first
    return rest.split(".")[0]


def is_allowed(found: Import) -> bool:
    """Whether an import between the project's own modules goes downwards."""
    importer, imported = part(found.importer), part(found.imported)
    if importer in TOP:
        return True
    if importer == "":  # the lazy export list, which only imports for type checkers
        return imported not in TOP
    return imported == importer or imported in MAY_IMPORT[importer] or found.imported in MAY_IMPORT[importer]


def test_packages_import_downwards_only() -> None:
    """No part of the project imports a part above it."""
    own = [found for found in all_imports() if found.imported.split(".")[0] in PACKAGES]

    assert len(own) > 10
    assert [f"{found.place} imports {found.imported}" for found in own if not is_allowed(found)] == []


def test_every_part_has_a_place_in_the_order() -> None:
    """A new top-level module or folder needs an entry in `MAY_IMPORT`."""
    assert {part(name) for name in MODULES} - {""} <= {*MAY_IMPORT, *TOP}


def distributions(requirements: list[str]) -> set[str]:
    """Normalised names of the required distributions."""
    return {re.split(r"[\s\[<>=!~;]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


DISTRIBUTION = {
    "PIL": "pillow",
    "haystack": "haystack-ai",
    "llama_index": "llama-index-core",
    "opentelemetry": "opentelemetry-api",
    "qdrant_edge": "qdrant-edge-py",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions whose module has another name, apart from - and _."""


INTEGRATED = tuple(
    "langchain llama-index haystack neo4j-graphrag spacy mcp pandas polars duckdb fastembed oaklib".split()
)
"""Extras of `pearl_qdrant/integrations`, one a framework."""


def third_parties() -> Iterator[tuple[Import, str]]:
    """Imports of third-party modules, with their distribution."""
    for found in all_imports():
        top = found.imported.split(".")[0]
        if top in PACKAGES or top in sys.stdlib_module_names or found.for_types:
            continue
        yield found, DISTRIBUTION.get(top, top.replace("_", "-").lower())


def test_every_library_that_is_imported_is_declared() -> None:
    """No import relies on a library that only another dependency installs."""
    extras = project()["project"]["optional-dependencies"]
    base = distributions(project()["project"]["dependencies"])
    with_torch = base | distributions(extras["torch"])
    libraries_of = {
        "training": with_torch | distributions(extras["train"]),
        "ingest": with_torch | distributions([*extras["arrow"], *extras["ray"], *extras["rdf"]]),
        "encoder": with_torch | distributions(extras["fastembed"]),
        "integrations": base | distributions([r for one in INTEGRATED for r in extras.get(one, ())]),
        "service": base | distributions(extras["serve"]),
        "crosswalk": base | distributions(extras["crosswalk"]),
        "binary_tables": base | distributions([*extras["arrow"], *extras["workbooks"]]),
        "resolution": base | distributions(extras["arrow"]),
    }

    undeclared = [
        f"{found.place} imports {distribution}"
        for found, distribution in third_parties()
        if distribution not in libraries_of.get(part(found.importer), with_torch)
    ]

    assert undeclared == []


def test_every_dependency_is_pinned() -> None:
    """constraints.txt pins every distribution that pyproject.toml names."""
    pins = distributions(re.findall(r"^[^#\s].*", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    extras = project()["project"]["optional-dependencies"]
    named = distributions([*project()["project"]["dependencies"], *(r for extra in extras.values() for r in extra)])

    assert named - pins == {"pearl-qdrant"}


def test_every_package_is_packaged() -> None:
    """Each folder with modules is a package, which setuptools finds by itself."""
    from setuptools import find_packages

    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES.values()}

    assert {folder for folder in folders if folder not in MODULES} == set()
    included = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    assert folders == set(find_packages(str(ROOT), include=included))


def beside(folder: str) -> dict[str, set[str]]:
    """Imports between the modules and folders directly in a folder, those for type checkers included.

    Files `__init__.py` do not count.
    """
    start = f"{folder}." if folder else ""
    imports: dict[str, set[str]] = {}
    for found in all_imports():
        if any(is_package(name) for name in (found.importer, found.imported)):
            continue
        if not (found.importer.startswith(start) and found.imported.startswith(start)):
            continue
        ours, theirs = (name[len(start) :].split(".")[0] for name in (found.importer, found.imported))
        if ours != theirs and theirs in NEIGHBOURS[folder]:
            imports.setdefault(ours, set()).add(theirs)
    return imports


def is_package(name: str) -> bool:
    """Whether a dotted name is a package."""
    return name in MODULES and MODULES[name].name == "__init__.py"


def neighbours() -> dict[str, set[str]]:
    """Names of the modules and folders directly in each folder."""
    within: dict[str, set[str]] = {"": set(PACKAGES)}
    for name in MODULES:
        folder, _, last = name.rpartition(".")
        within.setdefault(folder, set()).add(last)
    return within


NEIGHBOURS = neighbours()


def find_cycle(imports: dict[str, set[str]]) -> list[str]:
    """A cycle of imports, or an empty list."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_folder_has_a_cycle() -> None:
    """Modules and folders of a folder never import each other in a cycle, so that each can be read alone."""
    cycles = {}
    for folder in set(NEIGHBOURS) - {""}:
        imports = beside(folder)
        if folder == "pearl_qdrant":
            imports = {name: targets for name, targets in imports.items() if name not in TOP}
        cycles[folder] = find_cycle(imports)

    assert {folder: cycle for folder, cycle in cycles.items() if cycle} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even through functions or for type checkers, the lazy exports of packages apart."""
    imports: dict[str, set[str]] = {}
    for found in all_imports():
        if found.imported in MODULES and found.imported != found.importer and not is_package(found.importer):
            imports.setdefault(found.importer, set()).add(found.imported)

    assert find_cycle(imports) == []


MOST_FILES = 30
"""Files in a folder, `__init__.py` included."""

MOST_LINES = 600
"""Lines of a file."""

LONG_FUNCTION = 60
"""Lines of a function from `def` on; a longer one needs a reason behind its `def`: ``# long: ...``."""

SOURCES = [
    path
    for folder in (*PACKAGES, "tests", "benchmarks", "runs", "examples", ".ci")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_folders_and_files_are_small() -> None:
    """A folder has at most 30 files, and a file at most 600 lines."""
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in SOURCES)
    lines = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in SOURCES}

    assert {folder: n for folder, n in files.items() if n > MOST_FILES} == {}
    assert {path: n for path, n in lines.items() if n > MOST_LINES} == {}


def test_long_functions_have_a_reason() -> None:
    """A function of over 60 lines has a reason behind its `def`."""
    found = []
    for path in SOURCES:
        lines = path.read_text("utf-8").splitlines()
        for node in nodes_of(path):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.end_lineno is None:
                continue
            is_long = node.end_lineno - node.lineno >= LONG_FUNCTION
            if is_long and "# long: " not in lines[node.lineno - 1]:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")

    assert found == []


MOST_PARAMETERS = 8
"""Parameters of a function, but for `self` and `cls`; more are the fields of a record, given as its keywords."""


def test_functions_have_few_parameters() -> None:
    """A function of the packages has at most eight parameters."""
    found = {}
    for path in MODULES.values():
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                if (n := len([one for one in names if one not in ("self", "cls")])) > MOST_PARAMETERS:
                    found[node.name] = n

    assert found == {}


def test_every_folder_has_a_docstring() -> None:
    """Each `__init__.py` says what its folder does."""
    modules = {name: nodes_of(path)[0] for name, path in MODULES.items() if is_package(name)}

    assert [name for name, one in modules.items() if isinstance(one, ast.Module) and not ast.get_docstring(one)] == []


def names_in(path: Path) -> set[str]:
    """Names that a module defines or imports, anywhere in it."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_scripts_import_what_exists() -> None:
    """Benchmarks, recipes and examples, which no test runs, import no module or name that has moved."""
    known = {name: names_in(path) for name, path in MODULES.items()}
    scripts = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("benchmarks", "runs", "examples")]
    imports = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.module, alias.name)
        for path in scripts
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES
        for alias in node.names
    ]

    assert len(imports) > 50
    assert [one for one in imports if f"{one[1]}.{one[2]}" not in MODULES and one[2] not in known.get(one[1], ())] == []


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def texts_with_flags(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the strings in a module that name a flag, docstrings and whole commands apart."""
    skipped: set[ast.AST] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)  # a docstring
        if isinstance(node, ast.JoinedStr) and "pearl-qdrant " in ast.unparse(node):
            skipped.update(ast.walk(node))  # a command to type
    for node in nodes_of(path):
        if node in skipped or not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if FLAG.search(node.value) and "pearl-qdrant " not in node.value:
            yield node.lineno, node.value


def test_library_messages_name_no_flag() -> None:
    """The library states facts and names arguments (`PearlQdrantError.option`); only the command line names flags."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in MODULES.values()
        if "cli" not in path.relative_to(ROOT).parts
        for line, text in texts_with_flags(path)
    ]

    assert found == []
