"""The ledger file of an embedded collection: lines that are only ever appended, one step a call.

    NAME/learned.jsonl       in the folder of the collection, so that a copy of the folder has it
    .learned-NAME.jsonl      beside it, from the deletion of a collection that is made again to its creation

Only the process that has the collection open appends. A process that dies leaves a torn last line at most; each call
begins a new one, and the reader sees that the torn one is none of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pearl_qdrant.store.atomic import sync_folder

LEDGER_FILE = "learned.jsonl"

_FLAGS = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def read_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of the ledger in a folder without their ends; none if there is no ledger. Raises OSError."""
    with suppress(FileNotFoundError), (folder / LEDGER_FILE).open("rb") as file:
        yield from filter(None, (line.rstrip(b"\r\n") for line in file))


def size(folder: Path) -> int:
    """Bytes of the ledger in a collection's folder; 0 if there is none."""
    try:
        return (folder / LEDGER_FILE).stat().st_size
    except FileNotFoundError:
        return 0


def cut(folder: Path, n_bytes: int) -> None:
    """Leave the first bytes of a ledger alone; raises OSError."""
    if size(folder) > n_bytes:
        os.truncate(folder / LEDGER_FILE, n_bytes)


def append_lines(folder: Path, lines: Sequence[bytes]) -> None:
    """Append lines, on the disk on return; if it fails (OSError), what was written is cut off again."""
    path = folder / LEDGER_FILE
    is_new = not path.exists()
    with os.fdopen(os.open(path, _FLAGS, 0o666), "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        content = memoryview(b"\n" * bool(size) + b"".join(line + b"\n" for line in lines))
        try:
            while content:
                content = content[file.write(content) or 0 :]
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(size)
            raise
    if is_new:
        sync_folder(folder)


def keep_ledger(store: Path, name: str) -> None:
    """Move the ledger in a collection's folder beside it, before it is deleted; raises OSError."""
    with suppress(FileNotFoundError):
        (store / name / LEDGER_FILE).replace(_kept_path(store, name))
        sync_folder(store)


def adopt_ledger(store: Path, name: str, folder: Path) -> bool:
    """Move a kept ledger into the folder of a collection that was made again; returns whether there was one."""
    path = folder / LEDGER_FILE
    if not path.exists():
        with suppress(FileNotFoundError):
            _kept_path(store, name).replace(path)
            return True
    return False


def delete_kept_ledger(store: Path, name: str) -> None:
    """Delete a kept ledger, if there is one."""
    _kept_path(store, name).unlink(missing_ok=True)


def _kept_path(store: Path, name: str) -> Path:
    return store / f".learned-{name}.jsonl"
