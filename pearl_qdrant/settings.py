"""Defaults, each written once, the settings that the environment can change, and how many processes work at once.

An explicit argument or command-line option comes first, then the environment, then the default here. Only entry points
(the command line, `EntityLinker.open`, `pearl_qdrant.load_base`) read the environment, and only for missing arguments.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pearl_qdrant.errors import SettingsError

DEFAULT_MODEL = "pearl-mini"
DEFAULT_LIMIT = 10
DEFAULT_THRESHOLD = 0.5
DEFAULT_PASSAGE_THRESHOLD = 0.5
DEFAULT_PRECISION = 0.95
DEFAULT_NIL_SHARE = 0.2
DEFAULT_DEVICE = "auto"
DEFAULT_MAX_ERRORS = 100
DEFAULT_CHARACTER_DIM = 64
DEFAULT_CHARACTER_SHARE = 0.1
DEFAULT_QUANTIZATION: Literal["turbo4"] = "turbo4"

MAX_DEFAULT_WORKERS = 16
"""More processes are started only on request: each takes about 100 MB, and one process reads the answers of all."""

MAX_WORKERS_A_CORE = 4
"""Processes for each core, at most, whatever is requested: more only wait for each other."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time, and of the period

MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line of text. The longest real lines have the aliases of one entity, about 100 KB."""

MAX_RATIO = 500
"""Decompressed bytes for each stored byte; names compress 3 to 30 times, a gzip bomb 1,000 times, others more."""

RATIO_GRACE = 1 << 26
"""The ratio counts only beyond this many decompressed bytes: a small file of one repeated row is harmless."""

MAX_PASSAGE_BYTES = 1 << 23
"""Maximum size of a file that is one text: a shelf of books. It is annotated in blocks, and only the text is kept."""

REQUEST_TIMEOUT_S = 60.0
"""The default of qdrant-client, 5 s, is too short for a bulk load with wait=True."""

DEFAULT_WAIT_S = 600.0
"""A server that is upgraded or recovers a large collection takes minutes; a load waits that long."""

OLDEST_SERVER = "1.16"
"""The first release of the Qdrant server that stores metadata of collections, where manifests are."""

TESTED_SERVER = "1.19.0"
"""The release of the Qdrant server that the tests run with, the same as in docker-compose.yml."""


_URL = re.compile(r"https?://", re.IGNORECASE)
_LIKE_A_URL = re.compile(r"(https?:|[a-z][a-z0-9+.-]+:/)", re.IGNORECASE)  # a single letter is a drive: C:/
_LIKE_A_SERVER = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\]):\d{1,5}(/.*)?", re.IGNORECASE)


def default_store(environment: Mapping[str, str] = os.environ) -> Path:
    """The default folder of the embedded store, in the platform's place for user data. Raises SettingsError if the user
    has no home folder.
    """
    try:
        if sys.platform == "win32":
            base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Application Support"
        else:
            base = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError as error:
        raise SettingsError(
            f"There is no default folder for data ({error}). Name a store, or set PEARL_QDRANT_STORE.", option="store"
        ) from error
    return base / "pearl-qdrant"


def is_url(location: str) -> bool:
    """Whether the location of a store is a URL."""
    return _URL.match(location) is not None


def check_store_location(location: str) -> None:
    """Check the location of a store: a URL of a server, several with commas between, or a folder. Raises SettingsError
    if it is empty, not valid text, another kind of URL, or a server without http://.
    """
    example = "a Qdrant server as in http://localhost:6333"
    if not location.strip():
        raise SettingsError(f"The store's location is empty. Name a folder, or {example}.")
    if "\0" in location or location.encode("utf-8", "ignore").decode() != location:
        raise SettingsError(
            f"The store's location {location!a} is not valid text. Name a folder in UTF-8, or {example}."
        )
    if is_url(location):
        for other in location.split(",")[1:]:
            if other.strip() and not is_url(other.strip()):
                raise SettingsError(
                    f"The store's location '{location}' has an address that is no URL: '{other.strip()}'. Give each "
                    f"node its http:// or https://, as in http://a:6333,http://b:6333."
                )
        return
    folder = f"for a folder of that name, write ./{location}"
    if _LIKE_A_URL.match(location):
        raise SettingsError(
            f"The store's location '{location}' is not a supported URL: name {example}, or https://; {folder}"
        )
    if _LIKE_A_SERVER.fullmatch(location) and not os.path.lexists(location):
        raise SettingsError(
            f"The store's location '{location}' looks like a server: write http://{location} or https://{location}; "
            f"{folder}"
        )


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How to reach a Qdrant server; ignored for an embedded store.

    Attributes:
        api_key: Key of the server (QDRANT_API_KEY, or the line in the file QDRANT_API_KEY_FILE).
        allow_plain_http: Whether to send the key over plain HTTP to another host (PEARL_QDRANT_ALLOW_PLAIN_HTTP).
        ca_file: Certificates (PEM) of an authority to trust in addition to the system's (PEARL_QDRANT_CA).
        compress: Whether the server compresses answers; useful over a slow network (PEARL_QDRANT_COMPRESS).
        api_key_file: The file that the key is from, which is read again when the server refuses the key.
    """

    api_key: str | None = None
    allow_plain_http: bool = False
    ca_file: str | None = None
    compress: bool = False
    api_key_file: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServerAccess:
        """Read the environment; empty variables count as missing. Raises SettingsError if the file with the key cannot
        be read, or is empty.
        """
        key, file = environment.get("QDRANT_API_KEY") or None, environment.get("QDRANT_API_KEY_FILE") or None
        if key is not None:
            file = None
        return cls(
            api_key=key if file is None else read_key(file),
            api_key_file=file,
            allow_plain_http=_is_on(environment.get("PEARL_QDRANT_ALLOW_PLAIN_HTTP")),
            ca_file=environment.get("PEARL_QDRANT_CA") or None,
            compress=_is_on(environment.get("PEARL_QDRANT_COMPRESS")),
        )


def store_location(environment: Mapping[str, str] = os.environ) -> str:
    """The default store: PEARL_QDRANT_STORE, else QDRANT_URL, else a folder in the user's data folder."""
    return environment.get("PEARL_QDRANT_STORE") or environment.get("QDRANT_URL") or str(default_store(environment))


def read_key(path: str) -> str:
    """Read the file QDRANT_API_KEY_FILE. Raises SettingsError if it cannot be read, or is empty."""
    try:
        key = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The file {path} of QDRANT_API_KEY_FILE cannot be read: {error}") from error
    if not key or len(key.splitlines()) > 1:
        raise SettingsError(f"The file {path} of QDRANT_API_KEY_FILE must have one line: the key of the Qdrant server.")
    return key


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that this process may use; a container may have fewer than it sees."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, another kind of it, or "max"
        allowed, period = map(int, quota.read_text("ascii").split())
        cores = min(cores, math.ceil(allowed / period))
    return max(1, cores)


def count_workers(wanted: int | None = None, quota: Path = _QUOTA) -> int:
    """How many processes to use: one a core, at most `MAX_DEFAULT_WORKERS`; what is wanted has a limit a core."""
    cores = usable_cores(quota)
    return min(cores, MAX_DEFAULT_WORKERS) if wanted is None else min(wanted, cores * MAX_WORKERS_A_CORE)
