"""What evaluation needs to be installed, checked before any of it is imported."""

from __future__ import annotations

import importlib.util

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.installing import install_command

_LIBRARIES = ("sklearn", "torch")


def check_installed(*more: str) -> None:
    """Refuse to begin without the libraries.

    Args:
        more: Names of further modules.

    Raises:
        SettingsError: If one is not installed; says how it is.
    """
    if absent := [library for library in (*_LIBRARIES, *more) if importlib.util.find_spec(library) is None]:
        raise SettingsError(f"evaluate needs {', '.join(absent)}: {install_command('train')}")
