"""Completes the OpenAPI schema: limits of fields, and where keys go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pearl_qdrant.service.bodies.ledger import AcceptBody, RejectBody
from pearl_qdrant.service.bodies.limits import Body, Limit
from pearl_qdrant.service.bodies.linking import LinkBody
from pearl_qdrant.service.bodies.texts import AnnotateBody, DocumentBody
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.keys import PUBLIC

BODIES: Sequence[type[Body]] = (LinkBody, AnnotateBody, DocumentBody, AcceptBody, RejectBody)
"""Bodies with limits. Reconciliation adds its own."""

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def complete_schema(
    schema: dict[str, Any], settings: ServiceSettings, queries: Mapping[str, Sequence[Limit]]
) -> dict[str, Any]:
    """The schema with the limits of the settings, and with keys if the service wants them.

    Args:
        schema: As FastAPI makes it; changed in place.
        settings: Of the service.
        queries: Limits of query parameters, by path.
    """
    _show_bodies(schema.get("components", {}).get("schemas", {}), settings)
    for path, limits in queries.items():
        for operation in schema["paths"][path].values():
            _show_query(operation.get("parameters", ()), limits, settings)
    if settings.api_keys:
        schema.setdefault("components", {})["securitySchemes"] = _SCHEMES
        closed = [operations for path, operations in schema["paths"].items() if path not in PUBLIC]
        for operation in (operation for operations in closed for operation in operations.values()):
            operation["security"] = [*({name: []} for name in _SCHEMES), *operation.get("security", ())]
    return schema


def _show_bodies(models: dict[str, Any], settings: ServiceSettings) -> None:
    for body in BODIES:
        for limit in body.limits if body.__name__ in models else ():
            limit.show(models[body.__name__]["properties"][limit.field], settings)


def _show_query(parameters: Sequence[dict[str, Any]], limits: Sequence[Limit], settings: ServiceSettings) -> None:
    by_field = {limit.field: limit for limit in limits}
    for parameter in parameters:
        if parameter["name"] in by_field:
            by_field[parameter["name"]].show(parameter["schema"], settings)
