"""Reads JSON files of models, and reports any fault in them as a `CheckpointError` with the path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pearl_qdrant.errors import CheckpointError

Settings = TypeVar("Settings", bound=BaseModel)


def load_json(path: Path) -> Any:
    """The content of a JSON file. Raises CheckpointError if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(str(path), f"missing or unreadable ({error.strerror})") from error
    except ValueError as error:
        raise CheckpointError(str(path), f"not valid JSON ({error}). Fetch it again") from error
    except RecursionError as error:
        raise CheckpointError(str(path), "not the JSON of a model: it is nested too deeply. Fetch it again") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError if there is none."""
    loaded = load_json(path)
    if not isinstance(loaded, dict):
        raise CheckpointError(str(path), "is not a JSON object")
    return loaded


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """Checked settings from a JSON object; the defaults if the file does not exist. Raises CheckpointError."""
    return validated(path, read_json(path) if path.is_file() else {}, kind)


def validated(path: Path, loaded: object, kind: type[Settings]) -> Settings:
    """Checked settings from the content of a file. Raises CheckpointError with the first field that is wrong."""
    try:
        return kind.model_validate(loaded)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise CheckpointError(str(path), f"field '{field}' is wrong: {first['msg']}") from error
