"""Entities to points and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pearl_qdrant.encoder.protocol import Encoded
from pearl_qdrant.encoder.type_head import predict_types
from pearl_qdrant.records import Entity
from pearl_qdrant.store.schema import NamePoint

MAX_NAMES = 10_000
"""More names than any entity has: Wikidata's longest list of aliases has a few thousand."""


def name_points(kb: str, names: Iterable[tuple[Entity, str]], encoded: Encoded) -> list[NamePoint]:
    """One point for each name.

    Args:
        kb: Short name of the base.
        names: Entities and names of theirs; in this order the rows of `encoded`.
        encoded: n rows; an unencodable name gets no phrase type.

    Returns:
        n points.
    """
    typed = None if encoded.type_probabilities is None else predict_types(encoded.type_probabilities)
    encodable = encoded.encodable.tolist()
    points: list[NamePoint] = []
    for row, (entity, name) in enumerate(names):
        # A name without a dense vector has no phrase type either: the head saw nothing of it.
        kind = typed if typed is not None and encodable[row] else None
        points.append(
            NamePoint(
                kb=kb,
                entity_id=entity.entity_id,
                name=name,
                canonical_name=entity.canonical_name,
                is_canonical=name == entity.canonical_name,
                kb_types=entity.kb_types,
                types=entity.types,
                description=entity.description,
                phrase_type=kind.phrase_types[row] if kind else None,
                lexical_class=kind.lexical_classes[row] if kind else None,
                predicted_type=kind.predicted_types[row] if kind else None,
                type_probability=kind.type_probabilities[row] if kind else None,
                extra=entity.extra,
            )
        )
    return points


def names_of(entities: Iterable[Entity]) -> Iterator[tuple[Entity, str]]:
    """Each name of each entity, with its entity."""
    for entity in entities:
        for name in entity.names():
            yield entity, name


def plain_points(kb: str, entities: Iterable[Entity]) -> list[NamePoint]:
    """One point for each name of each entity, without phrase types."""
    return [
        NamePoint(
            kb=kb,
            entity_id=entity.entity_id,
            name=name,
            canonical_name=entity.canonical_name,
            is_canonical=name == entity.canonical_name,
            kb_types=entity.kb_types,
            types=entity.types,
            description=entity.description,
            extra=entity.extra,
        )
        for entity, name in names_of(entities)
    ]


def entity_from_points(points: Sequence[NamePoint]) -> Entity:
    """The entity that all these points belong to; at least one point."""
    first = next((p for p in points if p.is_canonical), points[0])
    aliases = sorted({p.name for p in points} - {first.canonical_name})
    return Entity(
        entity_id=first.entity_id,
        canonical_name=first.canonical_name,
        aliases=tuple(aliases),
        kb_types=first.kb_types,
        types=first.types,
        description=first.description,
        extra=dict(first.extra),
    )
