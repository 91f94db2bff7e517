"""GET /v1/search: names while they are typed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from pearl_qdrant.service.bodies.limits import Limit
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere
from pearl_qdrant.settings import DEFAULT_LIMIT


class QuickRoute(APIRoute):
    """Reads a plain query itself; FastAPI reads all others, and says what is wrong with them.

    FastAPI takes longer to read the parameters than the search takes, and people send one request a letter.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        thorough = super().get_route_handler()

        async def handler(request: Request) -> Response:
            given = read_plain_query(request.scope["query_string"])
            if given is None:
                return await thorough(request)
            state = request.app.state
            return await search(state.collections, state.settings, **given)

        return handler


def read_plain_query(query: bytes) -> dict[str, Any] | None:
    """The parameters of `search`; None if one is missing, unknown, given twice or no plain number."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name == "type":
            found.setdefault("type", []).append(value)
        elif name in found:
            return None
        elif name in ("q", "collection"):
            found[name] = value
        elif name == "limit" and value.isascii() and value.isdigit() and len(value) < _DIGITS and int(value) > 0:
            found["limit"] = int(value)
        else:
            return None
    return found if "q" in found else None


_DIGITS = 10
"""A number with as many is none that anybody asks for."""

router = APIRouter(tags=["collections"], route_class=QuickRoute)

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
