"""Paths as arguments of the training stages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pearl_qdrant.errors import OptionError

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]
"""One path or several."""


def as_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    many = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [Path(path) for path in many]


def refuse_overwriting(out: StrPath, *inputs: StrPath | None) -> None:
    """Stop where a stage would write over what it reads.

    Raises:
        OptionError: If `out` is one of the inputs that exist.
    """
    for path in inputs:
        if path is not None and Path(path).exists() and Path(path).resolve() == Path(out).resolve():
            raise OptionError("out", f"{out} is an input of this run. Write to another place.")
