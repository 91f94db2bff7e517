"""Content for standard input, in tests of what reads it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, BinaryIO, TypeVar
from unittest import mock

T = TypeVar("T")


def given_input(content: bytes | BinaryIO, make: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What is made while standard input has this content; readers copy it when they are opened."""
    stream = io.BytesIO(content) if isinstance(content, bytes) else content
    with mock.patch.object(sys, "stdin", SimpleNamespace(buffer=stream)):
        return make(*args, **kwargs)
