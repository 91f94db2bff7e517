"""The error of a command that needs an extra which is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pearl_qdrant.errors import ModelError
from pearl_qdrant.installing import install_command


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a missing library of an extra into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{error.name} is not installed, and this command needs it. Install it with: {install_command(extra)}"
        ) from error
