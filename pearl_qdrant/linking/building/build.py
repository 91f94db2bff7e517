"""Writes a new collection from entities in memory, and the store of a collection that lives as long as its linker.

Qdrant Edge keeps everything in files: "in memory" is a temporary folder, which is deleted when the store is closed, or
at the latest when the program ends. A small collection is written in this process, a larger one by the child process of
a bulk load (`store.protocol.Writer`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.points import encode_descriptions, name_points, names_of
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest

MEMORY = ":memory:"
"""The store of a collection that is gone when its linker is closed."""

_BATCH = 1024  # entities that are encoded and written at once

_BULK_NAMES = 20_000  # from here on the child process of a bulk load pays: it starts in about a second


class TemporaryStore(EdgeStore):
    """An embedded store in a temporary folder, which is deleted with it."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="pearl-qdrant-"))
        super().__init__(path)
        self._delete = weakref.finalize(self, _delete_folder, path, os.getpid())

    def close(self) -> None:
        """Close the collections and delete the folder."""
        super().close()
        self._delete()


def _delete_folder(path: Path, pid: int) -> None:
    """Delete a folder, but not in a process that was forked from its owner."""
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


def build_collection(
    store: Store, name: str, encoder: Encoder, entities: Sequence[Entity], *, embed_descriptions: bool = False
) -> Collection:
    """Create a collection and fill it; if this fails, it is deleted.

    Args:
        store: Where it is created.
        name: The name of the collection and of its base.
        encoder: Encodes the names.
        entities: At least one; with different ids.
        embed_descriptions: Whether the collection keeps a vector of each description.

    Raises:
        CollectionExistsError: If the store has a collection of that name.
        StoreError: If it cannot be written.
    """
    manifest = Manifest.for_model(encoder.info, collection=name, kb=name, has_descriptions=embed_descriptions)
    collection = store.create(manifest)
    try:
        _fill(collection, encoder, entities)
        collection.finalize()
        idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        ready = {"state": "ready", "ngram_rarity": idf, **counts}
        collection.write_manifest(collection.read_manifest().model_copy(update=ready))
    except BaseException:
        collection.close()
        store.delete(name)
        raise
    return collection


def _fill(collection: Collection, encoder: Encoder, entities: Sequence[Entity]) -> None:
    wanted = collection.manifest.has_descriptions
    if sum(1 + len(entity.aliases) for entity in entities) < _BULK_NAMES:
        for batch in _batches(entities):
            encoded = encoder.encode([name for _, name in names_of(batch)])
            points = name_points(collection.manifest.kb, names_of(batch), encoded)
            described = encode_descriptions(names_of(batch), encoder, wanted=wanted)
            collection.upsert(points, encoded.vectors, np.asarray(encoded.encodable), descriptions=described)
        return
    with collection.writer() as writer:
        for batch in _batches(entities):
            encoded = encoder.encode([name for _, name in names_of(batch)])
            points = name_points(collection.manifest.kb, names_of(batch), encoded)
            described = encode_descriptions(names_of(batch), encoder, wanted=wanted)
            writer.write(points, encoded.vectors, np.asarray(encoded.encodable), descriptions=described)
        writer.flush()


def _batches(entities: Sequence[Entity]) -> Iterator[Sequence[Entity]]:
    return (entities[start : start + _BATCH] for start in range(0, len(entities), _BATCH))
