"""Small files: replaced atomically, and read within a bound."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old content or the new one, also if this process or the machine crashes."""
    _replace(path, [text], errors="strict")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of any length, which may hold lone surrogates, as `write_atomically` does."""
    _replace(path, (f"{line}\n" for line in lines), errors="surrogatepass")


def _replace(path: Path, texts: Iterable[str], *, errors: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    # It may be left from a process that died, or be somebody's link to another file.
    temporary.unlink(missing_ok=True)
    with temporary.open("x", encoding="utf-8", errors=errors, newline="") as file:
        file.writelines(texts)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make sure that files created, renamed or removed in a folder stay so after a crash of the machine."""
    if os.name == "posix":
        sync(path)


def sync(path: Path) -> None:
    """Make sure that what a file or folder holds stays after a crash of the machine."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """The first bytes of an open file, without memory for `limit` where the file is shorter."""
    return file.read(min(limit, os.fstat(file.fileno()).st_size + 1))
