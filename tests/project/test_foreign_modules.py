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


def test_programs_and_commands_work_beside_files_of_the_same_names(folder: Path) -> None:
    """The first import of README, a user's own `ingest.py`, and `python -m pearl_qdrant` take our packages."""
    code = "from pearl_qdrant import load_base, scan_base, FitRequest; print(scan_base('base.tsv').names)"
    found = python(folder, "-c", code)
    assert (found.stdout, found.stderr) == ("1\n", "")
    by_command = python(folder, "-m", "pearl_qdrant", "ingest", "base.tsv", "--dry-run", "--json")
    assert (by_command.returncode, '"names": 1' in by_command.stdout) == (0, True), by_command.stderr
    (folder / "ingest.py").write_text(code.replace(", FitRequest", ""), "utf-8")
    assert python(folder, "ingest.py").stdout == "1\n"


@pytest.mark.parametrize("name", ["ingest", "training"])
def test_a_foreign_module_is_named_with_its_path(folder: Path, name: str) -> None:
    """Where a user's module of the name is imported already, the error says which file it is and what to do."""
    found = python(folder, "-c", f"import {name}\nfrom pearl_qdrant import load_base")

    assert str(folder / f"{name}.py") in found.stderr
    assert "Rename yours" in found.stderr
