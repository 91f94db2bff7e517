"""The files of an embedded collection: each is stored once and never changes; one file says which of them are current.

    NAME/
      manifest.json     the manifest, and which files are current (`Content`); replaced at each commit
      files/TOKEN       Qdrant Edge's files: a large one that never changes, or a pack of others (`StoredFile`)
      work/             a writer's own
        shard/          the files that it changes (`folder.py`): links to stored files, and copies
        manifest.json   its manifest while a load runs; after a kill the next writer goes on there
      learned.jsonl     the ledger of learned names
      .lock             locked while a writer has the collection open

A writer works in a folder of its own, and so does each reader (`view.py`). A commit stores the files that changed, and
then replaces `manifest.json`. So a reader finds a whole state at any moment and needs no lock, and what a killed writer
had not committed is in its work folder alone.

What Qdrant Edge 0.9 does with its files (measured by comparing their content): opening and searching change none; they
are mapped. Of a segment that was compacted only small files change, at a flush: ids and versions of deleted points, and
trackers of payloads. So the large files of compacted segments are hard links, which share their pages in memory with
every other process, and the rest is copied: 3 MB for 75,704 names, up to 100 MB for a growing segment of 50,000. Where
no hard link can be made (another disk, a read-only mount, files of another user), symbolic links take their place in
what is used for a while, except for files that Edge opens for writing, though it does not write: these are copied.

Only the process that has the collection open appends to the ledger. One that dies leaves a torn last line at most; each
call begins a new one, and the reader sees that the torn one is none of its own. From the deletion of a collection that
is made again to its creation, its ledger is .learned-NAME.jsonl beside it.

Edge trusts its files: one wrong byte in a length makes it allocate 6 GB or loop for hours. So the manifest has size and
checksum of every file, which whoever opens a state compares.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import msgspec

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.edge.shard import damaged_error
from pearl_qdrant.store.protocol import VersionMark
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.search import EF_CONSTRUCT, M
from pearl_qdrant.store.system import read_at_most, resource_error, sync, sync_folder, write_atomically

MANIFEST_FILE = "manifest.json"
LEDGER_FILE = "learned.jsonl"
FILES_FOLDER = "files"
WORK_FOLDER = "work"
SHARD_FOLDER = "shard"
LOCK_FILE = ".lock"

# A file that is opened to be appended to, but through no link.
APPEND_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
APPEND_FLAGS |= sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))

MAX_MANIFEST_BYTES = 64 * 1024 * 1024  # far more than it has: the IDF table takes 350 KB, a file 100 bytes
_SMALL_BYTES = 1 << 20  # so much of a pack may be out of date, whatever is current

# Files of a compacted segment that Edge opens for reading only.
_MAPPED = {"matrix.dat", "quantized.data", "links.bin", "links_compressed.bin", "inverted_index.dat"}
_MAPPED |= {"indices_tracker.json", "id_tracker.mappings", "point_to_values.bin", "values_to_points.bin"}

_PAGES = "page_"
"""How the files begin that hold payloads and sparse vectors. Edge opens them for writing; in a compacted segment it
writes nothing: a point that changes moves to a growing segment."""

_SEALED = "id_tracker.mappings"  # in the folder of a compacted segment; a growing one has `mutable_id_tracker.mappings`

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
"""Why a file system makes no hard link here."""

_WHOLE_BYTES = 256 * 1024  # files up to this size are summed completely; of larger ones `EDGE_BYTES` at each end
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


def copy_file(source: str | Path, target: str | Path, n_bytes: int | None = None) -> None:
    """Copy a file, or its first `n_bytes`; zeros become holes, of which small collections have 200 MB."""
    # A `Path` for each of 90 files takes a millisecond.
    with (
        open(source, "rb", buffering=0, opener=_open_at_once) as read,
        open(target, "xb", buffering=0) as written,  # noqa: PTH123
    ):
        size = os.fstat(read.fileno()).st_size
        size = size if n_bytes is None else min(size, n_bytes)
        written.truncate(size)
        for start, block in data_blocks(read, size):
            write_at(written, start, block)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe in its place would wait for a writer, and is read as empty."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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


def new_token() -> str:
    """A token that no other state and no other file has."""
    return os.urandom(8).hex()


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the graph; a later `finalize` uses the same parameters."""

    vectors: int  # in it when it was built
    rewritten: int = 0  # how many of them a load has written again since, which removed them from it
    m: int = M
    ef_construct: int = EF_CONSTRUCT
    parts: int = 1  # of how many, each with a graph, an earlier release joined the collection


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """Where a file of the shard is stored: `size` bytes, as `token` in `FILES_FOLDER`.

    A large file that never changes is a file of its own, which can be linked (`spans` is None; the checksum is that of
    `checksum`). All others of a commit are in one file, a pack, without their zeros: a change of one name changes 60
    files by a few bytes, which take long to bring to the disk. There its bytes begin at `start`, and `spans` says where
    they belong (start and number); the checksum is theirs.
    """

    token: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$")]
    size: int
    checksum: int
    start: int = 0
    spans: tuple[tuple[int, int], ...] | None = None


Files = dict[Annotated[str, msgspec.Meta(pattern=r"^[^/.][^/]*(/[^/.][^/]*)*$")], StoredFile]
"""The files of a shard, by their path in it; none leads out of it."""


@dataclass(frozen=True, slots=True)
class Content:
    """What belongs to the current state, beside its manifest.

    Its files, a `token` that differs at each commit, how much of the ledger of learned names is its own, the state of
    its graph if one was built, and which version of the collection it is of (`store.py`).
    """

    files: Files
    token: str = field(default_factory=new_token)
    ledger_bytes: int = 0
    index: IndexState | None = None
    version: VersionMark = field(default_factory=lambda: VersionMark(is_complete=True))


class _File(msgspec.Struct):
    """`MANIFEST_FILE` without the manifest: what is current, and the checksum of this as JSON without spaces."""

    content: Content | None = None
    checksum: int | None = None


def read_content(folder: Path, collection: str) -> tuple[Manifest, Content]:
    """Read the manifest in a folder, and which files are current; ManifestError if that cannot be read."""
    text = None
    try:
        if (folder / MANIFEST_FILE).is_file():
            with (folder / MANIFEST_FILE).open("rb") as file:
                text = read_at_most(file, MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        if (lack := resource_error(error, f"The manifest of collection '{collection}' cannot be read")) is not None:
            raise lack from error
        raise ManifestError(collection, f"unreadable: {error}") from error
    if text is not None and len(text) > MAX_MANIFEST_BYTES:
        raise ManifestError(collection, f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
    manifest = Manifest.parse(text, collection)
    why = "it does not say which files are current"
    try:
        found = msgspec.json.decode(text or b"", type=_File)
    except ValueError as error:
        raise ManifestError(collection, f"{why}: {error}") from error
    if found.content is None:
        raise ManifestError(collection, why, is_other_version=True)
    if zlib.crc32(msgspec.json.encode(found.content)) != found.checksum:
        raise ManifestError(collection, f"{why}: the checksum is another one")
    return manifest, found.content


def write_content(folder: Path, manifest: Manifest, content: Content) -> None:
    """Replace the manifest and what is current, in one step; raises OSError."""
    text, current = manifest.model_dump_json(indent=2).removesuffix("\n}"), msgspec.json.encode(content)
    end = f'"content": {current.decode()},\n  "checksum": {zlib.crc32(current)}\n}}\n'
    write_atomically(folder / MANIFEST_FILE, f"{text},\n  {end}")


def is_collection(path: Path) -> bool:
    """Whether a folder holds a collection, or a part of one."""
    return (path / MANIFEST_FILE).is_file() or (path / FILES_FOLDER).is_dir()


def store_files(path: Path, shard: Path, before: Files) -> Files:
    """Store what changed of a flushed shard's files since an earlier state, and return all of them, on the disk. Its
    log is left out: all that is in it is in the segments. If it fails (OSError), no more is stored than before.
    """
    folder, names = path / FILES_FOLDER, shard_files(shard)
    folder.mkdir(exist_ok=True)
    sealed, rare, files = sealed_files(names), _rare_packs(folder, before), Files()
    made = [pack := folder / new_token()]
    try:
        with pack.open("xb", buffering=0) as packed:
            for name in names:
                known, source = before.get(name), shard / name
                if known is not None and known.token not in rare and _is_stored(source, folder, known):
                    files[name] = known
                elif name in sealed:
                    made.append(stored := folder / new_token())
                    if not link(source, stored):
                        copy_file(source, stored)
                    size = stored.stat().st_size
                    files[name] = StoredFile(stored.name, size, checksum(stored, name, size))
                else:
                    files[name] = _pack(source, packed, pack.name)
        if not any(file.token == pack.name for file in files.values()):
            made.remove(pack)
            pack.unlink()
        for stored in made:
            sync(stored)
        sync_folder(folder)
    except BaseException:
        for file in made:
            file.unlink(missing_ok=True)
        raise
    return files


def _rare_packs(folder: Path, files: Files) -> set[str]:
    """The packs of which less than half is current: what is, is stored again, to remove them."""
    current: Counter[str] = Counter()
    for file in files.values():
        if file.spans is not None:
            current[file.token] += sum(n for _, n in file.spans)
    return {token for token, n in current.items() if (folder / token).stat().st_size > 2 * n + _SMALL_BYTES}


def _is_stored(source: Path, folder: Path, stored: StoredFile) -> bool:
    if stored.spans is None:  # it never changes
        return source.stat().st_size == stored.size
    with source.open("rb", buffering=0) as file, (folder / stored.token).open("rb", buffering=0) as pack:
        if os.fstat(file.fileno()).st_size != stored.size:
            return False
        blocks = zip_longest(data_blocks(file, stored.size), _unpack(pack, stored))
        return all(now == before for now, before in blocks)


def _pack(source: Path, pack: FileIO, token: str) -> StoredFile:
    sum_, spans, start = 0, [], pack.tell()
    with source.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for at, block in data_blocks(file, size):
            spans.append((at, len(block)))
            sum_ = zlib.crc32(block, sum_)
            write_at(pack, pack.tell(), block)
    return StoredFile(token, size, sum_, start, tuple(spans))


def _unpack(pack: FileIO, stored: StoredFile) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a file in a pack, as `data_blocks` does."""
    pack.seek(stored.start)
    for at, n in stored.spans or ():
        yield at, pack.read(n)


def share_files(source: Path, files: Files, target: Path) -> None:
    """Give stored files of a collection to another one, by links where that is possible. Raises OSError."""
    folder = target / FILES_FOLDER
    folder.mkdir(exist_ok=True)
    for token in {file.token for file in files.values()}:
        stored, copied = folder / token, folder / f".{token}"
        if not stored.exists() and not link(source / FILES_FOLDER / token, stored):
            copied.unlink(missing_ok=True)  # of a call that was killed
            copy_file(source / FILES_FOLDER / token, copied)
            sync(copied)
            copied.rename(stored)
    sync_folder(folder)


def sync_shard(shard: Path) -> None:
    """Bring the files of a shard to the disk that are no links: Edge does so only with what it changes itself."""
    for name, status in list_files(shard):
        if status.st_nlink == 1:
            with suppress(FileNotFoundError):  # Edge has just renamed a temporary one
                sync(shard / name)
    for folder, _, _ in os.walk(shard):
        sync_folder(Path(folder))


def take_files(path: Path, collection: str, files: Files, shard: Path, *, is_lasting: bool = False) -> None:
    """Make a shard of stored files, with an empty log: large ones that never change as links, others as copies. Raises
    StoreError if one is missing or not as it was stored, OSError if one cannot be read or written.
    """
    sealed = sealed_files(files)
    shard.mkdir(parents=True)
    for folder in {name.rpartition("/")[0] for name in files}:
        (shard / folder).mkdir(parents=True, exist_ok=True)
    for name, stored in files.items():
        source, target = path / FILES_FOLDER / stored.token, shard / name
        try:
            if not stat.S_ISREG(source.lstat().st_mode):
                raise damaged_error(collection, f"{name} is no file: {source}")
            if stored.spans is not None:
                sum_ = _take_packed(source, stored, target)
            else:
                if not (name in sealed and link(source, target, name=name, is_lasting=is_lasting)):
                    copy_file(source, target)
                is_whole = source.stat().st_size == stored.size
                sum_ = checksum(target, name, stored.size) if is_whole else -1
        except (FileNotFoundError, NotADirectoryError) as error:
            raise damaged_error(collection, f"{name} is missing: {source}") from error
        if sum_ != stored.checksum:
            raise damaged_error(collection, f"{name} is not as it was when it was written: {source}")
    make_log(shard)


def _take_packed(source: Path, stored: StoredFile, target: Path) -> int:
    """Copy a file out of a pack; returns the checksum of its bytes."""
    sum_ = 0
    with source.open("rb", buffering=0) as pack, target.open("xb", buffering=0) as file:
        file.truncate(stored.size)
        for at, block in _unpack(pack, stored):
            sum_ = zlib.crc32(block, sum_)
            write_at(file, at, block)
    return sum_


def remove_other_files(path: Path, content: Content) -> None:
    """Remove stored files that are not current. A reader that is opening a state with them begins again."""
    current = {file.token for file in content.files.values()}
    for file in (path / FILES_FOLDER).glob("*"):
        if file.name not in current:
            with suppress(OSError):
                file.unlink()


def read_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of the ledger in a folder without their ends; none if there is no ledger. Raises OSError."""
    with suppress(FileNotFoundError), open(folder / LEDGER_FILE, "rb", opener=_open_at_once) as file:
        yield from filter(None, (line.rstrip(b"\r\n") for line in file))


def ledger_size(folder: Path) -> int:
    """Bytes of the ledger in a collection's folder; 0 if there is none."""
    try:
        return (folder / LEDGER_FILE).stat().st_size
    except FileNotFoundError:
        return 0


def cut_ledger(folder: Path, n_bytes: int) -> None:
    """Leave the first bytes of a ledger alone; raises OSError."""
    if ledger_size(folder) > n_bytes:
        os.truncate(folder / LEDGER_FILE, n_bytes)


def append_lines(folder: Path, lines: Sequence[bytes]) -> None:
    """Append lines, on the disk on return; if it fails (OSError), what was written is cut off again."""
    path = folder / LEDGER_FILE
    is_new = not path.exists()
    with os.fdopen(os.open(path, APPEND_FLAGS, 0o666), "r+b", buffering=0) as file:
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


def retire_ledger(store: Path, name: str, *, keep: bool) -> None:
    """Move the ledger of a collection to be deleted beside it, or remove the one kept there; raises OSError."""
    if not keep:
        _kept_path(store, name).unlink(missing_ok=True)
        return
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


def _kept_path(store: Path, name: str) -> Path:
    return store / f".learned-{name}.jsonl"
