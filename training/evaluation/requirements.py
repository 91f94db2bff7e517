"""Checks that the libraries of the evaluation are installed, before any of them is imported."""

from __future__ import annotations

import importlib.util

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.installing import install_command

_LIBRARIES = ("sklearn", "torch")


def check_installed(*more: str) -> None:
    """Check the libraries.

    Args:
        more: Names of further modules.

    Raises:
        SettingsError: If one is not installed; the message has the command that installs it.
    """
    if absent := [library for library in (*_LIBRARIES, *more) if importlib.util.find_spec(library) is None]:
        raise SettingsError(f"evaluate needs {', '.join(absent)}: {install_command('train')}")
