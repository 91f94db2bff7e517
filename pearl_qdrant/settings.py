"""Every default, written once, and the settings that the environment can change.

Order: an explicit argument or command-line option, then the environment, then the default here. Library code does
not read the environment behind the caller's back: the entry points (the command line, `EntityLinker.open`,
`ingest.load_base`) do so for arguments left out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pearl_qdrant.errors import SettingsError

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

MAX_LINE_BYTES = 1 << 20
"""Of a line of any text that is read. The longest honest ones hold the aliases of one entity, some 100 KB."""

MAX_PASSAGE_BYTES = 1 << 20
"""Of a file that is annotated whole. It has some 200,000 spans, each of them a string that is linked."""

REQUEST_TIMEOUT_S = 60.0
"""qdrant-client's own default of 5 s is too short for a bulk load with wait=True."""

DEFAULT_WAIT_S = 600.0
"""A server that is upgraded, or recovers a large collection, takes minutes; a load should live to see it."""

TESTED_SERVER = "1.19.0"
"""The release of the Qdrant server that all was tried with; that of docker-compose.yml."""


_URL = re.compile(r"https?://", re.IGNORECASE)
_LIKE_A_URL = re.compile(r"(https?:|[a-z][a-z0-9+.-]+:/)", re.IGNORECASE)  # one letter is a drive: C:/
_LIKE_A_SERVER = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\]):\d{1,5}(/.*)?", re.IGNORECASE)


def default_store(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the embedded store: the platform's place for a user's data.

    Raises:
        SettingsError: If the user has no home.
    """
    try:
        return _default_store(environment)
    except RuntimeError as error:
        raise SettingsError(
            f"There is no folder for your data ({error}). Name one with --store or PEARL_QDRANT_STORE."
        ) from error


def _default_store(environment: Mapping[str, str]) -> Path:
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "pearl-qdrant"


def is_url(location: str) -> bool:
    """Whether a store's location names a server."""
    return _URL.match(location) is not None


def check_store_location(location: str) -> None:
    """Refuse what names neither a server nor a folder that anybody wants.

    Raises:
        SettingsError: If it is empty or no text, a URL of another kind, or a server without http://.
    """
    example = "a Qdrant server as in http://localhost:6333"
    if not location.strip():
        raise SettingsError(f"The store's location is empty. Name a folder, or {example}.")
    if "\0" in location or not _is_text(location):
        raise SettingsError(f"The store's location {location!a} is no text. Name a folder in UTF-8, or {example}.")
    if is_url(location):
        return
    folder = f"a folder of that name is written ./{location}"
    if _LIKE_A_URL.match(location):
        raise SettingsError(
            f"The store's location '{location}' is no URL that is known: name {example}, or https://; {folder}"
        )
    if _LIKE_A_SERVER.fullmatch(location) and not os.path.lexists(location):
        raise SettingsError(
            f"The store's location '{location}' looks like a server: write http://{location} or https://{location}; "
            f"{folder}"
        )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How a Qdrant server is reached; of no meaning for an embedded store.

    Attributes:
        api_key: QDRANT_API_KEY; only ever sent to a URL.
        allow_plain_http: PEARL_QDRANT_ALLOW_PLAIN_HTTP: whether the key may go over plain HTTP to another host.
        ca_file: PEARL_QDRANT_CA: certificates (PEM) of an authority that is trusted beside the system's.
        compress: PEARL_QDRANT_COMPRESS: whether answers are compressed, for a far host.
    """

    api_key: str | None = None
    allow_plain_http: bool = False
    ca_file: str | None = None
    compress: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServerAccess:
        """Read the settings; empty variables count as absent."""
        return cls(
            api_key=environment.get("QDRANT_API_KEY") or None,
            allow_plain_http=_is_on(environment.get("PEARL_QDRANT_ALLOW_PLAIN_HTTP")),
            ca_file=environment.get("PEARL_QDRANT_CA") or None,
            compress=_is_on(environment.get("PEARL_QDRANT_COMPRESS")),
        )


def store_location(environment: Mapping[str, str] = os.environ) -> str:
    """The store that the environment names: PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder."""
    return environment.get("PEARL_QDRANT_STORE") or environment.get("QDRANT_URL") or str(default_store(environment))


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")
