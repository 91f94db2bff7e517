"""The files of a collection beside its shard, and how they are read; what its writer publishes for readers among them.

    NAME/published.json          the state: a token that each commit changes, and what belongs to it; see `Published`
    NAME/published/FOLDER/shard/ links and copies of the shard's files, as they were at that moment
    NAME/published/FOLDER/files.json   their checksums

A closed collection has no folder: its own files are the state, and `files.json` says that nobody has it open. A writer
publishes them before it changes anything, and removes `files.json` then. A commit flushes the shard, publishes its
files in another folder, and replaces `published.json`. So a reader finds a committed state at any moment, also if the
writer was killed, and needs no lock.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store import graph
from pearl_qdrant.store.atomic import read_at_most, write_atomically
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.schema import Manifest

log = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
INDEX_FILE = "index.json"
LOCK_FILE = ".lock"
SHARD_FOLDER = "shard"

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Far more than a manifest has: the IDF table takes 350 KB, a checkpoint 200 bytes."""

_MAX_INDEX_BYTES = 4096  # it has 60


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the graph.

    Attributes:
        vectors: Vectors in the graph when it was built.
        rewritten: How many of them a load has written again since, which removed them from the graph.
        m, ef_construct: Its links and candidates when it was built; a later `finalize` uses the same.
        parts: How many parts the collection was joined of, each with a graph; `finalize` keeps as many.
    """

    vectors: int
    rewritten: int = 0
    m: int = graph.M
    ef_construct: int = graph.EF_CONSTRUCT
    parts: int = 1


def read_manifest(path: Path, collection: str) -> Manifest:
    """Read the manifest in a collection's folder.

    Raises:
        ManifestError: If there is none, or it is unreadable.
    """
    text = None
    try:
        if (path / MANIFEST_FILE).is_file():
            with (path / MANIFEST_FILE).open("rb") as file:
                text = read_at_most(file, MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        if (lack := resource_error(error, f"The manifest of collection '{collection}' cannot be read")) is not None:
            raise lack from error
        raise ManifestError(collection, f"unreadable: {error}") from error
    if text is not None and len(text) > MAX_MANIFEST_BYTES:
        raise ManifestError(collection, f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
    return Manifest.parse(text, collection)


def read_index_state(path: Path) -> IndexState | None:
    """Read the state of the graph in a collection's folder; None if none was built.

    A damaged one counts as none, with a warning in the log: `finalize` writes it again.

    Raises:
        StoreError: If the system has too few files or too little memory.
    """
    try:
        with (path / INDEX_FILE).open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_INDEX_BYTES), type=IndexState)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        if (lack := resource_error(error, f"{path / INDEX_FILE} cannot be read")) is not None:
            raise lack from error
        log.warning("%s is damaged (%s): build the graph again with: pearl-qdrant collections finalize", path, error)
        return None


PUBLISHED_FILE = "published.json"
PUBLISHED_FOLDER = "published"

_MAX_FILE_BYTES = 128 * 1024 * 1024  # of `PUBLISHED_FILE`, which has the manifest in it


class Published(msgspec.Struct, frozen=True):
    """A committed state of a collection.

    Attributes:
        token: Another one for each state.
        folder: Name of the folder with its files; None if the collection is closed, or could not be published.
        ledger_bytes: How much of the ledger of learned names belongs to it.
        manifest: Its manifest, as JSON text.
        index: The state of its graph, as JSON text; empty if there is none.
        problem: Why an open collection was not published; empty if it was.
        keeps_shard: Whether the shard's own files count after a kill, with what is not committed: during a load, which
            resumes, and where a commit failed.
        boot: The run of the machine that wrote it: after another one, part of it may be missing. Empty if not known.
    """

    token: str
    folder: str | None = None
    ledger_bytes: int = 0
    manifest: str = ""
    index: str = ""
    problem: str = ""
    keeps_shard: bool = False
    boot: str = ""


def boot_id() -> str:
    """What names this run of the machine; empty if nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):  # not Linux
        return ""


def read_published(path: Path) -> Published | None:
    """Read the state in a collection's folder; None if there is none.

    A damaged one counts as none, with a warning in the log: the shard's own files are what is left.

    Raises:
        StoreError: If the system has too few files or too little memory.
    """
    try:
        with (path / PUBLISHED_FILE).open("rb") as file:
            return msgspec.json.decode(read_at_most(file, _MAX_FILE_BYTES), type=Published)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        if (lack := resource_error(error, f"{path / PUBLISHED_FILE} cannot be read")) is not None:
            raise lack from error
        log.warning("%s is damaged (%s): what the last writer had not finished may count", path / PUBLISHED_FILE, error)
        return None


def write_published(path: Path, state: Published) -> None:
    """Replace the state in a collection's folder; raises OSError."""
    write_atomically(path / PUBLISHED_FILE, msgspec.json.encode(state).decode(), durable=False)


def new_token() -> str:
    """A token that no other state has."""
    return os.urandom(8).hex()
