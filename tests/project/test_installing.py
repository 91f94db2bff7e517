"""Install commands in error messages work where they are shown."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pearl_qdrant.cli.shared import needs_extra
from pearl_qdrant.errors import ModelError
from pearl_qdrant.installing import install_command

ROOT = Path(__file__).resolve().parents[2]

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
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
