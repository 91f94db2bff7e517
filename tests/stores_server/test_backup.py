"""Backup and restore of a collection on a server, by the commands of docs/operations.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_runner import Outcome, Run
from qdrant_double import QdrantDouble

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the commands of the docs use curl")


def commands(title: str) -> str:
    """Return the block of the docs that begins with this comment."""
    (block,) = re.findall(rf"```\n# {title}.*?```", OPERATIONS.read_text("utf-8"), re.DOTALL)
    return block.strip("`\n")


def run_commands(block: str, url: str, folder: Path) -> None:
    """Run a block in a shell, in a folder."""
    environment = os.environ | {"QDRANT_URL": url, "QDRANT_API_KEY": "key"}
    subprocess.run(["/bin/sh", "-euc", block], env=environment, cwd=folder, check=True, timeout=600)


def answer(outcome: Outcome) -> list[object]:
    """Return the linked entities with rounded probabilities."""
    (link,) = outcome.lines()
    candidates = link["candidates"]
    assert isinstance(candidates, list)
    return [(one["entity_id"], one["name"], round(one["probability"], 4)) for one in candidates]


def test_a_collection_survives_the_loss_of_its_server(
    double: QdrantDouble, run: Run, tmp_path: Path, model: Path
) -> None:
    """After backup and restore by the commands of the docs, names and manifest are the same; no snapshot is left."""
    base = tmp_path / "base.tsv"
    base.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(20)), encoding="utf-8")
    common = ("--collection", "umls", "--store", double.url)
    assert run("ingest", str(base), "--model", str(model), *common).status == 0
    before = run("link", "w7 times", "--json", "--threshold", "0", *common)
    run_commands(commands("backup"), double.url, tmp_path)
    left = dict(double.snapshots)
    double.reset()
    run_commands(commands("restore"), double.url, tmp_path)
    after = run("link", "w7 times", "--json", "--threshold", "0", *common)

    assert not left
    assert after.status == 0, after.err
    assert answer(after) == answer(before)
    assert run("collections", "verify", "umls", "--store", double.url).status == 0
