"""Adding and deleting a few entities of a collection, effective at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import MAX_NAMES, name_points, names_of
from pearl_qdrant.store.protocol import Collection

_BATCH = 1024


def add_entities(collection: Collection, encoder: Encoder, entities: Iterable[Entity]) -> int:
    """Write entities; one of the same id loses the names that it no longer has. Returns the number of names written.

    Raises:
        ValueError: If an entity has an empty id or name; those before it in batches of 1,024 are written.
    """
    written = 0
    entities = iter(entities)
    while batch := list(islice(entities, _BATCH)):
        for entity in batch:
            _check(entity)
        encoded = encoder.encode([name for entity in batch for name in entity.names()])
        points = name_points(collection.manifest.kb, names_of(batch), encoded)
        old = collection.find(entity_ids=[e.entity_id for e in batch], limit=MAX_NAMES)
        collection.upsert(points, encoded.vectors, np.asarray(encoded.encodable))
        collection.delete_points({p.id for p in old} - {p.id for p in points})
        written += len(points)
    _note_counts(collection)
    return written


def _check(entity: Entity) -> None:
    """An entity as readers make them.

    Raises:
        TypeError: If the aliases are one string.
        ValueError: If its id or a name is empty.
    """
    if isinstance(entity.aliases, str):
        raise TypeError(
            f"aliases of entity {entity.entity_id!r} is a tuple of names, not the string {entity.aliases!r}"
        )
    for label, text in (("id", entity.entity_id), *(("name", name) for name in entity.names())):
        if not (text or "").strip():
            raise ValueError(f"entity {entity.entity_id!r} has an empty {label}: {text!r}")


def delete_entities(collection: Collection, entity_ids: Sequence[str]) -> int:
    """Delete entities with all their names; returns the number of names that went."""
    gone = collection.delete_entities(entity_ids)
    if gone:
        _note_counts(collection)
    return gone


def _note_counts(collection: Collection) -> None:
    """Put into the manifest what a collection holds now, unless it is being loaded, and will be counted at the end."""
    manifest = collection.read_manifest()
    if manifest.state == "ready":
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        collection.write_manifest(manifest.model_copy(update=counts))
