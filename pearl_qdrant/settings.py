"""Every default, written once, and the settings that the environment can change.

Order: an explicit argument or command-line option, then the environment, then the default here. Library code does
not read the environment by itself: only `Settings.from_environment` does, called by the command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT_MODEL = "pearl-mini-en"
DEFAULT_LIMIT = 10
DEFAULT_THRESHOLD = 0.5
DEFAULT_PASSAGE_THRESHOLD = 0.5
DEFAULT_PRECISION = 0.95
DEFAULT_NIL_SHARE = 0.2
DEFAULT_DEVICE = "auto"
DEFAULT_MAX_ERRORS = 100
DEFAULT_CHARACTER_DIM = 64
DEFAULT_CHARACTER_SHARE = 0.1
DEFAULT_QUANTIZATION: Literal["int8"] = "int8"

REQUEST_TIMEOUT_S = 60.0
"""qdrant-client's own default of 5 s is too short for a bulk load with wait=True."""

DEFAULT_WAIT_S = 600.0
"""A server that is upgraded, or recovers a large collection, takes minutes; a load should live to see it."""

TESTED_SERVER = "1.19.0"
"""The release of the Qdrant server that all was tried with; that of docker-compose.yml."""


def default_store(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the embedded store: the platform's place for a user's data."""
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "pearl-qdrant"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment may set.

    Attributes:
        store: Folder or URL: PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        api_key: QDRANT_API_KEY; only ever sent to a URL.
        model: PEARL_QDRANT_MODEL.
        device: PEARL_QDRANT_DEVICE: auto, cpu, cuda or cuda:N.
    """

    store: str
    api_key: str | None = None
    model: str = DEFAULT_MODEL
    device: str = DEFAULT_DEVICE

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; empty variables count as absent."""
        store = environment.get("PEARL_QDRANT_STORE") or environment.get("QDRANT_URL")
        return cls(
            store=store or str(default_store(environment)),
            api_key=environment.get("QDRANT_API_KEY") or None,
            model=environment.get("PEARL_QDRANT_MODEL") or DEFAULT_MODEL,
            device=environment.get("PEARL_QDRANT_DEVICE") or DEFAULT_DEVICE,
        )
