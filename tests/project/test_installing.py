"""Install commands in error messages work where they are shown.
Files of a user that are called `ingest.py` or `training.py`, as the packages of this project.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT, project

from pearl_qdrant.cli.shared import needs_extra
from pearl_qdrant.errors import ModelError
from pearl_qdrant.installing import install_command

HANG_S = 600


def test_in_a_clone_the_extra_is_installed_from_the_clone() -> None:
    """The package is on no index, so the command of a clone installs from the clone."""
    assert install_command("train") == f"pip install '.[train]' (in {ROOT})"


@pytest.mark.parametrize("beside", [None, "name = 'another'\n", '[project]\nname = "another"\n'])
def test_an_installed_package_is_extended_by_its_name(tmp_path: Path, beside: str | None) -> None:
    """Pip knows an installed package by name, and adds the libraries of the extra."""
    if beside is not None:
        (tmp_path / "pyproject.toml").write_text(beside, encoding="utf-8")

    assert install_command("train", root=tmp_path) == "pip install 'pearl-qdrant[train]'"


def test_a_command_names_the_extra_that_it_needs() -> None:
    """The error for a missing library has the command that installs it."""
    with pytest.raises(ModelError, match=r"no_such_library is not installed.*pip install '\.\[train\]'"), (
        needs_extra("train")
    ):  # fmt: skip
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401


def test_every_named_extra_exists_and_has_a_test_of_its_own() -> None:
    """Extras in calls are in pyproject.toml; `.ci/extras.py` installs each alone, but for those of a clone."""
    extras = project()["project"]["optional-dependencies"]
    named = {
        extra
        for package in ("pearl_qdrant", "ingest", "training")
        for path in (ROOT / package).rglob("*.py")
        for extra in re.findall(r"(?:install_command|needs_extra)\([\"'](\w+)[\"']", path.read_text(encoding="utf-8"))
    }

    assert {"arrow", "torch", "train"} <= named <= set(extras)
    assert runpy.run_path(str(ROOT / ".ci" / "extras.py"))["SMOKE"].keys() == extras.keys() - {"dev", "docs"} | {"none"}


@pytest.mark.parametrize(
    "words",
    [
        "train paraphrase {folder}",
        "train corpus {folder}/texts.txt --wordnet {folder} --typer ner --ner-model a/b --out {folder}/out",
        "train fit --base-model {folder} --aliases {folder}/base.tsv --out {folder}/out",
        "train head --base-model {folder} --aliases {folder}/base.tsv --out {folder}/out",
        "train love {folder} {folder}/out",
        "train ulr {folder} {folder}/out --text {folder}/texts.txt",
        "train average {folder} {folder} {folder}/out",
        "train export {folder} {folder}/out",
        "models export {folder} {folder}/out --torch",
    ],
)
def test_every_stage_reports_missing_torch(tmp_path: Path, words: str) -> None:
    """Without the extra, no stage of training ends in a traceback."""
    from tiny_wordnet import make_sentence_wordnet

    make_sentence_wordnet(tmp_path)
    (tmp_path / "freq_phrase.txt").write_text("NP__new york\t7\n", encoding="utf-8")
    (tmp_path / "base.tsv").write_text("id\tname\taliases\n1\tnew york\tcity\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("The thieves stole a car in Paris.\n" * 3, encoding="utf-8")
    argv = [word.format(folder=tmp_path) for word in words.split()]
    code = f"import sys; sys.modules['torch'] = None; sys.argv = {['pearl-qdrant', *argv]!r}\n"
    code += "from pearl_qdrant.cli import main; main()"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "not installed" in done.stderr
    assert "pip install '.[train]'" in done.stderr


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
