"""The columns of entities: what a base says of them beside their names, and what a sample of it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pearl_qdrant.linking.editing import points_of
from pearl_qdrant.records import LINKS_FIELD, Candidate
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint, point_id

NAME, ALIASES, DESCRIPTION = "name", "aliases", "description"
TYPES, KB_TYPES, POPULARITY = "types", "kb_types", "popularity"

OWN: Mapping[str, str] = {
    NAME: "Name",
    ALIASES: "Other names",
    DESCRIPTION: "Description",
    KB_TYPES: "Types of the base",
    TYPES: "Coarse types",
    POPULARITY: "Popularity",
    LINKS_FIELD: "Linked entities",
}
"""Properties that are no column of their own in the base, with their names."""

SEPARATOR = "|"  # Joins several values of a column

SAMPLED_NAMES = 2000
"""Names that are read to know the columns. Ids of points are hashes: the first ones are a random sample."""


@dataclass(frozen=True, slots=True)
class EntityColumns:
    """An entity by one of its names, the canonical one if it is there; `aliases` is None if they were not asked for."""

    point: NamePoint
    aliases: tuple[str, ...] | None = None

    def values(self, property_id: str) -> list[str]:
        """The values of a property, as text; empty if there is none."""
        point = self.point
        if property_id in point.extra:
            return [part for one in point.extra[property_id].split(SEPARATOR) if (part := one.strip())]
        own: Mapping[str, Sequence[str]] = {
            NAME: (point.canonical_name,),
            ALIASES: self.aliases or (),
            DESCRIPTION: (point.description,) if point.description else (),
            KB_TYPES: point.kb_types,
            TYPES: point.types,
            POPULARITY: () if point.popularity is None else (f"{point.popularity:.15g}",),
        }
        return list(own.get(property_id, ()))

    def property_ids(self) -> list[str]:
        """The properties that have a value, without its other names."""
        own = [one for one in OWN if one not in self.point.extra and self.values(one)]
        return [*own, *(column for column, value in self.point.extra.items() if value.strip())]


def of_candidates(
    collections: Iterable[Collection], candidates: Iterable[Candidate]
) -> dict[tuple[str, str], EntityColumns]:
    """The columns of candidates, by base and id; read by the id of the point of each."""
    ids = {point_id(one.kb, one.entity_id, one.name): (one.kb, one.entity_id) for one in candidates}
    found: dict[tuple[str, str], EntityColumns] = {}
    for collection in collections:
        for point in collection.get(list(ids)).values():
            found[point.kb, point.entity_id] = EntityColumns(point)
    return found


def with_names(collections: Iterable[Collection], entity_ids: Sequence[str]) -> dict[str, EntityColumns]:
    """The entities of these ids that exist, with all their names; one search of the store."""
    if not entity_ids:
        return {}
    points: dict[str, list[NamePoint]] = {}
    for collection in collections:
        for point in points_of(collection, list(dict.fromkeys(entity_ids))):
            points.setdefault(point.entity_id, []).append(point)
    return {entity_id: _with_aliases(of_entity) for entity_id, of_entity in points.items()}


def _with_aliases(points: Sequence[NamePoint]) -> EntityColumns:
    first = next((point for point in points if point.is_canonical), points[0])
    aliases = sorted({point.name for point in points} - {first.canonical_name})
    return EntityColumns(first, tuple(aliases))


def sample(collections: Iterable[Collection]) -> list[EntityColumns]:
    """The entities of some names of each collection, each once, with those of its other names that were read."""
    entities: dict[tuple[str, str], NamePoint] = {}
    aliases: dict[tuple[str, str], list[str]] = {}
    for collection in collections:
        for point in islice(collection.scroll(), SAMPLED_NAMES):
            entities[point.kb, point.entity_id] = point
            if not point.is_canonical:
                aliases.setdefault((point.kb, point.entity_id), []).append(point.name)
    return [EntityColumns(point, tuple(aliases.get(key, ()))) for key, point in entities.items()]
