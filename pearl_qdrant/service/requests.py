"""What routers ask for, and what keeps the event loop free while they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from pearl_qdrant.service.collections import Collections
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.service.settings import ServiceSettings

T = TypeVar("T")

LARGE = 1 << 14
"""Bytes of a body or an answer from which on it is read alone, or made in a thread."""


async def beside(size: int, function: Callable[..., T], *given: Any) -> T:
    """The result of a function that takes a large body or makes a large answer, called in a thread.

    What is small is not worth a change of threads.

    Args:
        size: About how many bytes it is.
    """
    return function(*given) if size < LARGE else await asyncio.to_thread(function, *given)


_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class _Request(Request):
    async def json(self) -> Any:
        try:
            return _ANYTHING.validate_json(await self.body())
        except ValueError as error:  # half of a character, too
            raise JSONDecodeError(str(error), "", 0) from error  # FastAPI knows no other


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await answer(_Request(request.scope, request.receive))

        return handler


def router_of(tag: str, prefix: str = "") -> APIRouter:
    """A router of the service, with this tag in OpenAPI."""
    return APIRouter(tags=[tag], prefix=prefix, route_class=_Route)


# Coroutines, since FastAPI calls plain functions in a thread, which takes longer than they do.
async def _collections(request: Request) -> Collections:
    return cast("Collections", request.app.state.collections)


async def _settings(request: Request) -> ServiceSettings:
    return cast("ServiceSettings", request.app.state.settings)


async def _metrics(request: Request) -> Metrics:
    return cast("Metrics", request.app.state.metrics)


CollectionsHere = Annotated[Collections, Depends(_collections)]
SettingsHere = Annotated[ServiceSettings, Depends(_settings)]
MetricsHere = Annotated[Metrics, Depends(_metrics)]
