"""Give a shard's files a second place: large ones that never change as links, all others as copies.

What Qdrant Edge 0.9 does with its files (measured by comparing their content before and after):

- Opening and searching change no content. Files are mapped, and the search opens none afterwards.
- The content of a segment that was compacted never changes, but for small files: ids and versions of deleted points,
  and trackers of payloads. These change at a flush.
- A growing segment changes with each write.

So the large files of compacted segments are hard links, which share their pages in memory with every other process,
and the rest is copied: 3 MB for 75,704 names. A growing segment of 50,000 points takes about 100 MB. Where no hard link
can be made (another disk, a read-only mount, files of another user), symbolic links take their place, except for files
that Edge opens for writing, though it does not write: these are copied too.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge.checksums import list_files

_MAPPED = {
    "matrix.dat",
    "quantized.data",
    "links.bin",
    "links_compressed.bin",
    "inverted_index.dat",
    "indices_tracker.json",
    "id_tracker.mappings",
    "point_to_values.bin",
    "values_to_points.bin",
}
"""Files of a compacted segment that Edge opens for reading only."""

_PAGES = "page_"
"""How the files begin that hold payloads and sparse vectors. Edge opens them for writing; in a compacted segment it
writes nothing: a point that changes moves to a growing segment."""

_SEALED = "id_tracker.mappings"  # in the folder of a compacted segment; a growing one has `mutable_id_tracker.mappings`

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
"""Why a file system makes no hard link here."""

_BUFFER_BYTES = 1 << 17

_ZEROS = bytes(_BUFFER_BYTES)

LOG_FOLDER = "wal"

_LOG_HEADER = struct.Struct("<4sI24x")  # of an empty file of the log: magic, seed of its checksums, no entry

T = TypeVar("T")


def shard_files(shard: Path) -> list[str]:
    """List the regular files of a shard without its log and its temporary segments, by their path in it."""
    left_out = (f"{LOG_FOLDER}/", "temp_segments/")
    files = list_files(shard)
    return sorted(name for name, status in files if stat.S_ISREG(status.st_mode) and not name.startswith(left_out))


def place(source: Path, names: Iterable[str], target: Path, *, only_hard_links: bool = False) -> None:
    """Link or copy files of a shard.

    Args:
        source: Folder of the shard, whose files nobody changes meanwhile.
        names: Files, by their path in it.
        target: Where to; folders are made.
        only_hard_links: Whether a large file that cannot be a hard link is an error. Else it is a symbolic link or a
            copy, which is for readers that open it at once: a symbolic link ends with its file.

    Raises:
        FileNotFoundError: If a file is missing.
        StoreError: If a file can be neither linked nor copied.
        OSError: If a file cannot be read or written; with `only_hard_links` also if no hard link can be made.
    """
    files = {name: name.rpartition("/")[::2] for name in names}
    sealed = tuple(folder for folder, name in files.values() if name == _SEALED)
    for folder in {folder for folder, _ in files.values()}:
        (target / folder).mkdir(parents=True, exist_ok=True)
    for path, (folder, name) in files.items():
        is_page = name.startswith(_PAGES)
        if (is_page or name in _MAPPED) and any(folder == one or folder.startswith(f"{one}/") for one in sealed):
            _link(source / path, target / path, is_page=is_page, only_hard_links=only_hard_links)
        else:
            copy_file(f"{source}/{path}", f"{target}/{path}")


def _link(source: Path, target: Path, *, is_page: bool, only_hard_links: bool) -> None:
    try:
        target.hardlink_to(source)
        if not is_page or only_hard_links or _can_write(target):
            return
        target.unlink()
    except OSError as error:
        if error.errno not in _NO_LINK or only_hard_links:
            raise
    if is_page:
        copy_file(source, target)
        return
    try:
        target.symlink_to(source)
    except OSError as error:
        raise StoreError(
            f"Neither a hard link nor a symbolic link to {source} can be made in {target.parent} ({error}). Point "
            f"TMPDIR to a folder of a file system with symbolic links, or open the collection for writing."
        ) from error


def _can_write(file: Path) -> bool:
    """Whether Edge can open it for writing: a file with a hard link may be of another user."""
    try:
        file.open("r+b").close()
    except OSError:
        return False
    return True


def copy_file(source: str | Path, target: str | Path, n_bytes: int | None = None) -> None:
    """Copy a file, or its first `n_bytes`; holes stay holes."""
    # A `Path` for each of 90 files takes a millisecond.
    with open(source, "rb", buffering=0) as read, open(target, "xb", buffering=0) as written:  # noqa: PTH123
        size = os.fstat(read.fileno()).st_size
        size = size if n_bytes is None else min(size, n_bytes)
        written.truncate(size)
        start = _next_data(read.fileno(), 0, size)
        while start < size:
            end = min(_next_hole(read.fileno(), start, size), size)
            _copy_range(read, written, start, end)
            start = _next_data(read.fileno(), end, size)


def _next_data(file: int, start: int, size: int) -> int:
    """Where the next bytes are that are no hole; `size` if there are none."""
    if start >= size or not hasattr(os, "SEEK_DATA"):
        return start
    try:
        return os.lseek(file, start, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else start


def _next_hole(file: int, start: int, size: int) -> int:
    if not hasattr(os, "SEEK_HOLE"):
        return size
    try:
        return os.lseek(file, start, os.SEEK_HOLE)
    except OSError:
        return size


def _copy_range(read: FileIO, written: FileIO, start: int, end: int) -> None:
    """Copy some bytes into a file of holes; blocks of zeros stay holes, of which small collections have 24 MB."""
    buffer = bytearray(min(_BUFFER_BYTES, end - start))
    read.seek(start)
    while start < end and (n_read := read.readinto(buffer)):
        n_read = min(n_read, end - start)
        block = buffer if n_read == len(buffer) else buffer[:n_read]
        if block != _ZEROS[:n_read]:
            written.seek(start)
            view = memoryview(block)
            while view:
                view = view[written.write(view) :]
        start += n_read


def make_log(shard: Path) -> None:
    """Make an empty log whose next entry has a number after those of all segments.

    Edge takes an operation with a smaller number for one that is done already. A log begins where its last closed file
    ends, so that an empty closed file named by the number does it.
    """
    versions = [json.loads(file.read_bytes()).get("version") or 0 for file in shard.glob("segments/*/segment.json")]
    (shard / LOG_FOLDER).mkdir(exist_ok=True)
    name = f"closed-{max(versions, default=0) + 1}"
    (shard / LOG_FOLDER / name).write_bytes(_LOG_HEADER.pack(b"wal\0", os.getpid()))


def without_log(sums: Mapping[str, T]) -> dict[str, T]:
    """Those of some files of a shard that are not of its log."""
    return {name: sum_ for name, sum_ in sums.items() if PurePosixPath(name).parts[0] != LOG_FOLDER}
