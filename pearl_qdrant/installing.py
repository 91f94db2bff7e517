"""The command that installs a missing extra."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_NAME_LINE = 'name = "pearl-qdrant"'


def install_command(extra: str, *, root: Path | None = None) -> str:
    """Return the command that installs an extra: from the clone that holds this package, or else by name.

    By name, pip finds the installed package and adds the extra's requirements; the package need not be on an index.

    Args:
        extra: Name of the extra, as in "torch".
        root: The folder that holds the package; by default that of this file.
    """
    root = root or Path(__file__).resolve().parent.parent
    with suppress(OSError):  # an installed package may have the pyproject.toml of another project beside it
        if _NAME_LINE in (root / "pyproject.toml").read_text(encoding="utf-8", errors="replace").splitlines():
            return f"pip install '.[{extra}]' (in {root})"
    return f"pip install 'pearl-qdrant[{extra}]'"
