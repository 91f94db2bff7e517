"""Adds and deletes a few entities of a collection, effective at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from reprlib import repr as short_repr

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, Encoder, FloatArray
from pearl_qdrant.errors import InvalidEntityError, StoreError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import MAX_NAMES, NamePoint, name_points, names_of

_BATCH = 1024
_CHUNK = 256  # entities read at once


class EntityBatches:
    """Checked entities in batches of 1,024, read once; an iteration begins with the batch that was not written.

    Within a batch, the last entity of an id replaces earlier ones.

    Attributes:
        written: Names written so far.
    """

    def __init__(self, entities: Iterable[Entity]) -> None:
        if isinstance(entities, (str, bytes, Entity)) or not isinstance(entities, Iterable):
            raise InvalidEntityError(
                f"add takes a list of entities, not {_shown(entities)}: pass [Entity('id', 'name')]"
            )
        self._remaining = iter(entities)
        self._unwritten: list[Entity] = []
        self.written = 0

    def __iter__(self) -> Iterator[list[Entity]]:
        """Yield batches; asking for the next one says that the last one is written."""
        while batch := self._unwritten or self._read():
            self._unwritten = batch
            yield batch
            self._unwritten = []

    def _read(self) -> list[Entity]:
        batch = list(islice(self._remaining, _BATCH))
        for entity in batch:
            check_entity(entity)
        return list({entity.entity_id: entity for entity in batch}.values())


def add_entities(collection: Collection, encoder: Encoder, batches: EntityBatches) -> int:
    """Write entities, replacing those with the same id; returns the number of names written.

    If the collection was moved, another call goes on in the new version with the batch that was not written. Raises
    CollectionMovedError if another version took the collection's place; InvalidEntityError if an item is not an entity,
    or has an empty id or name. The batches before it are written by then.
    """
    try:
        for batch in batches:
            points, vectors, encodable = encoded_points(collection, encoder, names_of(batch))
            old = points_of(collection, [e.entity_id for e in batch])
            collection.upsert(points, vectors, encodable)
            collection.delete_points({p.id for p in old} - {p.id for p in points})
            batches.written += len(points)
    except StoreError:
        raise  # the store would not accept the counts either
    except BaseException:
        if batches.written:
            store_counts(collection, edited=True)
        raise
    if batches.written:
        store_counts(collection, edited=True)
    return batches.written


def check_entity(entity: object) -> None:
    """Check the types and texts of an entity that a caller made. Raises InvalidEntityError if it is not an `Entity`, a
    field has the wrong type or is not valid Unicode, or the id or a name is empty.
    """
    if not isinstance(entity, Entity):
        raise InvalidEntityError(f"add takes entities, not {_shown(entity)}: pass Entity('id', 'name')")
    owner = f"of entity {short_repr(entity.entity_id)}"
    for label, texts in (("aliases", entity.aliases), ("kb_types", entity.kb_types), ("types", entity.types)):
        if isinstance(texts, (str, bytes)):
            raise InvalidEntityError(f"{label} {owner} is a tuple of strings, not the string {short_repr(texts)}")
        if not isinstance(texts, Sequence):
            raise InvalidEntityError(f"{label} {owner} is a tuple of strings, not {_shown(texts)}")
    if not isinstance(entity.extra, Mapping):
        raise InvalidEntityError(f"extra {owner} is a mapping of strings, not {_shown(entity.extra)}")
    for label, text in (("id", entity.entity_id), *(("name", name) for name in entity.names())):
        _check_text(text, label, owner)
        if not text.strip():
            raise InvalidEntityError(f"entity {entity.entity_id!r} has an empty {label}: {text!r}")
    for text in (*entity.kb_types, *entity.types):
        _check_text(text, "type", owner)
    if entity.description is not None:
        _check_text(entity.description, "description", owner)
    _check_popularity(entity.popularity, owner)


def _check_text(text: object, label: str, owner: str) -> None:
    """Refuse anything that is not a string of valid Unicode, which cannot be stored."""
    if not isinstance(text, str):
        raise InvalidEntityError(f"a {label} {owner} is not text but {_shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEntityError(
            f"a {label} {owner} has a lone surrogate at character {error.start}, which is not valid text: "
            f"{text[:40]!a}. Decode its source with errors='replace'"
        ) from error


def _check_popularity(popularity: object, owner: str) -> None:
    if popularity is None:
        return
    is_number = isinstance(popularity, (int, float)) and not isinstance(popularity, bool)
    if not is_number or not 0 <= popularity < math.inf:  # type: ignore[operator]
        raise InvalidEntityError(f"the popularity {owner} is no finite number of at least 0: {_shown(popularity)}")


def _shown(value: object) -> str:
    return f"{type(value).__name__} {short_repr(value)}"


def encoded_points(
    collection: Collection, encoder: Encoder, names: Iterable[tuple[Entity, str]]
) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """The points of names of entities, their vectors, and which of them have one: what a collection is given."""
    pairs = list(names)
    encoded = encoder.encode([name for _, name in pairs])
    points = name_points(collection.manifest.kb, pairs, encoded)
    return points, encoded.vectors, np.asarray(encoded.encodable)


def names_by_entity(collection: Collection, entity_ids: Iterable[str]) -> dict[str, list[NamePoint]]:
    """The names of some entities; entities that do not exist are left out."""
    found: dict[str, list[NamePoint]] = {}
    ids = sorted(entity_ids)
    for start in range(0, len(ids), _CHUNK):
        for point in points_of(collection, ids[start : start + _CHUNK]):
            found.setdefault(point.entity_id, []).append(point)
    return found


def points_of(collection: Collection, entity_ids: Sequence[str]) -> list[NamePoint]:
    """All names of some entities."""
    limit = MAX_NAMES
    # A full answer may be cut off: ask again with a larger limit.
    while len(found := collection.find(entity_ids=entity_ids, limit=limit)) == limit:
        limit *= 4
    return found


def delete_entities(collection: Collection, entity_ids: Sequence[str]) -> int:
    """Delete entities with all their names; returns the number of deleted names."""
    n_deleted = collection.delete_entities(entity_ids)
    if n_deleted:
        store_counts(collection, edited=True)
    return n_deleted


def store_counts(collection: Collection, **changes: object) -> None:
    """Store the counts, and changes of other fields; not while a load is incomplete, since it counts at its end."""
    manifest = collection.read_manifest()
    if manifest.state == "ready":
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        collection.write_manifest(manifest.model_copy(update={**changes, **counts}))
