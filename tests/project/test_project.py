"""The project as seen from outside: public names, what an import costs, the version, no traces of a machine."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pearl_qdrant

ROOT = Path(__file__).resolve().parents[2]

HEAVY = ("torch", "transformers", "qdrant_client", "qdrant_edge", "fastembed", "onnxruntime", "tokenizers", "numpy")
"""What neither `import pearl_qdrant` nor `--help` may load."""

HANG_S = 600

HELP_STEPS = 300_000
"""Calls and returns of `--help`, from the first import on: half of them are made now, in 0.1 s."""


def test_the_version_stands_in_step() -> None:
    """The changelog begins with the version that the package, and through it pyproject.toml, states."""
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert heading
    assert heading[1] == pearl_qdrant.__version__


def test_the_public_names_are_these() -> None:
    """Adding or removing a public name is a decision, made here too."""
    assert pearl_qdrant.__all__ == [
        "Annotation",
        "Candidate",
        "CollectionNotFoundError",
        "DeviceError",
        "Entity",
        "EntityLinker",
        "EntityNotFoundError",
        "InputError",
        "Link",
        "LinkOptions",
        "ModelError",
        "ModelMismatchError",
        "NilReason",
        "PearlQdrantError",
        "SettingsError",
        "StoreError",
        "StoreLockedError",
        "StoreUnavailableError",
        "UnknownTypeError",
        "__version__",
    ]


@pytest.mark.parametrize("name", pearl_qdrant.__all__)
def test_every_public_name_resolves_to_its_namesake(name: str) -> None:
    """`from pearl_qdrant import X` gives X."""
    value = getattr(pearl_qdrant, name)

    assert name == "__version__" or value.__name__ == name
    assert name in dir(pearl_qdrant)


def test_public_names_are_typed_as_they_resolve() -> None:
    """What type checkers see under TYPE_CHECKING is what Python gives at run time."""
    tree = ast.parse((ROOT / "pearl_qdrant" / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pearl_qdrant.")
        for alias in node.names
        if alias.name != "lazy_exports"
    }

    assert sorted(typed) == pearl_qdrant.__all__
    for name, module in typed.items():
        assert getattr(importlib.import_module(module or ""), name) is getattr(pearl_qdrant, name)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'EntityLinkr'"):
        _ = pearl_qdrant.EntityLinkr


RUN_HELP = """
import sys
from pearl_qdrant.cli import main

sys.argv = ["pearl-qdrant", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
"""What the console script does."""


def run_python(code: str) -> str:
    """Standard error of a new process that runs `code` in the repository."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("code", ["import pearl_qdrant\n", RUN_HELP], ids=["import", "help"])
def test_looking_at_it_loads_nothing_heavy(code: str) -> None:
    """`import pearl_qdrant` and `pearl-qdrant --help` load no model library and no Qdrant."""
    loaded = json.loads(run_python(f"{code}import json, sys\njson.dump(list(sys.modules), sys.stderr)"))

    assert {name.split(".")[0] for name in loaded} & set(HEAVY) == set()


COUNT_STEPS = """
import sys
n = 0
def count(*_):
    global n
    n += 1
sys.setprofile(count)
"""


def test_help_is_there_at_once() -> None:
    """`pearl-qdrant --help` does little before it answers; counted in steps, not in seconds of a busy machine."""
    steps = int(run_python(f"{COUNT_STEPS}{RUN_HELP}sys.setprofile(None)\nprint(n, file=sys.stderr)"))

    assert 10_000 < steps <= HELP_STEPS


def tracked_files() -> list[Path]:
    """All files of the repository that git has or would take, or skip where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


MACHINE_PATH = re.compile(rb"(?<![\w.~/-])/(work|root|home|Users|tmp|opt)/\w|\.\./shared\b")


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """No path of a developer's machine stands in a text file of the repository."""
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content[:8192] or path == Path(__file__):
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0].decode()}" for match in MACHINE_PATH.finditer(content)]

    assert found == []
