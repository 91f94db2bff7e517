"""Maps of collections: a sample of the entities on a plane, computed when it is asked for, and kept."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.errors import NotReadyError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.page.layout import lay_out
from pearl_qdrant.store.schema import NamePoint

DEFAULT_SIZE = 600
"""Entities of a map, if nobody says how many."""

KEPT_MAPS = 16
KEPT_S = 3600.0
"""How long a map of a collection on a server is kept, since nothing tells that it has changed."""

_NAMES_AN_ENTITY = 20
"""Names that are read for each entity that is wanted; a base with more aliases an entity gets a smaller sample."""

_ASK_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class MapPoint:
    """An entity on the map.

    Attributes:
        x: Place from left to right, in [0, 1].
        y: Place from top to bottom, in [0, 1].
        entity_id: Its id.
        canonical_name: Its name.
        type: Its first coarse type, or the predicted one, or its first native type; None without any.
    """

    x: float
    y: float
    entity_id: str
    canonical_name: str
    type: str | None


@dataclass(frozen=True, slots=True)
class EntityMap:
    """A sample of a collection's entities on a plane.

    Attributes:
        method: How they are placed: ``t-sne`` or ``pca``.
        points: The entities.
    """

    method: str
    points: tuple[MapPoint, ...]


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
        self._one_at_a_time = asyncio.Lock()

    async def get(self, handle: CollectionHandle, size: int, *, wait_s: float) -> EntityMap:
        """The map of a collection. While a newer state of the collection gets its map, the former one answers.

        Args:
            handle: The collection.
            size: Most entities of the map; more than the largest map has are not there.
            wait_s: How long to wait for it; it is made to its end in any case.

        Raises:
            NotReadyError: If it is not made in that time. Ask again.
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
        async with self._one_at_a_time:
            points = await handle.call(lambda linker: sample(linker, size))
            return await asyncio.to_thread(make_map, points, handle.linker.encoder)


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
    return EntityMap(
        method,
        tuple(
            MapPoint(round(float(x), 4), round(float(y), 4), points[row].entity_id, points[row].canonical_name, kind)
            for row, (x, y) in zip(rows, places, strict=True)
            for kind in [_type_of(points[row])]
        ),
    )


def _type_of(point: NamePoint) -> str | None:
    return next(iter((*point.types, *filter(None, [point.predicted_type]), *point.kb_types)), None)
