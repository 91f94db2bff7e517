"""Mentions of every kind made from the names of a collection, for a calibration without labelled pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pearl_qdrant.linking.mention_kinds import NamedEntity
from pearl_qdrant.linking.mention_kinds.owners import NameOwners
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

MAX_ENTITIES = 5000
"""Size of the random sample of entities that mentions are made from."""

_CHUNK = 256
_NAMES_AN_ENTITY = 40


def sample_entities(collection: Collection, rng: np.random.Generator) -> tuple[list[NamedEntity], NameOwners]:
    """A random sample of the entities with their names, and the owners of all names, from one pass.

    Takes 32 bytes a name: names and ids are kept as 64-bit hashes.
    """
    sample: list[str] = []
    n_seen = 0

    def pairs() -> Iterator[tuple[str, str]]:
        nonlocal n_seen
        for point in collection.scroll():
            if point.is_canonical:
                # Reservoir sampling: entity number n replaces a random one with probability MAX_ENTITIES / n.
                n_seen += 1
                place = len(sample) if len(sample) < MAX_ENTITIES else int(rng.integers(n_seen))
                if place < MAX_ENTITIES:
                    sample[place : place + 1] = [point.entity_id]
            yield point.entity_id, point.name

    owners = NameOwners(pairs())
    found: dict[str, list[NamePoint]] = {}
    for start in range(0, len(sample), _CHUNK):
        for point in collection.find(entity_ids=sample[start : start + _CHUNK], limit=_CHUNK * _NAMES_AN_ENTITY):
            found.setdefault(point.entity_id, []).append(point)
    entities = []
    for entity_id in sample:
        points = sorted(found.get(entity_id, ()), key=lambda point: (not point.is_canonical, point.name))
        # A name that cleaning changes could not be found by its own string.
        names = tuple(point.name for point in points if clean_mention(point.name) == point.name)
        if names and points[0].is_canonical and names[0] == points[0].name:
            entities.append(NamedEntity(entity_id, names, points[0].types))
    return entities, owners
