"""The JSON files of a model, which strangers wrote: whatever is in them, what is wrong is said in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pearl_qdrant.errors import CheckpointError

Settings = TypeVar("Settings", bound=BaseModel)


def load_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        CheckpointError: If it is missing, no valid JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(str(path), f"missing or unreadable ({error.strerror})") from error
    except ValueError as error:
        raise CheckpointError(str(path), f"no valid JSON ({error}). Fetch it again") from error
    except RecursionError as error:
        raise CheckpointError(str(path), "no JSON of a model: it is nested too deeply. Fetch it again") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CheckpointError: As `load_json`, and if it holds no JSON object.
    """
    loaded = load_json(path)
    if not isinstance(loaded, dict):
        raise CheckpointError(str(path), "holds no JSON object")
    return loaded


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """The settings in a JSON object, checked; those by default where there is no such file.

    Raises:
        CheckpointError: As `read_json`, and if a field is of the wrong type.
    """
    return validated(path, read_json(path) if path.is_file() else {}, kind)


def validated(path: Path, loaded: object, kind: type[Settings]) -> Settings:
    """What was read from a file, as settings.

    Raises:
        CheckpointError: With the first field that is wrong.
    """
    try:
        return kind.model_validate(loaded)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise CheckpointError(str(path), f"field '{field}' is wrong: {first['msg']}") from error
