"""Answers as JSON; errors as one object with code, message, facts and the id of the request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from json import JSONDecodeError
from typing import Annotated, Any, TypeVar, cast

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, TypeAdapter

from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EntityNotFoundError,
    LearningError,
    LinkerClosedError,
    PearlQdrantError,
    ReadOnlyError,
    ShardUnavailableError,
    StoreClosedError,
    StoreLockedError,
    StoreUnavailableError,
    UnknownTypeError,
)
from pearl_qdrant.service.collections import Collections
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.service.settings import ServiceError, ServiceSettings

log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[PearlQdrantError], int, str], ...] = (
    (CollectionNotFoundError, 404, "collection_not_found"),
    (EntityNotFoundError, 404, "entity_not_found"),
    (UnknownTypeError, 422, "unknown_type"),
    (LearningError, 422, "invalid"),
    (ReadOnlyError, 403, "writing_not_allowed"),
    (StoreUnavailableError, 503, "store_unavailable"),
    (ShardUnavailableError, 503, "store_unavailable"),
    (StoreLockedError, 503, "store_locked"),
    (StoreClosedError, 503, "not_ready"),
    (LinkerClosedError, 503, "not_ready"),
)
"""Status and code of the errors of the library; any other is a 500."""

_HTTP_CODES = {
    400: "invalid",
    404: "not_found",
    405: "method_not_allowed",
    415: "invalid",
    422: "invalid",
    500: "internal",
}
"""Codes of the errors that FastAPI itself answers."""

_RETRY_AFTER_S = 2
"""Seconds after which a request is worth another try where the store did not answer."""


class ErrorAnswer(BaseModel):
    """What went wrong. Some errors have further fields, such as the name of a limit."""

    error: str = Field(description="What happened, for programs.")
    message: str = Field(description="What happened and what to do, for people.")
    request_id: str | None = None
    limit: str | None = Field(None, description="The limit that was passed.")
    allowed: float | None = None
    found: float | None = None
    where: str | None = None
    details: list[dict[str, str]] | None = None


def json_answer(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON of records: dictionaries, lists, dataclasses, enums and numbers."""
    packed = orjson.dumps(content, default=dict, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(packed, status_code=status, headers=headers, media_type="application/json")


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a path, for OpenAPI."""
    always = {401, 408, 413, 421, 422, 429, 500, 503, 504}
    return {status: {"model": ErrorAnswer} for status in sorted({*always, *statuses})}


def error_answer(request: Request, error: PearlQdrantError) -> Response:
    """The answer for an error of the library or of the service."""
    retry_after: float | None = None
    facts: dict[str, Any] = {}
    if isinstance(error, ServiceError):
        status, code, retry_after, facts = error.status, error.code, error.retry_after_s, error.facts
    else:
        status, code = next(((s, c) for kind, s, c in _STATUS if isinstance(error, kind)), (500, "internal"))
    if status == 503 and retry_after is None:
        retry_after = _RETRY_AFTER_S
    if status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    elif code in _TOLD and not isinstance(error, ServiceError):
        log.warning("%s", error)
    return problem(request, status, code, _told(error, code), retry_after_s=retry_after, **facts)


def _told(error: PearlQdrantError, code: str) -> str:
    """What a client is told: no command of a shell that it may not have, and no address or file of the service."""
    if isinstance(error, ServiceError):
        return str(error)
    if code in _TOLD:
        return _TOLD[code]
    return f"{error.message} {_ADVICE.get(code, '')}".rstrip()


_ADVICE = {
    "entity_not_found": "Ids are case-sensitive; GET /v1/search finds entities by their names.",
    "unknown_type": "GET /v1/types lists the types of a collection.",
}
"""What a client can do, by code."""

_TOLD = {
    "internal": "The service failed; its log has the reason under this request_id.",
    "not_ready": "The collection is being opened again. Send the request again.",
    "store_locked": "Another process writes to the collection.",
    "store_unavailable": "The store of the service does not answer.",
    "writing_not_allowed": "The service was started for reading only.",
}
"""What is told in place of an error's own text, which is for those who run the service; the log has it."""


def problem(
    request: Request, status: int, code: str, message: str, *, retry_after_s: float | None = None, **facts: Any
) -> Response:
    """An error as JSON."""
    headers = {} if retry_after_s is None else {"Retry-After": str(max(1, round(retry_after_s)))}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    request_id = request.scope.get("pearl_qdrant.request_id")
    return json_answer(
        {"error": code, "message": message, "request_id": request_id, **facts}, status=status, headers=headers
    )


def add_error_handlers(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Answer every error of the application as `ErrorAnswer`; `routers` are all that it has."""

    def methods(request: Request) -> list[str]:
        """The methods of all routes of a path; Starlette names those of one of them."""
        routes = (route for router in routers for route in router.routes if route.matches(request.scope)[0].value)
        return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})

    @app.exception_handler(PearlQdrantError)
    async def of_library(request: Request, error: PearlQdrantError) -> Response:
        return error_answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> Response:
        details = [{"where": ".".join(map(str, one["loc"])), "message": str(one["msg"])} for one in error.errors()[:20]]
        first = details[0] if details else {"where": "body", "message": "not valid"}
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if first["where"] == "body" and kind != "application/json":
            text = (
                f"The body is said to be {kind or 'of no type'}. Send JSON with the header Content-Type: "
                f"application/json, as in: curl -H 'Content-Type: application/json' -d '{{...}}'"
            )
            return problem(request, 415, "unsupported_media_type", text)
        return problem(
            request, 422, "invalid", f"{first['where']}: {first['message']}", where=first["where"], details=details
        )

    async def of_http(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        status = 422 if status == 400 else status  # FastAPI's 400 is a body that is no JSON
        message, headers = str(getattr(error, "detail", error)), getattr(error, "headers", None) or {}
        if status == 405:
            headers = {"Allow": ", ".join(methods(request))}
            message = f"This path takes {headers['Allow']}, not {request.method}."
        answer = problem(request, status, _HTTP_CODES.get(status, "internal"), message)
        answer.headers.update(headers)
        return answer

    for status in _HTTP_CODES:
        app.add_exception_handler(status, of_http)


T = TypeVar("T")

LARGE = 1 << 14
"""Bytes of a body or an answer from which on it is read alone, or made in a thread."""


async def beside(size: int, function: Callable[..., T], *given: Any) -> T:
    """The result of a function that takes or makes about `size` bytes; in a thread if they are worth the change of
    threads.
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
