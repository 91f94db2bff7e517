"""Give a shard's files a second place: large ones that never change as links, all others as copies.

What Qdrant Edge 0.9 does with its files (measured by comparing their content before and after):

- Opening and searching change no content. Files are mapped, and the search opens none afterwards.
- Of a segment that was compacted only small files change, at a flush: ids and versions of deleted points, and trackers
  of payloads. A growing segment changes with each write.

So the large files of compacted segments are hard links, which share their pages in memory with every other process,
and the rest is copied: 3 MB for 75,704 names. A growing segment of 50,000 points takes about 100 MB. Where no hard link
can be made (another disk, a read-only mount, files of another user), symbolic links take their place in what is used
for a while, except for files that Edge opens for writing, though it does not write: these are copied, and so is all
where not even a symbolic link can be made.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO
from itertools import zip_longest
from pathlib import Path

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

_WHOLE_BYTES = 256 * 1024
"""Files up to this size are summed completely; of larger ones `EDGE_BYTES` at each end."""

EDGE_BYTES = 64 * 1024

_BLOCK_BYTES = 1 << 15
_ZEROS = bytes(_BLOCK_BYTES)

_LOG_FOLDER = "wal"

_LOG_HEADER = struct.Struct("<4sI24x")  # of an empty file of the log: magic, seed of its checksums, no entry


def list_files(shard: Path) -> list[tuple[str, os.stat_result]]:
    """List what a shard has but folders, by the path in it, with its status."""
    found, folders = [], [""]
    while folders:
        folder = folders.pop()
        with os.scandir(f"{shard}/{folder}") as entries:
            for entry in entries:
                if entry.name.startswith("."):  # what Edge left where it was killed while it replaced a file
                    continue
                name = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    with suppress(FileNotFoundError):  # Edge has just renamed a temporary one
                        found.append((name, entry.stat(follow_symlinks=False)))
    return found


def shard_files(shard: Path) -> list[str]:
    """List the regular files of a shard without its log and its temporary segments, by their path in it."""
    left_out = (f"{_LOG_FOLDER}/", "temp_segments/")
    files = list_files(shard)
    return sorted(name for name, status in files if stat.S_ISREG(status.st_mode) and not name.startswith(left_out))


def sealed_files(names: Iterable[str]) -> set[str]:
    """Of the files of a shard, by their path in it, those that never change."""
    files = {name: name.rpartition("/")[::2] for name in names}
    sealed = tuple(f"{folder}/" for folder, name in files.values() if name == _SEALED)
    return {
        path
        for path, (_, name) in files.items()
        if (name in _MAPPED or name.startswith(_PAGES)) and path.startswith(sealed)
    }


def link(source: Path, target: Path, *, name: str = "", is_lasting: bool = True) -> bool:
    """Link a file that never changes; returns False if it must be copied. Raises OSError, but not for lack of links.

    `name` is its path in the shard, if Edge is to open it there. A target that is not lasting may be a symbolic link.
    """
    is_page = name.rpartition("/")[2].startswith(_PAGES)
    if is_page and not os.access(source, os.W_OK):  # a file of another user, or on a read-only mount
        return False
    try:
        target.hardlink_to(source)
        return True
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    with suppress(OSError):
        if not (is_page or is_lasting):
            target.symlink_to(source)
            return True
    return False


def checksum(file: Path, name: str, size: int) -> int:
    """Compute the checksum of a file of a shard, whose path in it is `name`.

    Of large files only both ends are summed, which hold lengths and offsets; of an id tracker all of it, since it is
    all offsets. The middle holds vectors, links and texts, where a wrong byte can only cause a wrong answer. For
    571,000 names this takes 40 ms, besides reading the files into the page cache.
    """
    with open(file, "rb", buffering=0) as opened:  # noqa: PTH123 - `Path.open` of 90 files takes a millisecond
        if size <= _WHOLE_BYTES:
            return zlib.crc32(opened.read())
        if "id_tracker" in name.rpartition("/")[2]:
            sum_ = 0
            while block := opened.read(_WHOLE_BYTES):
                sum_ = zlib.crc32(block, sum_)
            return sum_
        sum_ = zlib.crc32(opened.read(EDGE_BYTES))
        opened.seek(-EDGE_BYTES, os.SEEK_END)
        return zlib.crc32(opened.read(EDGE_BYTES), sum_)


def same_blocks(one: Iterable[tuple[int, bytes]], other: Iterable[tuple[int, bytes]]) -> bool:
    """Whether two files have the same blocks of data."""
    return all(ours == theirs for ours, theirs in zip_longest(one, other))


def copy_file(source: str | Path, target: str | Path, n_bytes: int | None = None) -> None:
    """Copy a file, or its first `n_bytes`; zeros become holes, of which small collections have 200 MB."""
    # A `Path` for each of 90 files takes a millisecond.
    with open(source, "rb", buffering=0) as read, open(target, "xb", buffering=0) as written:  # noqa: PTH123
        size = os.fstat(read.fileno()).st_size
        size = size if n_bytes is None else min(size, n_bytes)
        written.truncate(size)
        for start, block in data_blocks(read, size):
            write_at(written, start, block)


def data_blocks(file: FileIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield what a file has besides zeros: where it is, and the bytes. Files of the same content yield the same."""
    start = 0
    while (start := _next_data(file.fileno(), start, size)) < size:
        start -= start % _BLOCK_BYTES
        file.seek(start)
        read = file.read(min(_BLOCK_BYTES, size - start))
        # In memory (tmpfs) files have zeros, not holes: to add ten names took 212 ms, and takes 36 with the comparison.
        if read != _ZEROS and (block := read.lstrip(b"\0")):
            yield start + len(read) - len(block), block.rstrip(b"\0")
        start += _BLOCK_BYTES


def _next_data(file: int, start: int, size: int) -> int:
    """Where the next bytes are that are no hole; `size` if there are none."""
    if start >= size or not hasattr(os, "SEEK_DATA"):
        return start
    try:
        return os.lseek(file, start, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else start


def write_at(file: FileIO, start: int, block: bytes) -> None:
    """Write all bytes of a block."""
    file.seek(start)
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


def make_log(shard: Path) -> None:
    """Make an empty log whose next entry has a number after those of all segments.

    Edge takes an operation with a smaller number for one that is done already. A log begins where its last closed file
    ends, so that an empty closed file named by the number does it.
    """
    versions = [json.loads(file.read_bytes()).get("version") or 0 for file in shard.glob("segments/*/segment.json")]
    (shard / _LOG_FOLDER).mkdir(exist_ok=True)
    name = f"closed-{max(versions, default=0) + 1}"
    (shard / _LOG_FOLDER / name).write_bytes(_LOG_HEADER.pack(b"wal\0", os.getpid()))
