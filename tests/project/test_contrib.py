"""What contrib/ has for other places is true of this release."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from pearl_qdrant import __version__
from pearl_qdrant.cli import cli

CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
MODELS = sorted((CONTRIB.parent / "pearl_qdrant" / "encoder" / "models").iterdir())
MOST_CHARACTERS = 100  # of a description, in the MCP registry


def test_the_entry_of_the_mcp_registry_starts_the_server() -> None:
    """It has this version, a description that the registry takes, and arguments of `pearl-qdrant mcp`."""
    entry = json.loads((CONTRIB / "server.json").read_text("utf-8"))
    (package,) = entry["packages"]
    arguments: list[dict[str, Any]] = package["packageArguments"]
    known = {name for one in cli.commands["mcp"].params if isinstance(one, click.Option) for name in one.opts}

    assert entry["version"] == package["version"] == __version__
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
