"""The connectors are independent of each other, small, and run as the documentation shows them."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "pearl_qdrant" / "integrations"

FRAMEWORK = {
    "langchain": "langchain_core",
    "llama_index": "llama_index",
    "haystack": "haystack",
    "neo4j_graphrag": "neo4j_graphrag",
    "spacy": "spacy",
    "mcp": "mcp",
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "fastembed": "fastembed",
    "oaklib": "oaklib",
    "chat": "httpx",
}
"""The library of each connector."""

BESIDE = {"pearl_qdrant", "pydantic", "qdrant_client", "numpy", "typing_extensions"}
"""What every connector may import."""

OTHER_PARTS = {"neo4j_graphrag": {"neo4j"}, "duckdb": {"pyarrow"}, "polars": {"pyarrow"}, "chat": {"tenacity"}}
"""Further libraries that a framework brings or needs."""


MOST_LINES = 150
"""Lines of code of a module, docstrings and comments apart."""


def n_lines(path: Path) -> int:
    """Lines of code of a module, as `ast.unparse` writes them."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not is_text(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return len([line for line in ast.unparse(tree).splitlines() if line.strip()])


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports anywhere, the standard library apart."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[0] for name in found} - sys.stdlib_module_names


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_connector_names_its_own_framework_only(path: Path) -> None:
    """No module of the folder imports the library of another connector, and each is short. No other module of the
    project imports any of them: `test_architecture.py`.
    """
    own = FRAMEWORK.get(path.stem)
    allowed = BESIDE | OTHER_PARTS.get(path.stem, set()) | ({own} if own else set())

    assert imported(path) <= allowed
    assert n_lines(path) <= MOST_LINES


def pages() -> list[tuple[str, str, str]]:
    """Each example of the pages on connectors that has its output below it: a name, the program, the output."""
    return [
        (f"{path.stem}-{number}", program, output)
        for path in sorted((ROOT / "docs" / "integrations").glob("*.md"))
        for number, (program, output) in enumerate(
            re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", path.read_text("utf-8"), re.DOTALL), 1
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("program, output", [pytest.param(*rest, id=name) for name, *rest in pages()])
def test_an_example_of_the_docs_prints_what_stands_below_it(
    program: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What I copy from a page runs as it stands, and prints what the page says."""
    for name in imported_by(program):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        exec(compile(program, "example", "exec"), {"__name__": "example"})

    assert printed.getvalue() == output


def imported_by(program: str) -> set[str]:
    """The top-level packages of an example."""
    nodes = ast.walk(ast.parse(program))
    named = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return {name.split(".")[0] for name in named} - sys.stdlib_module_names
