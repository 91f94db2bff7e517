"""Make a single entity, as the readers do: clean aliases, and coarse types from native ones."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ingest.base.type_map import TypeMap
from pearl_qdrant.errors import InvalidEntityError
from pearl_qdrant.records import Entity


def make_entity(
    entity_id: str,
    name: str,
    *,
    aliases: Iterable[str] = (),
    kb_types: Iterable[str] = (),
    description: str | None = None,
    popularity: float | None = None,
    type_map: TypeMap | None = None,
) -> Entity:
    """Make an entity to add to a collection.

    Args:
        entity_id: Id within the base.
        name: Canonical name.
        aliases: Other names; blank and repeated ones are skipped.
        kb_types: Native types of the base.
        description: One sentence about the entity.
        popularity: How well known it is, finite and >= 0, in the unit of the base.
        type_map: Maps native types to coarse ones; None: the table that ships.

    Raises:
        InvalidEntityError: If the id or the name is empty, or the popularity is not finite or below 0.
    """
    if not entity_id.strip() or not name.strip():
        raise InvalidEntityError("An entity needs an id and a name.")
    if popularity is not None and not 0 <= popularity < math.inf:
        raise InvalidEntityError(f"The popularity of an entity is a finite number of at least 0, not {popularity}.")
    native = tuple(kb_types)
    return Entity(
        entity_id=entity_id,
        canonical_name=name,
        aliases=tuple(alias for alias in dict.fromkeys(aliases) if alias.strip() and alias != name),
        kb_types=native,
        types=(type_map or TypeMap.load()).map_types(native),
        description=description,
        popularity=popularity,
    )
