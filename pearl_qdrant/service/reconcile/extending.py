"""Data extension: the values of properties of some entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.reconcile.properties import POPULARITY, EntityColumns, property_name, with_names
from pearl_qdrant.service.reconcile.queries import MOST_VALUES, Extension

LIMIT_SETTING: Mapping[str, Any] = {
    "name": "limit",
    "label": "Limit",
    "type": "number",
    "default": 0,
    "help_text": "Most values of a cell; 0 for all.",
}
"""What a user can set for a property."""

Row = Mapping[str, Sequence[Mapping[str, str | float]]]
"""The values of each property: {"str": ...}, {"float": ...}, or an entity as {"id": ..., "name": ...}."""


async def extended_rows(handle: CollectionHandle, asked: Extension) -> dict[str, Row]:
    """The rows of entities, by their ids; empty lists for an unknown one."""
    return await handle.call(lambda linker: _rows(linker, asked))


def meta_of(asked: Extension) -> list[dict[str, str]]:
    """The properties, in the order asked for."""
    return [{"id": one, "name": property_name(one)} for one in asked.limits]


def draft_rows(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """The rows in the form of the 1.0 draft; unknown ids share a row, and do here too."""
    drafts = {id(row): [{"id": one, "values": values} for one, values in row.items()] for row in rows.values()}
    return [{"id": id_, "properties": drafts[id(row)]} for id_, row in rows.items()]


def _rows(linker: EntityLinker, asked: Extension) -> dict[str, Row]:
    found = with_names(linker, asked.ids)
    linked: dict[str, EntityColumns] = {}
    if (limit := asked.limits.get(LINKS_FIELD)) is not None:
        ids = {link: None for one in found.values() for link in one.values(LINKS_FIELD)[:limit]}
        linked = with_names(linker, list(ids)[: MOST_VALUES * 10])
    # One row for all unknown ids: with 1,000 of them and 50 properties, garbage collection would stop the event loop.
    unknown: Row = {one: [] for one in asked.limits}
    return {
        id_: {one: _values(found[id_], one, linked)[: min(limit, MOST_VALUES)] for one, limit in asked.limits.items()}
        if id_ in found
        else unknown
        for id_ in asked.ids
    }


def _values(
    columns: EntityColumns, property_id: str, linked: Mapping[str, EntityColumns]
) -> list[Mapping[str, str | float]]:
    values = columns.values(property_id)
    if property_id == LINKS_FIELD:
        return [{"id": one, "name": linked[one].point.canonical_name if one in linked else one} for one in values]
    if property_id == POPULARITY and columns.point.popularity is not None and POPULARITY not in columns.point.extra:
        return [{"float": columns.point.popularity}]
    return [{"str": one} for one in values]
