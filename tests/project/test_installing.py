"""Install commands in error messages work where they are shown.
Files of a user that are called `ingest.py` or `training.py`, as the packages of this project.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from source_tree import ROOT, project
from tiny_wordnet import make_sentence_wordnet

from pearl_qdrant.installing import install_command

HANG_S = 600


@pytest.mark.parametrize("beside", [None, "name = 'another'\n", '[project]\nname = "another"\n'])
def test_an_installed_package_is_extended_by_its_name(tmp_path: Path, beside: str | None) -> None:
    """Pip knows an installed package by name, and adds the libraries of the extra."""
    if beside is not None:
        (tmp_path / "pyproject.toml").write_text(beside, encoding="utf-8")

    assert install_command("train", root=tmp_path) == "pip install 'pearl-qdrant[train]'"


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


def test_all_has_every_extra_that_needs_no_torch() -> None:
    """`integrations` has each framework with a module but oaklib; `all` leaves out torch, Ray, what a clone uses."""
    extras = project()["project"]["optional-dependencies"]

    def named(extra: str) -> set[str]:
        inner = {name for one in extras[extra] for name in Requirement(one).extras if one.startswith("pearl-qdrant[")}
        return inner | {name for one in inner for name in named(one)}

    modules = {path.stem for path in (ROOT / "pearl_qdrant" / "integrations").glob("[!_]*.py")}
    frameworks = {one for one in extras if one.replace("-", "_") in modules}
    apart = {"torch", "train", "hub", "bench", "peers", "names", "ray", "docs", "dev", "oaklib"}

    assert named("integrations") - {"serve"} == frameworks - {"oaklib"}
    assert named("all") == extras.keys() - apart - {"all"}


STAGES = (
    "train paraphrase .",
    "train corpus texts.txt --wordnet . --set typer=ner --set ner_model=a/b --out out",
    "train fit --base-model . --aliases base.tsv --out out",
    "train head --base-model . --aliases base.tsv --out out",
    "train love . out",
    "train ulr . out --text texts.txt",
    "train average . . out",
    "train export . out",
    "models export . out",
)

RUN_STAGES = """
import contextlib, io, json, sys

sys.modules["torch"] = None
from pearl_qdrant.cli import main

for words in sys.argv[1:]:
    sys.argv, said = ["pearl-qdrant", *words.split()], io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code
    print(json.dumps([words, status, said.getvalue()]))
"""


def test_every_stage_reports_missing_torch(tmp_path: Path) -> None:
    """Without the extra, no stage of training ends in a traceback; the package is on no index, so the command of a
    clone installs from the clone.
    """
    make_sentence_wordnet(tmp_path)
    (tmp_path / "freq_phrase.txt").write_text("NP__new york\t7\n", encoding="utf-8")
    (tmp_path / "base.tsv").write_text("id\tname\taliases\n1\tnew york\tcity\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("The thieves stole a car in Paris.\n" * 3, encoding="utf-8")
    command, environment = [sys.executable, "-c", RUN_STAGES, *STAGES], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]

    assert [words for words, *_ in outcomes] == [*STAGES], done.stderr
    for words, status, said in outcomes:
        assert status == 1, words
        assert "Traceback" not in said, words
        assert "not installed" in said, words
        assert f"pip install '.[train]' (in {ROOT})" in said, words


BARE = (
    "ingest base.tsv --model {model} --collection base",
    "link --file names.txt --report report.html",
    "annotate She_lives_in_Lyon.",
    "learn --labelled pairs.tsv",
    "calibrate --labelled pairs.tsv",
    "entities show b --collection base",
    "collections verify base",
    "resolve names.txt --model {model}",
    "crosswalk other.tsv base",
    "models list",
    "doctor",
)
"""What a bare installation does."""


def of_extras() -> set[str]:
    """The modules of installed libraries that extras name and a bare installation lacks."""
    has: set[str] = set()
    waiting = [(Requirement(one), "") for one in project()["project"]["dependencies"]]
    while waiting:
        wanted, extra = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name not in has and (wanted.marker is None or wanted.marker.evaluate({"extra": extra})):
            has.add(name)
            rest = map(Requirement, metadata.requires(name) or ())
            waiting += [(one, extra) for one in rest for extra in ("", *wanted.extras)]
    extras = project()["project"]["optional-dependencies"].values()
    lacking = {canonicalize_name(Requirement(one).name) for extra in extras for one in extra} - has
    found = metadata.packages_distributions().items()
    return {module for module, names in found if set(map(canonicalize_name, names)) <= lacking}


@pytest.mark.slow
def test_a_bare_installation_links_reports_and_resolves(tmp_path: Path, model: Path) -> None:
    """Without any extra, commands that ask for none do their work."""
    blocked = of_extras() - {"pearl_qdrant", "ingest", "training"}
    assert {"fastapi", "pandas", "pyarrow", "scipy", "torch"} <= blocked
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n")
    for name, text in (
        ("base.tsv", "id\tname\na\tParis\nb\tLyon\n" + "".join(f"{one}\ttown {one}\n" for one in range(20))),
        ("other.tsv", "id\tname\n1\tLyon\n2\tOslo\n"),
        ("names.txt", "Lyon\nLyons\nOslo\n"),
        ("pairs.tsv", "".join(f"Town {one}\t{one}\nriver {one}\t\n" for one in range(20))),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PEARL_QDRANT_STORE": "store"}
    failed = {}
    for line in BARE:
        words = [one.replace("_", " ") if one[0].isupper() else one.format(model=model) for one in line.split()]
        command = [sys.executable, "-m", "pearl_qdrant", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or "Traceback" in done.stderr:
            failed[line] = done.returncode, done.stderr[-1500:]

    assert failed == {}


def make(target: str, **environment: str) -> str:
    """What `make` would run for a target, in a clone where nothing is installed."""
    command = ["make", "-n", target, "VENV=there-is-none"]
    clean = {
        name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS", "MAKELEVEL")
    } | environment
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True, timeout=HANG_S)
    return done.stdout


def test_the_demo_shows_what_it_installs_and_fills_the_collection_of_readme() -> None:
    """A person sees pip at work; the collection is where the commands of README look for it."""
    commands = make("demo")

    assert re.search(r"pip install .*-e \.", commands)
    assert "--quiet" not in commands
    assert commands.splitlines()[-1].endswith("bin/pearl-qdrant demo")
    assert "--quiet" in make("demo", CI="true")


def test_what_readme_writes_into_the_clone_is_ignored(tmp_path: Path) -> None:
    """After the commands of README `git status` shows nothing new."""
    written = re.findall(r"^pearl-qdrant .* --out (\S+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())

    assert written == ["merged"]
    for name in written:
        (tmp_path / name).mkdir()
        (tmp_path / name / "graph.json").touch()
    shown = subprocess.run(
        ["git", "-C", str(tmp_path), "status", "--short"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "?? .gitignore\n"


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
