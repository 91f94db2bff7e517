"""The page at /: its files, and what it asks beside the API: settings, types and maps of collections.

A map has a sample of the entities on a plane, where names with near vectors lie near each other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from pearl_qdrant._version import __version__
from pearl_qdrant.encoder.protocol import Encoder, FloatArray
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.answers import declared, json_answer
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.errors import NotReadyError
from pearl_qdrant.service.requests import CollectionsHere, SettingsHere, router_of
from pearl_qdrant.service.settings import check_fields
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

if TYPE_CHECKING:
    from starlette.types import Scope

MIN_NEIGHBOURS = 12
"""t-SNE needs some neighbours of each name; fewer names are laid out by PCA."""

_PERPLEXITY = 30.0  # van der Maaten and Hinton 2008 name 5 to 50
_ITERATIONS = 500  # 1,000, the library's default, take twice the time and look the same
_COMPONENTS = 50  # the same paper reduces to 50 dimensions first


def lay_out(vectors: FloatArray) -> tuple[FloatArray, str]:
    """Places of vectors on a plane; the same vectors have the same places.

    t-SNE of scikit-learn where it is installed and there are enough vectors; else the first two principal components.
    Returns places, (n, 2), in [0, 1] with the proportions kept, and the method: ``t-sne`` or ``pca``.

    Args:
        vectors: (n, dim), finite.
    """
    if len(vectors) >= MIN_NEIGHBOURS and find_spec("sklearn") is not None:
        return _fitted(_tsne(vectors)), "t-sne"
    return _fitted(principal_components(vectors, 2)), "pca"


def principal_components(vectors: FloatArray, count: int) -> FloatArray:
    """Coordinates along the `count` directions in which vectors differ most, (n, count); directions that lack are 0.

    The sign of a direction is the one that makes its largest coordinate positive.
    """
    found = np.zeros((len(vectors), count), dtype=np.float32)
    if len(vectors) < 2:
        return found
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = (left * sizes)[:, :count]
    largest = np.argmax(np.abs(coordinates), axis=0)
    coordinates *= np.where(coordinates[largest, np.arange(coordinates.shape[1])] < 0, -1.0, 1.0)
    found[:, : coordinates.shape[1]] = coordinates
    return found


def _tsne(vectors: FloatArray) -> FloatArray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)  # scikit-learn looks at three times as many neighbours
    placing = TSNE(n_components=2, perplexity=perplexity, max_iter=_ITERATIONS, init="pca", random_state=0)
    # One thread: the threads of each of the 500 steps wait for each other, which takes ten times as long where other
    # programs or batches have the cores.
    with threadpool_limits(1):
        reduced = principal_components(vectors, _COMPONENTS)
        return np.asarray(placing.fit_transform(reduced), dtype=np.float32)


def _fitted(places: FloatArray) -> FloatArray:
    """Places moved and scaled into the unit square, in its middle."""
    if not len(places):
        return places
    low, high = places.min(axis=0), places.max(axis=0)
    extent = float((high - low).max()) or 1.0
    return np.asarray((places - (low + high) / 2) / extent + 0.5, dtype=np.float32)


DEFAULT_SIZE = 600
"""Entities of a map, if nobody says how many."""

KEPT_MAPS = 16
KEPT_S = 3600.0
"""How long a map of a collection on a server is kept, since nothing tells that it has changed."""

_NAMES_AN_ENTITY = 20
"""Names that are read for each entity that is wanted; a base with more aliases an entity gets a smaller sample."""

_ASK_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class MapPointAnswer:
    """An entity on the map, with its place in [0, 1]."""

    x: float
    y: float
    entity_id: str
    canonical_name: str
    type: str | None  # its first coarse type, or the predicted one, or its first native type


@dataclass(frozen=True, slots=True)
class EntityMap:
    """A sample of a collection's entities on a plane.

    Attributes:
        method: How they are placed: ``t-sne`` or ``pca``.
        points: The entities.
    """

    method: str
    points: tuple[MapPointAnswer, ...]


@dataclass(slots=True)
class _Kept:
    task: asyncio.Task[EntityMap]
    token: object
    until: float
    former: EntityMap | None = None


class Maps:
    """The maps of a service. Those that are asked for at the same time are made one after the other.

    A collection has two maps at most, of `DEFAULT_SIZE` and of `largest` entities; smaller ones are parts of them. So
    the work is bounded, whatever is asked for.

    Args:
        largest: Entities of the largest map.
        clock: Seconds of a clock that only goes forward.
    """

    def __init__(self, largest: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._largest = largest
        self._clock = clock
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        self._one_at_a_time = ThreadPoolExecutor(1, "pearl-qdrant-maps")

    async def get(self, handle: CollectionHandle, size: int, *, wait_s: float) -> EntityMap:
        """The map of a collection. While a newer state of the collection gets its map, the former one answers. Raises
        NotReadyError if it is not made in that time. Ask again.

        Args:
            size: Most entities of the map; more than the largest map has are not there.
            wait_s: How long to wait for it; it is made to its end in any case.
        """
        made = min(DEFAULT_SIZE, self._largest) if size <= DEFAULT_SIZE else self._largest
        key = handle.name, made
        token = await handle.call(_state)
        kept = self._kept.get(key)
        # One that is being made is waited for, even if the collection has changed: else they pile up.
        if kept is None or (kept.task.done() and not self._is_current(kept, token)):
            former = None if kept is None else kept.former if _has_failed(kept.task) else kept.task.result()
            task = asyncio.create_task(self._make(handle, made))
            task.add_done_callback(_has_failed)  # nobody may wait for it: its error is not reported as lost
            self._kept[key] = kept = _Kept(task, token, self._clock() + KEPT_S, former)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAPS:
            self._kept.popitem(last=False)
        if kept.former is not None and not kept.task.done():
            return _part(kept.former, size)
        try:
            return _part(await asyncio.wait_for(asyncio.shield(kept.task), wait_s), size)
        except (asyncio.TimeoutError, TimeoutError) as error:
            text = f"The map of '{handle.name}' is being made. Ask again in a few seconds."
            raise NotReadyError(text, retry_after_s=_ASK_AGAIN_S) from error

    def _is_current(self, kept: _Kept, token: object) -> bool:
        return kept.token == token and self._clock() <= kept.until and not _has_failed(kept.task)

    async def _make(self, handle: CollectionHandle, size: int) -> EntityMap:
        points = await handle.call(lambda linker: sample(linker, size))
        making = self._one_at_a_time.submit(make_map, points, handle.linker.encoder)
        return await asyncio.wrap_future(making)


def _part(whole: EntityMap, size: int) -> EntityMap:
    return whole if len(whole.points) <= size else replace(whole, points=whole.points[:size])


def _has_failed(task: asyncio.Task[EntityMap]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _state(linker: EntityLinker) -> object:
    """What names the state of a collection, as far as it can be seen without a search."""
    collection = linker.collections[0]
    manifest = collection.manifest
    return collection.state_token, manifest.kb_version, manifest.names, manifest.entities


def sample(linker: EntityLinker, size: int) -> list[NamePoint]:
    """Canonical names of a collection, at most `size`.

    Points are ordered by id, which is a hash of the name: the first ones are a random sample.
    """
    read = islice(linker.collections[0].scroll(), size * _NAMES_AN_ENTITY)
    return list(islice((point for point in read if point.is_canonical), size))


def make_map(points: list[NamePoint], encoder: Encoder) -> EntityMap:
    """Place names on a plane by their vectors; names that the model cannot encode are left out."""
    encoded = encoder.encode([point.canonical_name for point in points])
    rows = [row for row, is_encodable in enumerate(encoded.encodable) if is_encodable]
    places, method = lay_out(encoded.vectors[rows])
    placed = zip([points[row] for row in rows], places.tolist(), strict=True)
    return EntityMap(
        method,
        tuple(
            MapPointAnswer(round(x, 4), round(y, 4), point.entity_id, point.canonical_name, _type_of(point))
            for point, (x, y) in placed
        ),
    )


def _type_of(point: NamePoint) -> str | None:
    return next(iter((*point.types, *filter(None, [point.predicted_type]), *point.kb_types)), None)


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
