"""Loads bases for the evaluation into an embedded store, temporary or kept for the next run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.points import name_points, names_of
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest
from training.evaluation.linking.sets import Base

_WINDOW = 4096
"""Number of entities that are encoded and written together."""

_MAX_OPEN = 24


class LoadedBases:
    """Collections of bases, one for each base and encoder; a context manager.

    Recently used collections stay open: opening one takes longer than linking a few hundred mentions.

    Args:
        folder: Where collections are kept for later runs. None: a temporary folder.
        progress: Called with a line when a base is loaded.
    """

    def __init__(self, folder: Path | None, *, progress: Callable[[str], None] = lambda line: None) -> None:
        self._temporary = TemporaryDirectory(prefix="pearl-qdrant-") if folder is None else None
        self.store: Store = open_store(self._temporary.name if self._temporary else str(folder))
        self._progress = progress
        self._open: dict[str, tuple[Base, Collection]] = {}

    def __enter__(self) -> LoadedBases:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def collection(self, base: Base, encoder: Encoder) -> Collection:
        """The collection of a base, loaded if it does not exist. It is open until enough others have been used.

        Raises:
            StoreError: If the store fails.
        """
        name = collection_name(base, encoder)
        known = self._open.pop(name, None)
        if known is None or known[0] is not base:
            if known is not None:
                known[1].close()
            while len(self._open) >= _MAX_OPEN:
                self._open.pop(next(iter(self._open)))[1].close()
            known = base, self._open_or_load(name, base, encoder)
        self._open[name] = known
        return known[1]

    def _open_or_load(self, name: str, base: Base, encoder: Encoder) -> Collection:
        version = _digest(base)
        if name in self.store.collections():
            collection = self.store.open(name)
            if (collection.manifest.state, collection.manifest.kb_version) == ("ready", version):
                return collection
            collection.close()
            self.store.delete(name)
        self._progress(f"loading {base.name}, {len(base.entities):,} entities, with {encoder.info.name}")
        return _load(self.store, name, version, base, encoder)


def collection_name(base: Base, encoder: Encoder) -> str:
    """Name of the collection of a base and an encoder."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', base.name)}-{encoder.info.weights_hash.split(':')[-1][:8]}"


def _digest(base: Base) -> str:
    """A hash of the contents of a base."""
    hashed = hashlib.sha256()
    for entity in base.entities:
        fields = (entity.entity_id, entity.canonical_name, entity.aliases, entity.kb_types, entity.types)
        hashed.update(json.dumps(fields).encode())
    return hashed.hexdigest()


def _load(store: Store, name: str, version: str, base: Base, encoder: Encoder) -> Collection:
    manifest = Manifest.for_model(encoder.info, collection=name, kb=base.name, kb_version=version)
    collection = store.create(manifest)
    entities = iter(base.entities)
    with collection.writer() as writer:
        while window := list(islice(entities, _WINDOW)):
            names = list(names_of(window))
            encoded = encoder.encode([text for _, text in names])
            writer.write(name_points(base.name, names, encoded), encoded.vectors, encoded.encodable)
    collection.finalize()
    idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
    counts = {"entities": len(base.entities), "names": collection.count()}
    done = {"state": "ready", "ngram_rarity": idf, **counts}
    collection.write_manifest(collection.read_manifest().model_copy(update=done))
    return collection
