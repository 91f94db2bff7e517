"""The project from outside: public names, cost of an import, version, no paths of a developer's machine, and what
contrib/ has for other places.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from source_tree import tracked_files

import pearl_qdrant
from pearl_qdrant.cli import cli

ROOT = Path(__file__).resolve().parents[2]

HEAVY = ("torch", "transformers", "qdrant_client", "qdrant_edge", "fastembed", "onnxruntime", "tokenizers", "numpy")
"""Libraries that neither `import pearl_qdrant` nor `--help` may load."""

HANG_S = 600

PUBLIC = """
Annotation Candidate CharacterWidths CollectionNotFoundError CorpusOptions CorpusReport DeviceError Entity
EntityLinker EntityNotFoundError EvaluationOptions FitRequest FitResult HeadOptions InputError JudgeRequest
JudgeResult Link LinkOptions LoadEvents LoadResult LoveConfig MiningConfig ModelError ModelMismatchError NgramOptions
NgramReport NilReason PearlQdrantError ReadOptions RefreshEvents RefreshRequest RefreshResult
ScanResult SettingsError StoreError StoreLockedError StoreUnavailableError TableColumns TrainingEvents
UlrRequest UlrResult UnknownTypeError WrittenFile __version__ average_checkpoint evaluate_model export_checkpoint
find_ngrams find_synonyms fit_model list_tasks load_base make_corpus make_entity mine_negatives paraphrase_corpus
pretrain_character_encoder read_entities rebuild_for_torch refresh_model report_as_text scan_base train_head
train_judge train_ulr
"""

HELP_STEPS = 300_000
"""Limit of calls and returns of `--help`, first import included. It now needs half of them, in 0.1 s."""


def test_the_list_of_public_names_is_fixed() -> None:
    """Adding or removing a public name is a decision; the changelog begins with the version."""
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert pearl_qdrant.__all__ == PUBLIC.split()
    assert [name for name in pearl_qdrant.__all__ if not hasattr(pearl_qdrant, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'EntityLinkr'"):
        _ = pearl_qdrant.EntityLinkr
    assert heading
    assert heading[1] == pearl_qdrant.__version__


RUN_HELP = """
import sys
from pearl_qdrant.cli import main

sys.argv = ["pearl-qdrant", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
"""The program of the console script."""


def run_python(code: str) -> str:
    """Standard error of a new process that runs `code` in the repository."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("code", ["import pearl_qdrant\n", RUN_HELP], ids=["import", "help"])
def test_import_and_help_load_nothing_heavy(code: str) -> None:
    """`import pearl_qdrant` and `pearl-qdrant --help` load no library for models or Qdrant."""
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


def test_help_is_fast() -> None:
    """`pearl-qdrant --help` takes few steps; seconds would depend on the machine."""
    steps = int(run_python(f"{COUNT_STEPS}{RUN_HELP}sys.setprofile(None)\nprint(n, file=sys.stderr)"))

    assert 10_000 < steps <= HELP_STEPS


MACHINE_PATH = re.compile(rb"(?<![\w.~/-])/(work|root|home|Users|tmp|opt)/\w|\.\./shared\b")


def test_no_file_names_a_path_of_a_machine() -> None:
    """No text file of the repository contains a path of a developer's machine."""
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content[:8192] or path == Path(__file__):
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0].decode()}" for match in MACHINE_PATH.finditer(content)]

    assert found == []


MOST_BYTES = 1 << 20  # of a file beside the shipped checkpoint


def test_no_large_file_is_tracked_but_the_checkpoint() -> None:
    """A clone has the model, and nothing that a command fetched or made."""
    checkpoint = ROOT / "pearl_qdrant" / "encoder" / "models"
    others = (path for path in tracked_files() if checkpoint not in path.parents)
    found = [
        str(path.relative_to(ROOT)) for path in others if path.suffix == ".whl" or path.stat().st_size > MOST_BYTES
    ]

    assert found == []


CONTRIB = ROOT / "contrib"
MODELS = sorted((ROOT / "pearl_qdrant" / "encoder" / "models").iterdir())
MOST_CHARACTERS = 100  # of a description, in the MCP registry


def test_the_entry_of_the_mcp_registry_starts_the_server() -> None:
    """It has this version, a description that the registry takes, and arguments of `pearl-qdrant mcp`."""
    entry = json.loads((CONTRIB / "server.json").read_text("utf-8"))
    (package,) = entry["packages"]
    arguments: list[dict[str, Any]] = package["packageArguments"]
    known = {name for one in cli.commands["mcp"].params if isinstance(one, click.Option) for name in one.opts}

    assert entry["version"] == package["version"] == pearl_qdrant.__version__
    assert len(entry["description"]) <= MOST_CHARACTERS
    assert arguments[0] == {"type": "positional", "value": "mcp"}
    assert {one["name"] for one in arguments[1:]} <= known


def test_the_files_to_upload_are_those_of_the_model() -> None:
    """No file of the models is forgotten, and none is named that they lack."""
    named = re.findall(r"^\| (`.*?`) \|", (CONTRIB / "hugging-face.md").read_text("utf-8"), re.MULTILINE)
    files = {name for cell in named for name in re.findall(r"`(.*?)`", cell)}

    assert files == {
        path.relative_to(model).as_posix() for model in MODELS for path in model.rglob("*") if path.is_file()
    }
