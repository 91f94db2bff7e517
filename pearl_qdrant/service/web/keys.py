"""API keys: read from a file or the environment, compared in constant time, taken from headers only."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr

from pearl_qdrant.errors import SettingsError

KEYS_VARIABLE = "PEARL_QDRANT_SERVICE_KEYS"
"""The variable with the keys, separated by white space or commas."""

MIN_KEY_CHARACTERS = 16
"""A shorter key can be guessed."""

PUBLIC = ("/", "/page/", "/health/live", "/health/ready", "/openapi.json", "/docs")
"""Paths that need no key; one that ends in / stands for all paths below it."""


def read_keys(
    path: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[SecretStr, ...]:
    """The keys of the service: those of a file, one a line, with # for comments, and those of the environment.

    Raises:
        SettingsError: If the file cannot be read or has no key, or a key is too short or not plain ASCII.
    """
    found = environment.get(KEYS_VARIABLE, "").replace(",", " ").split()
    if path is not None:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"The file of API keys {path} cannot be read: {error}", option="api_keys") from error
        of_file = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not of_file:
            raise SettingsError(f"The file of API keys {path} has no key. Write one a line.", option="api_keys")
        found += of_file
    for number, key in enumerate(found, start=1):
        if len(key) < MIN_KEY_CHARACTERS or not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingsError(
                f"API key {number} has fewer than {MIN_KEY_CHARACTERS} characters, or others than printable ASCII. "
                f"Make one with: openssl rand -hex 32",
                option="api_keys",
            )
    return tuple(SecretStr(key) for key in dict.fromkeys(found))


NEEDS_NO_KEY = "pearl_qdrant.needs_no_key"
"""Key of a scope whose request passes without a key: one for a manifest of reconciliation."""


HAS_KEY = "pearl_qdrant.has_key"
"""Key of a scope: whether it has a valid key, or no key is needed for its path."""


class KeyCheck:
    """Checks the key of a request.

    Args:
        keys: Valid keys; empty: every request passes.
        public: Paths without a key, as `PUBLIC`.
    """

    def __init__(self, keys: Sequence[SecretStr], public: Sequence[str] = PUBLIC) -> None:
        self._keys = [key.get_secret_value().encode("ascii") for key in keys]
        self._exact = frozenset(path for path in public if path == "/" or not path.endswith("/"))
        self._below = tuple(path for path in public if path != "/" and path.endswith("/"))

    def allows(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request may pass.

        Args:
            path: Its path.
            headers: Its headers, names in small letters.
        """
        if not self._keys or path in self._exact or (self._below and path.startswith(self._below)):
            return True
        valid = [self._is_key(given) for given in _given_keys(headers)]
        return bool(valid) and all(valid)  # a wrong key beside a right one is a mistake that its client should see

    def _is_key(self, given: bytes) -> bool:
        return sum(hmac.compare_digest(given, key) for key in self._keys) > 0


def _given_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            yield key.strip() if scheme.lower() == b"bearer" else b""  # another scheme is no key, and does not pass
