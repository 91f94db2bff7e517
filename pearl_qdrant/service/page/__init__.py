"""The page at /: its files, and what it asks beside the API: settings, types and maps of collections.

A map has a sample of the entities on a plane, where names with near vectors lie near each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from pearl_qdrant._version import __version__
from pearl_qdrant.encoder.protocol import Encoder, FloatArray
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.answers import CollectionsHere, SettingsHere, declared, json_answer, router_of
from pearl_qdrant.service.settings import check_fields
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

if TYPE_CHECKING:
    from starlette.types import Scope


def lay_out(vectors: FloatArray) -> FloatArray:
    """Places of vectors, (n, dim), on a plane by their first two principal components: (n, 2), in the middle of [0, 1],
    with the proportions kept. The same vectors have the same places: the largest coordinate along a direction is > 0.
    """
    places = np.zeros((len(vectors), 2), dtype=np.float32)
    if len(vectors) > 1:
        centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        found = (left * sizes)[:, :2]
        largest = np.argmax(np.abs(found), axis=0)
        places[:, : found.shape[1]] = found * np.where(found[largest, np.arange(found.shape[1])] < 0, -1.0, 1.0)
    if not len(places):
        return places
    low, high = places.min(axis=0), places.max(axis=0)
    extent = float((high - low).max()) or 1.0
    return np.asarray((places - (low + high) / 2) / extent + 0.5, dtype=np.float32)


DEFAULT_SIZE = 600  # Entities of a map, if nobody says how many

_NAMES_AN_ENTITY = 20
"""Names that are read for each entity that is wanted; a base with more aliases an entity gets a smaller sample."""


@dataclass(frozen=True, slots=True)
class MapPointAnswer:
    """An entity on the map, with its place in [0, 1]."""

    x: float
    y: float
    entity_id: str
    canonical_name: str
    type: str | None  # its first coarse type, or the predicted one, or its first native type


def _state(linker: EntityLinker) -> object:
    """What names the state of a collection, as far as it can be seen without a search."""
    collection = linker.collections[0]
    manifest = collection.manifest
    return collection.state_token, manifest.kb_version, manifest.names, manifest.entities


def sample(linker: EntityLinker, size: int) -> list[NamePoint]:
    """Canonical names of a collection, at most `size`: points are ordered by a hash of the name, so the first are a
    random sample.
    """
    read = islice(linker.collections[0].scroll(), size * _NAMES_AN_ENTITY)
    return list(islice((point for point in read if point.is_canonical), size))


def make_map(points: list[NamePoint], encoder: Encoder) -> list[MapPointAnswer]:
    """Place names on a plane by their vectors; names that the model cannot encode are left out."""
    encoded = encoder.encode([point.canonical_name for point in points])
    rows = [row for row, is_encodable in enumerate(encoded.encodable) if is_encodable]
    placed = zip([points[row] for row in rows], lay_out(encoded.vectors[rows]).tolist(), strict=True)
    return [
        MapPointAnswer(round(x, 4), round(y, 4), point.entity_id, point.canonical_name, _type_of(point))
        for point, (x, y) in placed
    ]


def _type_of(point: NamePoint) -> str | None:
    return next(iter((*point.types, *filter(None, [point.predicted_type]), *point.kb_types)), None)


FOLDER = Path(__file__).resolve().parent / "static"

PREFIX = "/page"  # Where the files are; `/` itself is `index.html`

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""A name can never become markup: the browser refuses every assignment of HTML."""

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
        answer = await super().get_response(path, scope)
        answer.headers.update(HEADERS)
        return answer


def mount_files(app: FastAPI) -> None:
    """Answer `/` and the paths below `PREFIX` with the files of the page."""
    app.mount(PREFIX, _Files(directory=FOLDER), name="page")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Any:
        return FileResponse(FOLDER / "index.html", headers=HEADERS, media_type="text/html; charset=utf-8")


router = router_of("collections")


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
    collections: CollectionsHere,
    settings: SettingsHere,
    collection: str | None = None,
    size: Annotated[int | None, Query(ge=1, description=f"Most entities; by default {DEFAULT_SIZE}.")] = None,
) -> Response:
    """A sample of the collection's entities on a plane. It is made at the first request, and kept."""
    check_fields(settings, size=size)
    size = size or min(DEFAULT_SIZE, settings.max_map_size)
    handle = await collections.get(collection)

    async def make() -> list[MapPointAnswer]:
        points = await handle.call(lambda linker: sample(linker, settings.max_map_size))
        return await asyncio.to_thread(make_map, points, handle.linker.encoder)

    points = await handle.kept("map", await handle.call(_state), make)
    return json_answer({"collection": handle.name, "kb": handle.kb, "points": points[:size]})


def _counted(counts: Mapping[str, int]) -> list[dict[str, str | int]]:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [{"type": name, "names": number} for name, number in ordered]
