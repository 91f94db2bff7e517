"""Data extension: the values of properties of some entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.service.bodies.limits import Texts, check_number
from pearl_qdrant.service.errors import InvalidRequestError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.reconcile.properties.columns import POPULARITY, EntityColumns, property_name, with_names
from pearl_qdrant.service.settings import ServiceSettings

LIMIT_SETTING: Mapping[str, Any] = {
    "name": "limit",
    "label": "Limit",
    "type": "number",
    "default": 0,
    "help_text": "Most values of a cell; 0 for all.",
}
"""What a user can set for a property."""

MOST_VALUES = 1000
"""No cell has more values."""

CellValue = dict[str, "str | float"]
"""One value: {"str": ...}, {"float": ...}, or an entity as {"id": ..., "name": ...}."""


class _SettingsBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    limit: int = Field(0, ge=0)


class _PropertyBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(min_length=1)
    settings: _SettingsBody | None = None


class _ExtensionBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    ids: Texts
    properties: Annotated[list[_PropertyBody], FailFast()]


@dataclass(frozen=True, slots=True)
class Extension:
    """Which values a client asks for.

    Attributes:
        ids: Of entities.
        limits: Most values of each property, by its id.
    """

    ids: Sequence[str]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Extended:
    """The values.

    Attributes:
        asked: What was asked for.
        rows: The values of each property of each entity, by its id; empty lists for an unknown one.
    """

    asked: Extension
    rows: Mapping[str, Mapping[str, Sequence[CellValue]]]

    @property
    def meta(self) -> list[dict[str, str]]:
        """The properties, in the order asked for."""
        return [{"id": one, "name": property_name(one)} for one in self.asked.limits]

    def record(self) -> dict[str, Any]:
        """The JSON of version 0.2."""
        return {"meta": self.meta, "rows": self.rows}

    def draft_record(self) -> dict[str, Any]:
        """The JSON of the 1.0 draft."""
        # Unknown ids share a row, and do here too.
        drafts = {id(row): [{"id": one, "values": values} for one, values in row.items()] for row in self.rows.values()}
        rows = [{"id": id_, "properties": drafts[id(row)]} for id_, row in self.rows.items()]
        return {"meta": self.meta, "rows": rows}


def read_extension(given: Any, settings: ServiceSettings) -> Extension:
    """What a client asks for.

    Raises:
        InvalidRequestError: If it is not valid.
        LimitError: If it asks for too much.
    """
    try:
        body = _ExtensionBody.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("extend", *map(str, first["loc"])))
        raise InvalidRequestError(
            f'{where}: {first["msg"]}. Send {{"ids": ["Q1"], "properties": [{{"id": "description"}}]}}.', where=where
        ) from error
    check_number(len(body.ids), "max_mentions", settings, "ids")
    check_number(len(body.properties), "max_properties", settings, "properties")
    limits = {one.id: (one.settings.limit if one.settings else 0) or MOST_VALUES for one in body.properties}
    return Extension(list(dict.fromkeys(body.ids)), limits)


async def extend(handle: CollectionHandle, asked: Extension) -> Extended:
    """The values that were asked for."""
    return Extended(asked, await handle.call(lambda linker: _rows(linker, asked)))


def _rows(linker: EntityLinker, asked: Extension) -> dict[str, dict[str, Sequence[CellValue]]]:
    found = with_names(linker, asked.ids)
    linked: dict[str, EntityColumns] = {}
    if (limit := asked.limits.get(LINKS_FIELD)) is not None:
        ids = {link: None for one in found.values() for link in one.values(LINKS_FIELD)[:limit]}
        linked = with_names(linker, list(ids)[: MOST_VALUES * 10])
    # One row for all unknown ids: with 1,000 of them and 50 properties, garbage collection would stop the event loop.
    unknown: dict[str, Sequence[CellValue]] = {one: [] for one in asked.limits}
    return {id_: _row(found[id_], asked, linked) if id_ in found else unknown for id_ in asked.ids}


def _row(
    columns: EntityColumns, asked: Extension, linked: Mapping[str, EntityColumns]
) -> dict[str, Sequence[CellValue]]:
    return {one: _values(columns, one, linked)[: min(limit, MOST_VALUES)] for one, limit in asked.limits.items()}


def _values(columns: EntityColumns, property_id: str, linked: Mapping[str, EntityColumns]) -> list[CellValue]:
    values = columns.values(property_id)
    if property_id == LINKS_FIELD:
        return [{"id": one, "name": linked[one].point.canonical_name if one in linked else one} for one in values]
    if property_id == POPULARITY and columns.point.popularity is not None and POPULARITY not in columns.point.extra:
        return [{"float": columns.point.popularity}]
    return [{"str": one} for one in values]
