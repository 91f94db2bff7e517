"""GET /v1/entities/{kb}/{id}: an entity with all its names."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from pearl_qdrant.errors import EntityNotFoundError
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere

router = APIRouter(tags=["collections"])


class EntityAnswer(BaseModel):
    """An entity."""

    collection: str
    kb: str
    entity_id: str
    canonical_name: str
    aliases: list[str]
    types: list[str]
    kb_types: list[str]
    description: str | None
    extra: dict[str, str]
    popularity: float | None


@router.get("/v1/entities/{kb}/{entity_id:path}", response_model=EntityAnswer, responses=declared(404))
async def entity(kb: str, entity_id: str, collections: CollectionsHere, collection: str | None = None) -> Response:
    """An entity by the short name of its base and its id, with all names, types and description."""
    handles = await collections.of_base(kb, collection)
    for handle in handles:
        try:
            found = await handle.entity(entity_id)
        except EntityNotFoundError:
            continue
        record: dict[str, Any] = {"collection": handle.name, "kb": kb}
        record |= {name: getattr(found, name) for name in EntityAnswer.model_fields if name not in record}
        return json_answer({**record, "extra": dict(found.extra)})
    raise EntityNotFoundError(entity_id, [handle.name for handle in handles] or [f"base {kb}"])
