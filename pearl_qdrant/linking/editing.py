"""Adding and deleting a few entities of a collection, effective at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from reprlib import repr as short_repr

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InvalidEntityError, StoreError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import MAX_NAMES, name_points, names_of
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

_BATCH = 1024


def add_entities(collection: Collection, encoder: Encoder, entities: Iterable[Entity]) -> int:
    """Write entities; one of the same id loses the names that it no longer has. Returns the number of names written.

    Raises:
        InvalidEntityError: If something is no entity, or has an empty id or name; those before it in batches of 1,024
            are written.
    """
    written = 0
    try:
        for batch in _batches(entities):
            encoded = encoder.encode([name for entity in batch for name in entity.names()])
            points = name_points(collection.manifest.kb, names_of(batch), encoded)
            old = points_of(collection, [e.entity_id for e in batch])
            collection.upsert(points, encoded.vectors, np.asarray(encoded.encodable))
            collection.delete_points({p.id for p in old} - {p.id for p in points})
            written += len(points)
    except StoreError:
        raise  # it would take no counts either
    except BaseException:
        if written:
            _note_counts(collection)
        raise
    if written:
        _note_counts(collection)
    return written


def _batches(entities: Iterable[Entity]) -> Iterator[list[Entity]]:
    """Checked entities, each id once in a batch: as its last entity has it."""
    if isinstance(entities, (str, bytes, Entity)) or not isinstance(entities, Iterable):
        raise InvalidEntityError(f"add takes a list of entities, not {_shown(entities)}: write [Entity('id', 'name')]")
    remaining = iter(entities)
    while batch := list(islice(remaining, _BATCH)):
        for entity in batch:
            check_entity(entity)
        yield list({entity.entity_id: entity for entity in batch}.values())


def check_entity(entity: object) -> None:
    """Refuse what is not an entity as readers make them.

    Raises:
        InvalidEntityError: If it is no `Entity`, a part of it is of the wrong type or no valid Unicode, or its id or a
            name is empty.
    """
    if not isinstance(entity, Entity):
        raise InvalidEntityError(f"add takes entities, not {_shown(entity)}: write Entity('id', 'name')")
    whose = f"of entity {short_repr(entity.entity_id)}"
    for label, texts in (("aliases", entity.aliases), ("kb_types", entity.kb_types), ("types", entity.types)):
        if isinstance(texts, (str, bytes)):
            raise InvalidEntityError(f"{label} {whose} is a tuple of texts, not the string {short_repr(texts)}")
        if not isinstance(texts, Sequence):
            raise InvalidEntityError(f"{label} {whose} is a tuple of texts, not {_shown(texts)}")
    if not isinstance(entity.extra, Mapping):
        raise InvalidEntityError(f"extra {whose} is a mapping of texts, not {_shown(entity.extra)}")
    for label, text in (("id", entity.entity_id), *(("name", name) for name in entity.names())):
        _check_text(text, label, whose)
        if not text.strip():
            raise InvalidEntityError(f"entity {entity.entity_id!r} has an empty {label}: {text!r}")
    for text in (*entity.kb_types, *entity.types):
        _check_text(text, "type", whose)
    if entity.description is not None:
        _check_text(entity.description, "description", whose)


def _check_text(text: object, label: str, whose: str) -> None:
    """Refuse what is no text, or none that can be stored."""
    if not isinstance(text, str):
        raise InvalidEntityError(f"a {label} {whose} is no text but {_shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEntityError(
            f"a {label} {whose} holds a lone surrogate at character {error.start}, which is no valid text: "
            f"{text[:40]!a}. Decode its source with errors='replace'"
        ) from error


def _shown(value: object) -> str:
    return f"{type(value).__name__} {short_repr(value)}"


def points_of(collection: Collection, entity_ids: Sequence[str]) -> list[NamePoint]:
    """All names of some entities, however many there are."""
    limit = MAX_NAMES
    while len(found := collection.find(entity_ids=entity_ids, limit=limit)) == limit:
        limit *= 4
    return found


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
