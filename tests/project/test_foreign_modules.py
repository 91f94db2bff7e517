"""Files of a user that are called `ingest.py` or `training.py`, as the packages of this project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANG_S = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a user's own files, and a base."""
    for name in ("ingest", "training"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n", encoding="utf-8")
    (tmp_path / "base.tsv").write_text("1\tParis\n", encoding="utf-8")
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a Python started in a folder says."""
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S
    )


def test_what_a_program_calls_is_imported_beside_files_of_the_same_names(folder: Path) -> None:
    """The first import of README works in a folder with an `ingest.py` and a `training.py`."""
    code = "from pearl_qdrant import load_base, scan_base, FitRequest; print(scan_base('base.tsv').names)"
    found = python(folder, "-c", code)

    assert (found.stdout, found.stderr) == ("1\n", "")


def test_a_script_may_be_called_ingest(folder: Path) -> None:
    """A user's `ingest.py` itself loads a base."""
    (folder / "ingest.py").write_text(
        "from pearl_qdrant import scan_base\nprint(scan_base('base.tsv').names)\n", "utf-8"
    )

    assert python(folder, "ingest.py").stdout == "1\n"


def test_the_command_line_works_beside_files_of_the_same_names(folder: Path) -> None:
    """`python -m pearl_qdrant` takes its own packages, not the files of the folder."""
    found = python(folder, "-m", "pearl_qdrant", "ingest", "base.tsv", "--dry-run", "--json")

    assert found.returncode == 0, found.stderr
    assert '"names": 1' in found.stdout


@pytest.mark.parametrize("name", ["ingest", "training"])
def test_a_foreign_module_is_named_with_its_path(folder: Path, name: str) -> None:
    """Where a user's module of the name is imported already, the error says which file it is and what to do."""
    found = python(folder, "-c", f"import {name}\nfrom pearl_qdrant import load_base")

    assert str(folder / f"{name}.py") in found.stderr
    assert "Rename yours" in found.stderr
