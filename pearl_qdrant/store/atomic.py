"""Files that are replaced whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file: a reader, or the crash of a process, sees the old one or the new one whole.

    Args:
        path: The file.
        text: Its new content.
        durable: Whether the same must hold if the machine crashes, and the new one be there when this returns.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a process that died, or a stranger's link to another file
    with temporary.open("x", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Return when what was made, renamed or removed in a folder is so after a crash too."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
