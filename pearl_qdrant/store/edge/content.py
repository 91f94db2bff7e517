"""The files of an embedded collection: each is stored once and never changes; one file says which of them are current.

    NAME/
      manifest.json     the manifest, and which files are current (`Content`); replaced at each commit
      files/TOKEN       Qdrant Edge's files: a large one that never changes, or a pack of others (`StoredFile`)
      work/             a writer's own
        shard/          the files that it changes (`folder.py`): links to stored files, and copies
        manifest.json   its manifest while a load runs; after a kill the next writer goes on there
      learned.jsonl     the ledger of learned names (`ledger.py`)
      .lock             locked while a writer has the collection open

A writer works in a folder of its own, and so does each reader (`view.py`). A commit stores the files that changed, and
then replaces `manifest.json`. So a reader finds a whole state at any moment and needs no lock, and what a killed writer
had not committed is in its work folder alone.

Edge trusts its files: one wrong byte in a length makes it allocate 6 GB or loop for hours. So the manifest has size and
checksum of every file, which whoever opens a state compares.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Annotated

import msgspec

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store import graph
from pearl_qdrant.store.atomic import read_at_most, sync, sync_folder, write_atomically
from pearl_qdrant.store.edge.placing import (
    checksum,
    copy_file,
    data_blocks,
    link,
    list_files,
    make_log,
    same_blocks,
    sealed_files,
    shard_files,
    write_at,
)
from pearl_qdrant.store.edge.shard import damaged_error
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions import VersionMark

MANIFEST_FILE = "manifest.json"
FILES_FOLDER = "files"
WORK_FOLDER = "work"
SHARD_FOLDER = "shard"
LOCK_FILE = ".lock"

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Far more than a manifest has: the IDF table takes 350 KB, a file 100 bytes, a checkpoint 200."""

_SMALL_BYTES = 1 << 20  # so much of a pack may be out of date, whatever is current


def new_token() -> str:
    """A token that no other state and no other file has."""
    return os.urandom(8).hex()


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the graph.

    Attributes:
        vectors: Vectors in it when it was built.
        rewritten: How many of them a load has written again since, which removed them from it.
        m, ef_construct: Its links and candidates; a later `finalize` uses the same.
        parts: Of how many parts, each with a graph, the collection was joined; `finalize` keeps as many.
    """

    vectors: int
    rewritten: int = 0
    m: int = graph.M
    ef_construct: int = graph.EF_CONSTRUCT
    parts: int = 1


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """Where a file of the shard is stored: `size` bytes, as `token` in `FILES_FOLDER`.

    A large file that never changes is a file of its own, which can be linked (`spans` is None; the checksum is that of
    `placing`). All others of a commit are in one file, a pack, without their zeros: a change of one name changes 60
    files by a few bytes, which take long to bring to the disk. There its bytes begin at `start`, and `spans` says where
    they belong (start and number); the checksum is theirs.
    """

    token: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$")]
    size: int
    checksum: int
    start: int = 0
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def n_packed(self) -> int:
        """Its bytes in a pack."""
        return sum(n for _, n in self.spans or ())


Files = dict[Annotated[str, msgspec.Meta(pattern=r"^[^/.][^/]*(/[^/.][^/]*)*$")], StoredFile]
"""The files of a shard, by their path in it; none leads out of it."""


@dataclass(frozen=True, slots=True)
class Content:
    """What belongs to the current state, beside its manifest.

    Its files, a `token` that differs at each commit, how much of the ledger of learned names is its own, the state of
    its graph if one was built, and which version of the collection it is of (`versions.py`).
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
    """Store what changed of a flushed shard's files since an earlier state, and return all of them, on the disk.

    Its log is left out: all that is in it is in the segments. If it fails (OSError), no more is stored than before.
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
            current[file.token] += file.n_packed
    return {token for token, n in current.items() if (folder / token).stat().st_size > 2 * n + _SMALL_BYTES}


def _is_stored(source: Path, folder: Path, stored: StoredFile) -> bool:
    """Whether a file is as it was when it was stored."""
    if stored.spans is None:  # it never changes
        return source.stat().st_size == stored.size
    with source.open("rb", buffering=0) as file, (folder / stored.token).open("rb", buffering=0) as pack:
        if os.fstat(file.fileno()).st_size != stored.size:
            return False
        return same_blocks(data_blocks(file, stored.size), _unpack(pack, stored))


def _pack(source: Path, pack: FileIO, token: str) -> StoredFile:
    """Append a file to a pack."""
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
    """Make a shard of stored files, with an empty log: large ones that never change as links, others as copies.

    Raises StoreError if one is missing or not as it was stored, OSError if one cannot be read or written.
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
