"""The properties of entities: which there are, and what a sample of a collection says of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pearl_qdrant.linking.editing import points_of
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD, Candidate
from pearl_qdrant.service.collections import CollectionHandle
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


def property_name(property_id: str) -> str:
    """What people see of a property."""
    return OWN.get(property_id, property_id)


def of_candidates(linker: EntityLinker, candidates: Iterable[Candidate]) -> dict[tuple[str, str], EntityColumns]:
    """The columns of candidates, by base and id; read by the id of the point of each."""
    ids = {point_id(one.kb, one.entity_id, one.name): (one.kb, one.entity_id) for one in candidates}
    found: dict[tuple[str, str], EntityColumns] = {}
    for collection in linker.collections:
        for point in collection.get(list(ids)).values():
            found[point.kb, point.entity_id] = EntityColumns(point)
    return found


def with_names(linker: EntityLinker, entity_ids: Sequence[str]) -> dict[str, EntityColumns]:
    """The entities of these ids that exist, with all their names; one search of the store."""
    if not entity_ids:
        return {}
    points: dict[str, list[NamePoint]] = {}
    for collection in linker.collections:
        for point in points_of(collection, list(dict.fromkeys(entity_ids))):
            points.setdefault(point.entity_id, []).append(point)
    return {entity_id: _with_aliases(of_entity) for entity_id, of_entity in points.items()}


def _with_aliases(points: Sequence[NamePoint]) -> EntityColumns:
    first = next((point for point in points if point.is_canonical), points[0])
    aliases = sorted({point.name for point in points} - {first.canonical_name})
    return EntityColumns(first, tuple(aliases))


SAMPLED_NAMES = 2000
"""Names that are read to know the properties. Ids of points are hashes: the first ones are a random sample."""

COMPARED = 150  # Entities of the sample that a value is compared with
KEPT_S = 300.0  # How long a catalogue is used at most, in seconds


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Properties and types of a collection.

    Attributes:
        properties: Number of sampled entities that have each property, most frequent first.
        of_type: The same among the entities of each type.
        types: Number of names of each type, native and coarse, most frequent first.
        values: Values of each property in the sample, one list for each entity that has it.
    """

    properties: Mapping[str, int]
    of_type: Mapping[str, Mapping[str, int]]
    types: Mapping[str, int]
    values: Mapping[str, Sequence[Sequence[str]]]

    def properties_of(self, type_id: str | None) -> list[str]:
        """Properties that entities of a type have; all where the type is not in the sample."""
        found = self.of_type.get(type_id or "")
        return list(found) if found else list(self.properties)


def read_catalogue(linker: EntityLinker) -> Catalogue:
    """Read a sample of the names, and count the types."""
    types: Counter[str] = Counter()
    entities: dict[tuple[str, str], NamePoint] = {}
    aliases: dict[tuple[str, str], list[str]] = {}
    for collection in linker.collections:
        counted = collection.type_counts()
        native, coarse = counted.get("kb_types", {}), counted.get("types", {})
        # A native type that is a coarse one, too, is among the coarse types of the same names: they count once.
        types.update({one: max(native.get(one, 0), coarse.get(one, 0)) for one in (*native, *coarse)})
        for point in islice(collection.scroll(), SAMPLED_NAMES):
            entities[point.kb, point.entity_id] = point
            if not point.is_canonical:
                aliases.setdefault((point.kb, point.entity_id), []).append(point.name)
    properties: Counter[str] = Counter()
    of_type: dict[str, Counter[str]] = {}
    values: dict[str, list[list[str]]] = {}
    for key, point in entities.items():
        columns = EntityColumns(point, tuple(aliases.get(key, ())))
        for property_id in columns.property_ids():
            properties[property_id] += 1
            for type_id in point.filter_types:
                of_type.setdefault(type_id, Counter())[property_id] += 1
            if len(sampled := values.setdefault(property_id, [])) < COMPARED:
                sampled.append(columns.values(property_id))
    return Catalogue(
        _by_count(properties), {one: _by_count(of) for one, of in of_type.items()}, _by_count(types), values
    )


def _by_count(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


async def catalogue_of(handle: CollectionHandle) -> Catalogue:
    """The catalogue of a collection; read when it is first asked for, where the collection has changed, and each
    `KEPT_S`.
    """
    state = handle.manifest, time.monotonic() // KEPT_S
    return await handle.kept("catalogue", state, lambda: handle.call(read_catalogue))
