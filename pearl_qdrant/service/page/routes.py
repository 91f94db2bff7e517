"""The page at /: its files, and what it asks beside the API: settings, types and maps of collections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from pearl_qdrant._version import __version__
from pearl_qdrant.service.answers import declared, json_answer
from pearl_qdrant.service.limits import check_fields
from pearl_qdrant.service.page.maps import DEFAULT_SIZE, MapPointAnswer
from pearl_qdrant.service.requests import CollectionsHere, SettingsHere, router_of
from pearl_qdrant.settings import DEFAULT_LIMIT

if TYPE_CHECKING:
    from starlette.types import Scope

FOLDER = Path(__file__).resolve().parent / "static"

PREFIX = "/page"
"""Where the files are; `/` itself is `index.html`."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # A name can never become markup: the browser refuses every assignment of HTML.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",  # asked again by ETag, so that an upgrade shows at the next load
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        return _guarded(await super().get_response(path, scope))


def _guarded(answer: Response) -> Response:
    answer.headers.update(HEADERS)
    return answer


def mount_files(app: FastAPI) -> None:
    """Answer `/` and the paths below `PREFIX` with the files of the page."""
    app.mount(PREFIX, _Files(directory=FOLDER), name="page")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Any:
        return _guarded(FileResponse(FOLDER / "index.html", media_type="text/html; charset=utf-8"))


router = router_of("collections")

_MAP_WAIT_S = 5.0
"""A client waits so long for a map that is being made; many give up after ten seconds."""


class TypeCount(BaseModel):
    """A type, and how many names have it."""

    type: str
    names: int


class TypesAnswer(BaseModel):
    """Types of a collection, the most frequent first."""

    collection: str
    types: list[TypeCount] = Field(description="Coarse types; the predicted ones where the base gives none.")
    kb_types: list[TypeCount] = Field(description="Types of the base itself.")


class MapAnswer(BaseModel):
    """A sample of a collection's entities on a plane: those with near vectors lie near each other."""

    collection: str
    kb: str
    method: str = Field(description="How the entities are placed: t-sne or pca.", examples=["t-sne"])
    points: list[MapPointAnswer]


@router.get(f"{PREFIX}/settings", include_in_schema=False)
async def page_settings(settings: SettingsHere) -> Response:
    """Limits of the service, and whether it wants a key and allows writing; it holds nothing of the data."""
    limits = ("allow_writing", "max_mentions", "max_mention_characters", "max_text_characters")
    record = {name: getattr(settings, name) for name in limits}
    limit = min(DEFAULT_LIMIT, settings.max_limit)
    return json_answer({"version": __version__, "needs_key": bool(settings.api_keys), "limit": limit, **record})


@router.get("/v1/types", response_model=TypesAnswer, responses=declared(404))
async def types(collections: CollectionsHere, collection: str | None = None) -> Response:
    """The types that the names of a collection have, with the number of names."""
    handle = await collections.get(collection)
    counts = await handle.call(lambda linker: linker.collections[0].type_counts())
    coarse = counts.get("types") or counts.get("predicted_type") or {}
    native = counts.get("kb_types") or {}
    return json_answer({"collection": handle.name, "types": _counted(coarse), "kb_types": _counted(native)})


@router.get("/v1/map", response_model=MapAnswer, responses=declared(404))
async def entity_map(
    request: Request,
    collections: CollectionsHere,
    settings: SettingsHere,
    collection: str | None = None,
    size: Annotated[int | None, Query(ge=1, description=f"Most entities; by default {DEFAULT_SIZE}.")] = None,
) -> Response:
    """A sample of the collection's entities on a plane. It is made at the first request, and kept.

    While it is made, the answer is 503 with Retry-After, where it takes longer than five seconds.
    """
    check_fields(settings, size=size)
    size = size or min(DEFAULT_SIZE, settings.max_map_size)
    handle = await collections.get(collection)
    made = await request.app.state.maps.get(handle, size, wait_s=min(_MAP_WAIT_S, settings.timeout_s / 2))
    return json_answer({"collection": handle.name, "kb": handle.kb, "method": made.method, "points": made.points})


def _counted(counts: Mapping[str, int]) -> list[dict[str, str | int]]:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [{"type": name, "names": number} for name, number in ordered]
