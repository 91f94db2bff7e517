"""The paths that look something up.

GET /v1/search                              names while they are typed
GET /v1/entities/{kb}/{id}                  an entity with all its names
GET /v1/collections, /v1/collections/NAME   what is served; how one of them answers
GET /health/live, /health/ready             for those who start, stop and balance services; they need no key
GET /metrics                                for Prometheus
GET /docs                                   what there is to ask, as a page that loads nothing
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from html import escape
from itertools import islice
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from pearl_qdrant.errors import EntityNotFoundError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Entity
from pearl_qdrant.service.answers import CollectionsHere, MetricsHere, SettingsHere, declared, json_answer, router_of
from pearl_qdrant.service.names import FoundName
from pearl_qdrant.service.reconcile.router import page
from pearl_qdrant.service.settings import check_fields
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_PASSAGE_THRESHOLD

router = router_of("collections")
health = router_of("health")


class SearchAnswer(BaseModel):
    """Entities, best first."""

    collection: str
    results: list[FoundName]


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
    check_fields(settings, q=q, limit=limit, type=type)
    handle = await collections.get(collection)
    return json_answer(
        {"collection": handle.name, "results": await handle.search_names(q, types=type or (), limit=limit)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityAnswer(Entity):
    """An entity, with its collection and base."""

    collection: str
    kb: str


@router.get("/v1/entities/{kb}/{entity_id:path}", response_model=EntityAnswer, responses=declared(404))
async def entity(kb: str, entity_id: str, collections: CollectionsHere, collection: str | None = None) -> Response:
    """An entity by the short name of its base and its id, with all names, types and description."""
    names = [collection] if collection else await collections.names()
    handles = [handle for name in names if (handle := await collections.get(name)).kb == kb]
    for handle in handles:
        try:
            found = await handle.call(lambda linker: linker.entity(entity_id))
        except EntityNotFoundError:
            continue
        record = {one.name: getattr(found, one.name) for one in fields(found)}
        return json_answer({"collection": handle.name, "kb": kb, **record})
    raise EntityNotFoundError(entity_id, [handle.name for handle in handles] or [f"base {kb}"])


_EXAMPLES = 5
_READ = 300  # Names among which examples are looked for. Ids of points are hashes: the first ones are a random sample.
_LONGEST = 40  # Characters of an example


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


class HealthAnswer(BaseModel):
    """Whether the service works; a problem says why not."""

    status: str
    problems: list[str] = []


@health.get("/health/live", response_model=HealthAnswer)
async def live() -> Response:
    """The process answers."""
    return json_answer({"status": "live", "problems": []})


@health.get("/health/ready", response_model=HealthAnswer, responses={503: {"model": HealthAnswer}})
async def ready(collections: CollectionsHere) -> Response:
    """Every collection that is served is open, and the store answers."""
    problems = await collections.problems()
    status = "not ready" if problems else "ready"
    return json_answer({"status": status, "problems": problems}, status=503 if problems else 200)


_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@health.get("/metrics", response_class=Response, responses={**_TEXT, **declared()})
async def metrics(measured: MetricsHere) -> Response:
    """Queues, batches, times and answers, of all workers, in Prometheus' text format."""
    return Response(await asyncio.to_thread(measured.text), media_type=CONTENT_TYPE_LATEST)


_EXAMPLE = """curl -s ADDRESS/v1/link -H 'Content-Type: application/json' -d '{"mentions": ["NYTimes"]}'"""


@health.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """The paths of the service; the schema has their parameters, limits and answers."""
    rows = [
        f"<dt>{escape(method.upper())} {escape(path)}</dt><dd>{escape(operation.get('description', ''))}</dd>"
        for path, operations in request.app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    example = escape(_EXAMPLE.replace("ADDRESS", str(request.base_url).rstrip("/")))
    return page(
        "pearl-qdrant: paths",
        f'<h1>Paths</h1><p>Parameters, limits, answers and examples: <a href="openapi.json">openapi.json</a></p>'
        f"<p><code>{example}</code></p><dl>{''.join(rows)}</dl>",
    )
