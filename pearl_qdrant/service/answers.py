"""Answers as JSON; errors as one object with code, message, facts and the id of the request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from json import JSONDecodeError
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, TypeAdapter

from pearl_qdrant import errors
from pearl_qdrant.errors import PearlQdrantError
from pearl_qdrant.service.collections import Collections
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.service.settings import ServiceError, ServiceSettings

log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[PearlQdrantError], int, str], ...] = (
    (errors.CollectionNotFoundError, 404, "collection_not_found"),
    (errors.EntityNotFoundError, 404, "entity_not_found"),
    (errors.UnknownTypeError, 422, "unknown_type"),
    (errors.LearningError, 422, "invalid"),
    (errors.OptionError, 422, "invalid"),
    (errors.ReadOnlyError, 403, "writing_not_allowed"),
    (errors.StoreUnavailableError, 503, "store_unavailable"),
    (errors.ShardUnavailableError, 503, "store_unavailable"),
    (errors.AccessRefusedError, 503, "store_refuses_key"),
    (errors.StoreLockedError, 503, "store_locked"),
    (errors.StoreClosedError, 503, "not_ready"),
    (errors.LinkerClosedError, 503, "not_ready"),
)
"""Status and code of the errors of the library; any other is a 500."""

_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    500: "internal",
    **dict.fromkeys((400, 415, 422), "invalid"),
}
"""Codes of the errors that FastAPI itself answers."""

_RETRY_AFTER_S = 2  # Seconds after which a request is worth another try where the store did not answer


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


def packed(content: Any) -> bytes:
    """JSON of records: dictionaries, lists, dataclasses, enums and numbers; and of an `orjson.Fragment` of such."""
    return orjson.dumps(content, default=dict, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def json_answer(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer of what is `packed`."""
    return Response(packed(content), status_code=status, headers=headers, media_type="application/json")


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a path, for OpenAPI."""
    always = {401, 408, 413, 421, 422, 429, 500, 503, 504}
    return {status: {"model": ErrorAnswer} for status in sorted({*always, *statuses})}


def error_answer(request: Request, error: PearlQdrantError) -> Response:
    """The answer for an error of the library or of the service."""
    if isinstance(error, ServiceError):
        retry_after = _RETRY_AFTER_S if error.status == 503 and error.retry_after_s is None else error.retry_after_s
        return problem(request, error.status, error.code, str(error), retry_after_s=retry_after, **error.facts)
    status, code = next(((s, c) for kind, s, c in _STATUS if isinstance(error, kind)), (500, "internal"))
    if status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    elif code in _TOLD:
        log.warning("%s", error)
    # No command of a shell that a client may not have, and no address or file of the service.
    text = _TOLD.get(code) or f"{error.message} {_ADVICE.get(code, '')}".rstrip()
    return problem(request, status, code, text, retry_after_s=_RETRY_AFTER_S if status == 503 else None)


_ADVICE = {
    "entity_not_found": "Ids are case-sensitive; GET /v1/search finds entities by their names.",
    "unknown_type": "GET /v1/types lists the types of a collection.",
}
"""What a client can do, by code."""

_TOLD = {
    "internal": "The service failed; its log has the reason under this request_id.",
    "not_ready": "The collection is being opened again. Send the request again.",
    "store_locked": "Another process writes to the collection.",
    "store_refuses_key": "The store refuses the key of the service.",
    "store_unavailable": "The store of the service does not answer.",
    "writing_not_allowed": "The service was started for reading only. Start it with the option allow_writing to accept "
    "and reject links.",
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
        first = details[0]
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

LARGE = 1 << 14  # Bytes of a body or an answer from which on it is read alone, or made in a thread


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


def _of_app(name: str) -> Any:
    async def found(request: Request) -> Any:  # FastAPI calls a plain function in a thread, which takes longer
        return getattr(request.app.state, name)

    return Depends(found)


CollectionsHere = Annotated[Collections, _of_app("collections")]
SettingsHere = Annotated[ServiceSettings, _of_app("settings")]
MetricsHere = Annotated[Metrics, _of_app("metrics")]
"""What every path may ask for."""
