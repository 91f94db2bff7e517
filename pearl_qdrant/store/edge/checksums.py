"""Checksums of an embedded collection's files: Edge trusts its files, so damage must be found before it opens them.

One wrong byte in a length makes Edge allocate 6 GB, loop for hours, or end the process. So when a collection is closed,
size and checksum of every file are written beside its manifest. On opening there are three cases:

- All files match: the collection is opened.
- A file does not match: the collection is refused.
- There are no checksums, since the collection was not closed (a crash, a copy of an open collection): it is first
  opened on trial, in a child process with limits on memory and time.

Of large files only both ends are summed, which hold lengths and offsets. The middle holds vectors, links and texts,
where a wrong byte can only cause a wrong answer. For 571,000 names this takes 40 ms, besides reading the files into
the page cache.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from pearl_qdrant.store.atomic import read_at_most, sync_folder, write_atomically
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.trial_open import STARTED

CHECKSUMS_FILE = "files.json"

WHOLE_BYTES = 256 * 1024
"""Files up to this size are summed completely; of larger ones `EDGE_BYTES` at each end."""

EDGE_BYTES = 64 * 1024

DATA_BYTES = 256 * 1024 * 1024
DATA_SHARE = 4
"""Anonymous memory that opening may take: `DATA_BYTES` plus `DATA_SHARE` times the bytes that Edge reads into memory.
Measured: 196 MB for a growing segment of 100,000 points, 54 for 20,000, 10 for 30,000 points in a built segment."""

FILE_BYTES = 64 * 1024 * 1024
"""A file may become this much larger than the largest existing one: Edge makes files of 32 MiB."""

CPU_S = 20
CPU_BYTES = 16 * 1024 * 1024
"""Processor time that opening may take: `CPU_S` seconds plus one for each `CPU_BYTES` that Edge reads into memory.
Measured: 6.5 s for those 100,000 points, most of which were only in the write-ahead log."""

_MODULE = "pearl_qdrant.store.edge.trial_open"
_MAX_CHECKSUMS_BYTES = 64 * 1024 * 1024
_SHOWN_CHARS = 300  # of the output of a process that died

_log = logging.getLogger(__name__)

Sums = dict[str, tuple[int, int]]
"""Size and checksum of each file, by its path in the shard."""


class _ChecksumsFile(msgspec.Struct):
    """The content of `CHECKSUMS_FILE`."""

    files: Sums
    version: int = 1


def write_checksums(shard: Path) -> bool:
    """Write the checksums of a shard that was just closed; returns False if they cannot be written.

    Then the next opening is only slower.
    """
    with suppress(OSError, ValueError):  # a full disk; a foreign file whose name is not valid text
        text = msgspec.json.encode(_ChecksumsFile(sums_of(shard))).decode()
        write_atomically(shard.with_name(CHECKSUMS_FILE), text, durable=False)
        return True
    return False


def read_checksums(folder: Path) -> Sums | None:
    """Read the checksums of the shard in a folder; None if there are none, or they cannot be read."""
    return _read(folder / CHECKSUMS_FILE)


def verify_and_remove_checksums(
    shard: Path, collection: str, *, on_verified: Callable[[bool], None] = lambda is_closed: None
) -> bool:
    """Check that a shard can be opened, and remove its checksums: from now on its files change.

    Args:
        shard: The shard, locked and closed.
        collection: Its name, for errors.
        on_verified: Called before the checksums are removed; takes whether there are some, since the
            shard was closed properly.

    Returns:
        Whether it was opened on trial: then its files are no longer in the page cache.

    Raises:
        StoreError: If its files are damaged, or the checksums cannot be removed.
    """
    path = shard.with_name(CHECKSUMS_FILE)
    try:
        recorded = _read(path)
        sums = sums_of(shard) if recorded is not None else {}
        changed = sorted(name for name, sum_ in (recorded or {}).items() if sums.get(name) != sum_)
        if changed:
            why = f"{changed[0]} is not as it was when the collection was closed"
            more = f", nor are {len(changed) - 1} others" if len(changed) > 1 else ""
            raise edge_shard.damaged_error(collection, why + more, hint=f" To open it anyway, remove {path}.")
        is_unknown = recorded is None or len(sums) > len(recorded)
        on_verified(recorded is not None)
        if is_unknown:
            open_on_trial(shard, collection)
        if recorded is not None:
            path.unlink()
            sync_folder(path.parent)
    except OSError as error:
        raise edge_shard.translate_error(str(error), collection, "opening it") from error
    return is_unknown


def open_on_trial(shard: Path, collection: str) -> None:
    """Open and close a shard in a child process, within limits.

    Raises:
        StoreError: If it cannot be opened there.
    """
    command, environment, folder = edge_process.python_child(_MODULE)
    limits = _limits(shard)
    try:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module
            [*command, str(shard), *map(str, limits)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env=environment,
            check=False,
        )
        output = ended.stdout.decode("utf-8", "replace")
    except OSError as error:
        output = str(error)
    if not output.startswith(STARTED):  # Python is embedded in another program: `sys.executable` is not an interpreter
        _log.warning(
            "Collection '%s' was not closed properly, and no process can be started to test its files first", collection
        )
        return
    if ended.returncode == 0:
        return
    message = output.removeprefix(STARTED).strip()
    if not message:
        why = edge_process.why_ended(ended.returncode)
        if ended.returncode == -getattr(signal, "SIGXCPU", 0):
            why += f" after {limits[2]} s of processor time"
        last_output = ended.stderr.decode("utf-8", "replace").strip()[-_SHOWN_CHARS:]
        message = f"the process that opened it first {why}" + (
            f"; its last output: {last_output}" if last_output else ""
        )
        raise edge_shard.damaged_error(collection, message)
    raise edge_shard.translate_error(message, collection, "opening it")


def _limits(shard: Path) -> tuple[int, int, int]:
    """Return the limits for opening a shard: bytes of memory, bytes of a file, seconds of processor time."""
    sizes = {Path(name): status.st_size for name, status in _files(shard)}
    growing = {path.parent for path in sizes if path.name == "mutable_id_tracker.mappings"}
    read = sum(size for path, size in sizes.items() if _is_read(path, growing))
    largest = max(sizes.values(), default=0)
    return DATA_BYTES + DATA_SHARE * read, FILE_BYTES + largest, CPU_S + read // CPU_BYTES


def _is_read(path: Path, growing: set[Path]) -> bool:
    """Whether Edge reads a file into memory on opening: ids, the log, and growing segments except their vectors."""
    if "id_tracker" in path.name or path.parts[0] == "wal":
        return True
    return not growing.isdisjoint(path.parents) and path.parts[2] not in (
        "vector_storage-dense",
        "vector_storage-description",
    )


def _files(shard: Path, *, follow_links: bool = False) -> list[tuple[str, os.stat_result]]:
    """List the files of a shard, with their status, or that of the files to which symbolic links lead."""
    found = []
    for folder, _, names in os.walk(shard):
        for name in names:
            path = Path(folder, name)
            found.append((str(path.relative_to(shard)), path.stat() if follow_links else path.lstat()))
    return found


def sums_of(shard: Path, *, follow_links: bool = False) -> Sums:
    """Compute size and checksum of each file of a shard; 0 for anything but a regular file, which Edge never makes."""
    sums = {}
    for name, status in _files(shard, follow_links=follow_links):
        if stat.S_ISREG(status.st_mode):
            sums[name] = status.st_size, _sum(shard / name, status.st_size)
        else:
            sums[name] = 0, 0
    return sums


def _sum(path: Path, size: int) -> int:
    """Compute the checksum of a file: of a large one both ends, of an id tracker all of it, since it is all offsets."""
    with path.open("rb", buffering=0) as file:
        if size <= WHOLE_BYTES:
            return zlib.crc32(file.read())
        if "id_tracker" in path.name:
            checksum = 0
            while block := file.read(WHOLE_BYTES):
                checksum = zlib.crc32(block, checksum)
            return checksum
        checksum = zlib.crc32(file.read(EDGE_BYTES))
        file.seek(-EDGE_BYTES, os.SEEK_END)
        return zlib.crc32(file.read(EDGE_BYTES), checksum)


def _read(path: Path) -> Sums | None:
    """Read the recorded checksums; None if there are none, or they cannot be read."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            read = msgspec.json.decode(read_at_most(file, _MAX_CHECKSUMS_BYTES), type=_ChecksumsFile)
    except (OSError, ValueError, RecursionError):
        return None
    return read.files if read.version == _ChecksumsFile({}).version else None
