"""The notebooks of contrib/: each runs from its first cell to its last, and none has outputs in the repository."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Run in its own folder, every cell does, and what it asserts holds."""
    pytest.importorskip("nbclient")  # not with Python 3.10, as the frameworks
    if path.stem in ("lightrag", "neo4j_graphrag") and importlib.util.find_spec(path.stem) is None:
        pytest.skip(f"{path.stem} is not installed")  # `.ci/extras.py lightrag` runs that one
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
