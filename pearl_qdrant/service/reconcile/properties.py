"""The properties of entities: which there are, and what a sample of a collection says of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pearl_qdrant.linking.columns import OWN, sample
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.collections import CollectionHandle


def property_name(property_id: str) -> str:
    """What people see of a property."""
    return OWN.get(property_id, property_id)


SHOWN = 150  # Entities of the sample whose values are kept to be shown
KEPT_S = 300.0  # How long a catalogue is used at most, in seconds


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Properties and types of a collection.

    Attributes:
        properties: Number of sampled entities that have each property, most frequent first.
        of_type: The same among the entities of each type.
        types: Number of names of each type, native and coarse, most frequent first.
        values: Some values of each property in the sample, one list for each entity that has it.
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
    properties: Counter[str] = Counter()
    of_type: dict[str, Counter[str]] = {}
    values: dict[str, list[list[str]]] = {}
    for collection in linker.collections:
        counted = collection.type_counts()
        native, coarse = counted.get("kb_types", {}), counted.get("types", {})
        # A native type that is a coarse one, too, is among the coarse types of the same names: they count once.
        types.update({one: max(native.get(one, 0), coarse.get(one, 0)) for one in (*native, *coarse)})
    for columns in sample(linker.collections):
        for property_id in columns.property_ids():
            properties[property_id] += 1
            for type_id in columns.point.filter_types:
                of_type.setdefault(type_id, Counter())[property_id] += 1
            if len(sampled := values.setdefault(property_id, [])) < SHOWN:
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
