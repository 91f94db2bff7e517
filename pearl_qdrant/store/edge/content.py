"""The files of a collection beside its shard: their names, and how they are read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store import graph
from pearl_qdrant.store.atomic import read_at_most
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
    m: int = graph.OLD_M
    ef_construct: int = graph.OLD_EF_CONSTRUCT
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
