"""Learned names that became names of the base: chosen by their counts, written, and removed by an undo.

Each is a point like any other name, and its extra payload says which batch added it. So an update of the base does not
take it for a retired name, a name that the base itself has later is not removed by an undo, and a collection that is
made again gets them again (`sync_aliases`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.editing import encoded_points, names_by_entity, store_counts
from pearl_qdrant.linking.learned.counts import Counts, spelling_key
from pearl_qdrant.linking.learned.ledger import LearnedRow, read_ledger
from pearl_qdrant.records import Entity
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint, entity_from_points, point_id

MARK = "learned_in"  # extra payload field of a learned alias: the key of the batch that added it
_BATCH = 1024  # names encoded and written at once


def choose_aliases(collection: Collection, counts: Counts, at_least: int) -> list[tuple[str, str]]:
    """Pairs of name and entity id that deserve to be names of the base, sorted.

    That is the most frequent form of a name that meant the entity so often, and more often than anything else, unless
    the entity has a name of its spelling key.
    """
    chosen = [pair for rows in counts.rows() if (pair := _clear_winner(rows, at_least)) is not None]
    known = names_by_entity(collection, {entity_id for _, entity_id in chosen})
    return sorted(
        (name, entity_id)
        for name, entity_id in chosen
        if entity_id in known and spelling_key(name) not in {spelling_key(one.name) for one in known[entity_id]}
    )


def _clear_winner(rows: Sequence[LearnedRow], at_least: int) -> tuple[str, str] | None:
    """The most frequent form of a name, and the entity that it meant often enough; None if there is none."""
    by_entity: Counter[str | None] = Counter()
    for row in rows:
        by_entity[row.entity_id] += row.count
    (best, n), *others = by_entity.most_common(2)
    if best is None or n < at_least or (others and others[0][1] == n):
        return None
    forms: Counter[str] = Counter()
    for row in rows:
        if row.entity_id == best:
            forms[row.mention] += row.count
    return max(forms, key=lambda form: (forms[form], form)), best


def alias_point_ids(collection: Collection) -> frozenset[str]:
    """Ids of the points of all learned aliases; most collections have none."""
    return frozenset(_point_id(collection, pair) for pair in read_ledger(collection).aliases())


def sync_aliases(collection: Collection, encoder: Encoder) -> None:
    """Make the learned aliases in a collection those that its ledger has: add, refresh and remove points.

    It is called after each edit of the ledger, and after each load. Raises StoreError as the collection does.
    """
    ledger = read_ledger(collection)
    ever = {pair for batch in ledger.batches for pair in batch.aliases}
    if not ever:
        return
    wanted = ledger.aliases()
    entities = {
        entity_id: entity_from_points(own)
        for entity_id, points in names_by_entity(collection, {entity_id for _, entity_id in wanted}).items()
        if (own := [point for point in points if MARK not in point.extra])
    }
    stored = collection.get([_point_id(collection, pair) for pair in sorted(ever)])
    added: list[tuple[Entity, str]] = []
    retired: set[str] = set()
    for pair in sorted(ever):
        point = stored.get(_point_id(collection, pair))
        entity = entities.get(pair[1]) if pair in wanted else None
        if entity is None:
            if point is not None and MARK in point.extra:
                retired.add(point.id)
        elif point is None or (MARK in point.extra and _is_outdated(point, entity)):
            added.append((entity, pair[0]))
    for start in range(0, len(added), _BATCH):
        points, vectors, encodable = encoded_points(collection, encoder, added[start : start + _BATCH])
        marked = [replace(one, extra={**one.extra, MARK: wanted[one.name, one.entity_id]}) for one in points]
        collection.upsert(marked, vectors, encodable)
    collection.delete_points(retired)
    if added or retired:
        store_counts(collection)


def _point_id(collection: Collection, pair: tuple[str, str]) -> str:
    return point_id(collection.manifest.kb, pair[1], pair[0])


def _is_outdated(point: NamePoint, entity: Entity) -> bool:
    """Whether the entity of a learned alias has changed since it was written."""
    fields = attrgetter("canonical_name", "kb_types", "types", "description", "popularity")
    return bool(fields(point) != fields(entity))
