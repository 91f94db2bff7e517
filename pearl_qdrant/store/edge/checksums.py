"""Checksums of an embedded collection's files: Edge trusts its files, so damage must be found before it opens them.

One wrong byte in a length makes Edge allocate 6 GB, loop for hours, or end the process. So when a collection is closed,
size and checksum of every file are written beside its manifest. They are removed before the first change. On opening
there are three cases:

- All files match: the collection is opened.
- A file does not match: the collection is refused.
- There are no checksums, since the collection was not closed (a crash, a copy of an open collection): it is first
  opened on trial, in a child process with limits on memory and time.

They also say whether Edge's next opening and closing leave the files as they are, byte for byte: then they stay until
the first change. Measured with 0.9: it leaves them once it has opened the shard after its last change. The first time
it repeats its log; and with two dense vectors it writes its JSON in another order each time.

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
from typing import NamedTuple

import msgspec

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.atomic import read_at_most, sync_folder, write_atomically
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.trial_open import STARTED
from pearl_qdrant.store.resources import resource_error

CHECKSUMS_FILE = "files.json"

WHOLE_BYTES = 256 * 1024
"""Files up to this size are summed completely; of larger ones `EDGE_BYTES` at each end."""

EDGE_BYTES = 64 * 1024

DATA_BYTES = 512 * 1024 * 1024
DATA_SHARE = 4
"""Anonymous memory that opening may take: `DATA_BYTES` plus `DATA_SHARE` times the bytes of all files. Far more than a
sound collection takes: 196 MB were measured for a growing segment of 100,000 points, 10 for 30,000 in a built one."""

FILE_BYTES = 64 * 1024 * 1024
"""A file may become this much larger than the largest existing one: Edge makes files of 32 MiB."""

CPU_S = 20
CPU_BYTES = 16 * 1024 * 1024
"""Processor time that opening may take: `CPU_S` seconds plus one for each `CPU_BYTES` of all files. Measured: 6.5 s for
those 100,000 points, most of which were only in the write-ahead log."""

WAIT_SHARE = 30
"""The process is waited for so many times that long: without memory it may neither work nor end."""

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
    is_settled: bool = False


class Verified(NamedTuple):
    """What the checksums say of a shard that is not damaged.

    Attributes:
        sums: The checksums; None if there are none, since the collection was not closed.
        is_unknown: Whether it must be opened on trial first: it was not closed, or has other files too.
        is_settled: Whether Edge can open and close it without a change of its files.
    """

    sums: Sums | None
    is_unknown: bool
    is_settled: bool


def write_checksums(shard: Path, *, is_settled: bool = False) -> bool:
    """Write the checksums of a shard that was just closed; returns False if they cannot be written.

    Then the next opening is only slower.

    Args:
        shard: Its folder.
        is_settled: Whether Edge can open and close it without a change of its files.
    """
    with suppress(OSError, ValueError):  # a full disk; a foreign file whose name is not valid text
        content = _ChecksumsFile(sums_of(shard), is_settled=is_settled)
        write_atomically(shard.with_name(CHECKSUMS_FILE), msgspec.json.encode(content).decode(), durable=False)
        return True
    return False


def read_checksums(folder: Path) -> Sums | None:
    """Read the checksums of the shard in a folder; None if there are none, or they cannot be read."""
    read = _read(folder / CHECKSUMS_FILE)
    return None if read is None else read.files


def verify_and_remove_checksums(
    shard: Path, collection: str, *, on_verified: Callable[[Verified], bool] = lambda found: False
) -> bool:
    """Check that a shard can be opened, and remove its checksums: from now on its files change.

    Args:
        shard: The shard, locked and closed.
        collection: Its name, for errors.
        on_verified: Called before the checksums are removed; returns whether they stay until `remove_checksums`.

    Returns:
        Whether it was opened on trial: then its files are no longer in the page cache.

    Raises:
        StoreError: If its files are damaged, or the checksums cannot be removed.
    """
    try:
        found = _verify(shard, collection)
        is_kept = on_verified(found)
        if found.is_unknown:
            open_on_trial(shard, collection)
        if found.sums is not None and not is_kept:
            remove_checksums(shard.parent)
    except OSError as error:
        raise edge_shard.os_error(error, collection, "opening it") from error
    return found.is_unknown


def _verify(shard: Path, collection: str) -> Verified:
    """Compare the files with their checksums; raises as `verify_and_remove_checksums`, and OSError."""
    path = shard.with_name(CHECKSUMS_FILE)
    recorded = _read(path)
    if recorded is None:
        return Verified(None, is_unknown=True, is_settled=False)
    sums = sums_of(shard)
    changed = sorted(name for name, sum_ in recorded.files.items() if sums.get(name) != sum_)
    if changed:
        why = f"{changed[0]} is not as it was when the collection was closed"
        more = f", nor are {len(changed) - 1} others" if len(changed) > 1 else ""
        raise edge_shard.damaged_error(collection, why + more, hint=f" To open it anyway, remove {path}.")
    is_unknown = len(sums) > len(recorded.files)
    return Verified(recorded.files, is_unknown, recorded.is_settled and not is_unknown)


def remove_checksums(folder: Path) -> None:
    """Remove the checksums of the shard in a folder: from now on its files change. Raises OSError."""
    (folder / CHECKSUMS_FILE).unlink(missing_ok=True)
    sync_folder(folder)


def open_on_trial(shard: Path, collection: str) -> None:
    """Open and close a shard in a child process, within limits.

    Raises:
        StoreError: If it cannot be opened there.
    """
    command, environment, folder = edge_process.python_child(_MODULE)
    limits, cannot = _limits(shard), f"Collection '{collection}' cannot be opened"
    try:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module
            [*command, str(shard), *map(str, limits)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env=environment,
            check=False,
            timeout=WAIT_SHARE * limits[2],
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(
            f"{cannot}: the process that opened it first has not ended for {error.timeout:.0f} s, waiting for memory "
            f"or for the disk. Its files are as they were: run the same command again when the machine has less to do."
        ) from error
    except OSError as error:
        if (lack := resource_error(error, cannot)) is not None:
            raise lack from error
        ended = subprocess.CompletedProcess(command, 1, str(error).encode(), b"")
    output, log = (text.decode("utf-8", "replace") for text in (ended.stdout, ended.stderr))
    if not output.startswith(STARTED):  # Python is embedded in another program: `sys.executable` is not an interpreter
        _log.warning(
            "Collection '%s' was not closed properly, and no process can be started to test its files first", collection
        )
        return
    if ended.returncode == 0:
        return
    message = output.removeprefix(STARTED).strip()
    if message:
        raise edge_shard.translate_error(message, collection, "opening it")
    why = edge_process.why_ended(ended.returncode)
    if ended.returncode == -getattr(signal, "SIGBUS", 0):  # a mapped file that the disk has no space for
        edge_shard.check_space(shard, collection, doing="opening it")
    if ended.returncode == -getattr(signal, "SIGXCPU", 0):
        why += f" after {limits[2]} s of processor time"
    if ended.returncode == -getattr(signal, "SIGKILL", 0):  # Linux does this when memory runs out
        why += ": memory ran out"
    last = log.strip()[-_SHOWN_CHARS:]
    message = f"the process that opened it first {why}" + (f"; its last output: {last}" if last else "")
    raise resource_error(message, cannot) or edge_shard.damaged_error(collection, message)


def _limits(shard: Path) -> tuple[int, int, int]:
    """Return the limits for opening a shard: bytes of memory, bytes of a file, seconds of processor time."""
    files = [status for _, status in list_files(shard)]
    total, largest = sum(map(_data_bytes, files)), max((status.st_size for status in files), default=0)
    return DATA_BYTES + DATA_SHARE * total, FILE_BYTES + largest, CPU_S + total // CPU_BYTES


def _data_bytes(status: os.stat_result) -> int:
    """The bytes of a file without its holes: Edge makes files of 32 MiB that are mostly holes."""
    blocks: int | None = getattr(status, "st_blocks", None)  # Windows does not say
    return status.st_size if blocks is None else min(status.st_size, 512 * blocks)


def list_files(shard: Path, *, follow_links: bool = False) -> list[tuple[str, os.stat_result]]:
    """List the files of a shard by their path in it, with their status, or that of what symbolic links lead to."""
    found, folders = [], [""]
    while folders:
        folder = folders.pop()
        try:
            entries = os.scandir(f"{shard}/{folder}")
        except (FileNotFoundError, NotADirectoryError):  # its files are missing
            continue
        with entries:
            for entry in entries:
                name = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    with suppress(FileNotFoundError):  # Edge has just renamed a temporary one
                        found.append((name, entry.stat(follow_symlinks=follow_links)))
    return found


def sums_of(shard: Path, *, follow_links: bool = False) -> Sums:
    """Compute size and checksum of each file of a shard; 0 for anything but a regular file, which Edge never makes."""
    sums = {}
    for name, status in list_files(shard, follow_links=follow_links):
        if stat.S_ISREG(status.st_mode):
            sums[name] = status.st_size, _sum(f"{shard}/{name}", status.st_size)
        else:
            sums[name] = 0, 0
    return sums


def _sum(path: str, size: int) -> int:
    """Compute the checksum of a file: of a large one both ends, of an id tracker all of it, since it is all offsets."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a `Path` for each of 90 files takes a millisecond
        if size <= WHOLE_BYTES:
            return zlib.crc32(file.read())
        if "id_tracker" in path.rpartition("/")[2]:
            checksum = 0
            while block := file.read(WHOLE_BYTES):
                checksum = zlib.crc32(block, checksum)
            return checksum
        checksum = zlib.crc32(file.read(EDGE_BYTES))
        file.seek(-EDGE_BYTES, os.SEEK_END)
        return zlib.crc32(file.read(EDGE_BYTES), checksum)


def _read(path: Path) -> _ChecksumsFile | None:
    """Read the recorded checksums; None without valid ones. Raises StoreError for a lack of files or memory."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            read = msgspec.json.decode(read_at_most(file, _MAX_CHECKSUMS_BYTES), type=_ChecksumsFile)
    except OSError as error:
        if (lack := resource_error(error, f"{path} cannot be read")) is not None:
            raise lack from error
        return None
    except (ValueError, RecursionError):
        return None
    return read if read.version == _ChecksumsFile({}).version else None
