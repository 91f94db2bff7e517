"""GET /v1/collections: what is served."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere

router = APIRouter(tags=["collections"])


class CollectionAnswer(BaseModel):
    """A collection, as `pearl-qdrant collections list` shows it."""

    collection: str
    state: str
    kb: str | None
    kb_version: str | None
    entities: int | None
    names: int | None
    model: str | None
    calibrated: bool
    problem: str | None


class CollectionsAnswer(BaseModel):
    """All collections that are served."""

    collections: list[CollectionAnswer]


@router.get("/v1/collections", response_model=CollectionsAnswer, responses=declared())
async def list_collections(collections: CollectionsHere) -> Response:
    """The collections that are served, with state, base, counts and model."""
    return json_answer({"collections": [one.to_json() for one in await collections.summaries()]})
