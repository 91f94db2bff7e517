"""How to install what is missing, as a command that works here."""

from __future__ import annotations

from pathlib import Path

_NAME_LINE = 'name = "pearl-qdrant"'


def install_command(extra: str, *, root: Path | None = None) -> str:
    """The command that installs an extra: from the clone that this package lies in, by name otherwise.

    By name pip finds the installed package and adds what the extra needs, whether or not an index has the package.

    Args:
        extra: As "torch".
        root: The folder that holds the package; by default where this file lies.
    """
    root = root or Path(__file__).resolve().parent.parent
    if _is_clone(root):
        return f"pip install '.[{extra}]' (in {root})"
    return f"pip install 'pearl-qdrant[{extra}]'"


def _is_clone(root: Path) -> bool:
    """Whether the folder has the pyproject.toml of this project; another's may lie beside installed packages."""
    try:
        lines = (root / "pyproject.toml").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return _NAME_LINE in lines
