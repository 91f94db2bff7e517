"""GET /v1/collections: what is served; /v1/collections/NAME: how one of them answers."""

from __future__ import annotations

from itertools import islice

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere
from pearl_qdrant.settings import DEFAULT_PASSAGE_THRESHOLD

router = APIRouter(tags=["collections"])

_EXAMPLES = 5
_READ = 300
"""Names among which examples are looked for. Ids of points are hashes: the first ones are a random sample."""

_LONGEST = 40
"""Characters of an example."""


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


class DefaultsAnswer(BaseModel):
    """What a collection takes where a request says nothing, and what may be asked."""

    collection: str
    threshold: float = Field(description="Least probability of a link.")
    passage_threshold: float = Field(description="The same of a mention in a text.")
    examples: list[str] = Field(description="Some of its names, those of popular entities first.")


@router.get("/v1/collections/{collection}", response_model=DefaultsAnswer, responses=declared(404))
async def collection_defaults(collection: str, collections: CollectionsHere) -> Response:
    """The thresholds of a collection, and some of its names."""
    handle = await collections.get(collection)
    thresholds = {"threshold": handle.linker.calibration.threshold, "passage_threshold": DEFAULT_PASSAGE_THRESHOLD}
    return json_answer({"collection": handle.name, **thresholds, "examples": await handle.call(_examples)})


def _examples(linker: EntityLinker) -> list[str]:
    """Names of different entities, other names before canonical ones: they show what linking is for."""
    read = [point for point in islice(linker.collections[0].scroll(), _READ) if len(point.name) <= _LONGEST]
    read.sort(key=lambda point: (-(point.popularity or 0), point.is_canonical))
    found: dict[str, str] = {}
    for point in read:
        found.setdefault(point.entity_id, point.name)
    return list(found.values())[:_EXAMPLES]
