"""The notebooks of contrib/: each runs from its first cell to its last, and none has outputs in the repository."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import project

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "contrib" / "notebooks").glob("*.ipynb"))

EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

NotebookClient(nbformat.read(sys.argv[1], 4), timeout=300, startup_timeout=300).execute()
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """What I see when I open it is what I get when I run it."""
    cells = json.loads(path.read_text("utf-8"))["cells"]

    assert {"code", "markdown"} == {cell["cell_type"] for cell in cells}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_notebooks_install_as_the_docs_do() -> None:
    """The package is on no index: it is installed from a clone, with an extra that there is."""
    extras = {"." + f"[{name}]" for name in project()["project"]["optional-dependencies"]}
    installed = [re.findall(r"`pip install ([^`]*)` in a clone", path.read_text("utf-8")) for path in NOTEBOOKS]

    assert all(len(found) == 1 for found in installed)
    assert {found[0].split()[0].strip("'") for found in installed} <= {".", *extras}


def test_the_page_of_frameworks_names_what_each_gives() -> None:
    """Each class and function that a program imports is in the table."""
    page = (ROOT / "docs" / "integrations" / "index.md").read_text("utf-8")
    for module in ("langchain", "llama_index", "haystack"):
        source = (ROOT / "pearl_qdrant" / "integrations" / f"{module}.py").read_text("utf-8")
        names = re.findall(r"^(?:class|def) ((?:Entity|make_)\w+)", source, re.MULTILINE)
        assert len(names) >= 2
        assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Run in its own folder, every cell does, and what it asserts holds."""
    pytest.importorskip("nbclient")  # not with Python 3.10, as the frameworks
    if path.stem in ("cognee", "lightrag", "neo4j_graphrag") and importlib.util.find_spec(path.stem) is None:
        pytest.skip(f"{path.stem} is not installed")  # `.ci/extras.py lightrag cognee` runs these
    folder = tmp_path / "contrib" / "notebooks"
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "examples" / "graph", tmp_path / "examples" / "graph")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXECUTE, str(path)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
