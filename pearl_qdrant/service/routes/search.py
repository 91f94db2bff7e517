"""GET /v1/search: names while they are typed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from pearl_qdrant.service.bodies.limits import Limit
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere
from pearl_qdrant.settings import DEFAULT_LIMIT

router = APIRouter(tags=["collections"])

LIMITS = (
    Limit("q", "max_mention_characters", "characters"),
    Limit("limit", "max_limit", "value"),
    Limit("type", "max_types", "items"),
)


class FoundAnswer(BaseModel):
    """An entity that has a name like what was typed."""

    entity_id: str
    kb: str
    canonical_name: str
    name: str = Field(description="The name that was found.")
    match: str = Field(description="name: it is what was typed; prefix: it starts so; slip: it does with one slip.")
    types: list[str]
    kb_types: list[str]
    description: str | None
    popularity: float | None


class SearchAnswer(BaseModel):
    """Entities, best first."""

    collection: str
    results: list[FoundAnswer]


@router.get("/v1/search", response_model=SearchAnswer, responses=declared(404))
async def search(
    collections: CollectionsHere,
    settings: SettingsHere,
    q: Annotated[str, Query(description="What was typed so far.", examples=["new yo"])],
    collection: Annotated[str | None, Query(description="Name of the collection.")] = None,
    type: Annotated[list[str] | None, Query(description="Only entities of this type; may be repeated.")] = None,  # noqa: A002
    limit: Annotated[int, Query(ge=1, description="Maximum number of entities.")] = DEFAULT_LIMIT,
) -> Response:
    """Entities by the beginning of a name or of one of its words, also with a slip: for suggestions while typing."""
    for one, value in zip(LIMITS, (q, limit, type), strict=True):
        one.check(value, settings)
    handle = await collections.get(collection)
    return json_answer(
        {"collection": handle.name, "results": await handle.search_names(q, types=type or (), limit=limit)}
    )
