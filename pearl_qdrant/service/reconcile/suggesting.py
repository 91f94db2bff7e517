"""Suggestions while a user types: entities, types and properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.names import FoundName
from pearl_qdrant.service.reconcile.answers import type_list
from pearl_qdrant.service.reconcile.properties.catalogue import Catalogue
from pearl_qdrant.service.reconcile.properties.columns import EntityColumns, property_name, with_names
from pearl_qdrant.settings import DEFAULT_LIMIT

SUGGESTED = DEFAULT_LIMIT
"""Suggested entities of an answer; a client asks for more with a cursor."""

LISTED = 50
"""The same of types and properties, of which there are fewer: people look through them."""


async def suggest_entities(handle: CollectionHandle, prefix: str, cursor: int, type_id: str | None) -> dict[str, Any]:
    """Entities with a name, or a word of one, that starts so; first the one that has this very id.

    Raises:
        NotReadyError: If the index of names is not built yet.
    """
    if not prefix.strip():
        return {"result": []}
    of_id = (await handle.call(lambda linker: with_names(linker, [prefix.strip()]))).get(prefix.strip())
    types = [type_id] if type_id else []
    found = await handle.search_names(prefix, types=types, limit=cursor + SUGGESTED)
    records = [_entity_of_id(of_id)] if of_id else []
    records += [_entity(one) for one in found if of_id is None or one.entity_id != of_id.point.entity_id]
    return {"result": records[cursor : cursor + SUGGESTED]}


def suggest_types(catalogue: Catalogue, prefix: str, cursor: int) -> dict[str, Any]:
    """Types that start so, then those with a word that does, then those that contain it; all for an empty prefix."""
    found = _matching(prefix, {one: one for one in catalogue.types})
    return {
        "result": [
            {"id": one, "name": one, "description": count_text(catalogue.types[one])}
            for one in found[cursor : cursor + LISTED]
        ]
    }


def count_text(n_names: int) -> str:
    """How many names have a type."""
    return f"{n_names:,} name{'' if n_names == 1 else 's'}"


def suggest_properties(catalogue: Catalogue, prefix: str, cursor: int) -> dict[str, Any]:
    """Properties whose id or name starts so; all for an empty prefix."""
    found = _matching(prefix, {one: property_name(one) for one in catalogue.properties})
    return {"result": [property_record(one) for one in found[cursor : cursor + LISTED]]}


def property_record(property_id: str) -> dict[str, str]:
    """A property as an object."""
    return {"id": property_id, "name": property_name(property_id)}


def _matching(prefix: str, names: Mapping[str, str]) -> list[str]:
    """The ids that match, the best kind of match first, else in the order given."""
    wanted = prefix.strip().casefold()
    ranks: dict[str, int] = {}
    for one, name in names.items():
        texts = one.casefold(), name.casefold()
        if any(text.startswith(wanted) for text in texts):
            ranks[one] = 0 if wanted not in texts else -1
        elif any(f" {wanted}" in text.replace("_", " ").replace(":", " ") for text in texts):
            ranks[one] = 1
        elif any(wanted in text for text in texts):
            ranks[one] = 2
    return sorted(ranks, key=ranks.__getitem__)


def _entity(found: FoundName) -> dict[str, Any]:
    return _record(found.entity_id, found.canonical_name, found.description, (*found.kb_types, *found.types))


def _entity_of_id(columns: EntityColumns) -> dict[str, Any]:
    point = columns.point
    return _record(point.entity_id, point.canonical_name, point.description, (*point.kb_types, *point.types))


def _record(entity_id: str, name: str, description: str | None, types: tuple[str, ...]) -> dict[str, Any]:
    record: dict[str, Any] = {"id": entity_id, "name": name, "notable": type_list(types)}
    if description:
        record["description"] = description
    return record
