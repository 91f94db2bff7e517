"""Whether the files of an embedded collection can be trusted to Edge, which believes what stands in them.

One wrong byte in a length makes Edge take 6 GB, go round for hours, or end the process. So when a collection is closed
a seal is laid beside its manifest: size and checksum of every file. A collection whose files are as sealed is opened at
once. One whose files are not is refused. One without a seal was not closed (a crash, a copy of an open one): it is
opened first in a process of its own, with little memory and time, where damage hurts nobody.

Of large files only head and tail are summed, where lengths and offsets lie; in the middle there are vectors, links and
texts, and a wrong byte there is a wrong answer at worst. Beside bringing the files into the page cache this takes 40 ms
for 571,000 names.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from pearl_qdrant.store.atomic import sync_folder, write_atomically
from pearl_qdrant.store.edge import process as edge_process
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.probe import BEGUN

SEAL_FILE = "files.json"

WHOLE_BYTES = 256 * 1024
"""Files up to this size are summed whole; of larger ones `EDGE_BYTES` at each end."""

EDGE_BYTES = 64 * 1024

DATA_BYTES = 256 * 1024 * 1024
DATA_SHARE = 4
"""Anonymous memory that opening may take: so much, and so many times the size of what Edge reads into it. Measured:
196 MB for a growing segment of 100,000 points, 54 for 20,000, 10 for 30,000 that are built."""

FILE_BYTES = 64 * 1024 * 1024
"""By how much a file may become larger than the largest there is: Edge makes files of 32 MiB."""

CPU_S = 20
CPU_BYTES = 16 * 1024 * 1024
"""Processor seconds that opening may take: so many, and one for each so many bytes that Edge reads into memory.
Measured: 6.5 for those 100,000 points, most of which stood in the write-ahead log alone."""

_MODULE = "pearl_qdrant.store.edge.probe"
_MAX_SEAL_BYTES = 64 * 1024 * 1024
_SHOWN_CHARS = 300  # of what a process said at its end

_log = logging.getLogger(__name__)

Sums = dict[str, tuple[int, int]]
"""Size and checksum of each file, by its path in the shard."""


class _Seal(msgspec.Struct):
    """What lies in the seal."""

    files: Sums
    version: int = 1


def lay_seal(shard: Path) -> None:
    """Note how the files of a shard are that was just closed. Without a seal nothing is wrong, but slower."""
    with suppress(OSError, ValueError):  # a full disk; a stranger's file whose name is no text
        text = msgspec.json.encode(_Seal(_sums(shard))).decode()
        write_atomically(shard.with_name(SEAL_FILE), text, durable=False)


def break_seal(shard: Path, collection: str) -> bool:
    """See to it that a shard can be opened, and remove the seal: from now on its files change.

    Args:
        shard: The shard, locked and closed.
        collection: Its name, for errors.

    Returns:
        Whether it was opened to try it: then its files have gone from the page cache.

    Raises:
        StoreError: If its files are damaged, or the seal cannot be removed.
    """
    seal = shard.with_name(SEAL_FILE)
    try:
        sealed = _read(seal)
        sums = _sums(shard) if sealed is not None else {}
        changed = sorted(name for name, sum_ in (sealed or {}).items() if sums.get(name) != sum_)
        if changed:
            why = f"{changed[0]} is not as it was when the collection was closed"
            more = f", nor are {len(changed) - 1} others" if len(changed) > 1 else ""
            raise edge_shard.damaged(collection, why + more, way_out=f" To try it as it is, remove {seal}.")
        is_unknown = sealed is None or len(sums) > len(sealed)
        if is_unknown:
            probe(shard, collection)
        if sealed is not None:
            seal.unlink()
            sync_folder(seal.parent)
    except OSError as error:
        raise edge_shard.classify(str(error), collection, "opening it") from error
    return is_unknown


def probe(shard: Path, collection: str) -> None:
    """Open and close a shard in a process of its own, with limits.

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
        said = ended.stdout.decode("utf-8", "replace")
    except OSError as error:
        said = str(error)
    if not said.startswith(BEGUN):  # an interpreter inside another program, which starts none
        _log.warning("Collection '%s' was not closed, and no process can be started to try its files first", collection)
        return
    if ended.returncode == 0:
        return
    message = said.removeprefix(BEGUN).strip()
    if not message:
        why = edge_process.why_ended(ended.returncode)
        if ended.returncode == -getattr(signal, "SIGXCPU", 0):
            why += f" after {limits[2]} s of processor time"
        last_words = ended.stderr.decode("utf-8", "replace").strip()[-_SHOWN_CHARS:]
        message = f"the process that opened it first {why}" + (f"; its last words: {last_words}" if last_words else "")
        raise edge_shard.damaged(collection, message)
    raise edge_shard.classify(message, collection, "opening it")


def _limits(shard: Path) -> tuple[int, int, int]:
    """Bytes of anonymous memory and of the largest file, and processor seconds, that opening a shard may take."""
    sizes = {Path(name): status.st_size for name, status in _files(shard)}
    growing = {path.parent for path in sizes if path.name == "mutable_id_tracker.mappings"}
    read = sum(size for path, size in sizes.items() if _is_read(path, growing))
    largest = max(sizes.values(), default=0)
    return DATA_BYTES + DATA_SHARE * read, FILE_BYTES + largest, CPU_S + read // CPU_BYTES


def _is_read(path: Path, growing: set[Path]) -> bool:
    """Whether Edge reads a file into memory when it opens a shard: ids, the log, what is not yet built but vectors."""
    if "id_tracker" in path.name or path.parts[0] == "wal":
        return True
    return not growing.isdisjoint(path.parents) and path.parts[2] != "vector_storage-dense"


def _files(shard: Path) -> list[tuple[str, os.stat_result]]:
    """The regular files of a shard, by path; others, which a stranger laid there, have no size and no content."""
    found = []
    for folder, _, names in os.walk(shard):
        for name in names:
            path = Path(folder, name)
            found.append((str(path.relative_to(shard)), path.lstat()))
    return found


def _sums(shard: Path) -> Sums:
    """Size and checksum of each file of a shard."""
    sums = {}
    for name, status in _files(shard):
        if stat.S_ISREG(status.st_mode):
            sums[name] = status.st_size, _sum(shard / name, status.st_size)
        else:
            sums[name] = 0, 0
    return sums


def _sum(path: Path, size: int) -> int:
    """Checksum of a file, or of both ends of a large one; trackers of ids, which are all lengths and offsets, whole."""
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


def _read(seal: Path) -> Sums | None:
    """What is sealed; None where there is no seal, or one that cannot be read."""
    try:
        if not stat.S_ISREG(seal.lstat().st_mode):
            return None
        with seal.open("rb") as file:
            read = msgspec.json.decode(file.read(_MAX_SEAL_BYTES), type=_Seal)
    except (OSError, ValueError, RecursionError):
        return None
    return read.files if read.version == _Seal({}).version else None
