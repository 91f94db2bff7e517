"""The Reconciliation Service API 0.2 at /reconcile/COLLECTION: its paths, its manifest, and pages of other origins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Path, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, Response

from pearl_qdrant._version import __version__
from pearl_qdrant.errors import CollectionNotFoundError
from pearl_qdrant.service.answers import declared, json_answer
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.errors import UnauthorizedError
from pearl_qdrant.service.gate import HAS_KEY, NEEDS_NO_KEY
from pearl_qdrant.service.reconcile import answers
from pearl_qdrant.service.reconcile import queries as reading
from pearl_qdrant.service.reconcile.answers import extended_rows
from pearl_qdrant.service.reconcile.matching import match
from pearl_qdrant.service.reconcile.pages import entity_html, entity_page, flyout_html, missing_page
from pearl_qdrant.service.reconcile.properties import Catalogue, Catalogues, property_name, with_names
from pearl_qdrant.service.requests import CollectionsHere, SettingsHere, beside, router_of
from pearl_qdrant.service.settings import ServiceSettings, check_fields
from pearl_qdrant.settings import DEFAULT_LIMIT

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/reconcile/"
"""All paths of reconciliation start so."""

SUGGESTED = DEFAULT_LIMIT
"""Suggested entities of an answer; a client asks for more with a cursor."""

LISTED = 50
"""The same of types and properties, of which there are fewer: people look through them."""

PREVIEW_WIDTH, PREVIEW_HEIGHT = 430, 300
"""Of the frame of a preview, in pixels."""

_DEFAULT_TYPES = 10

_WIKIDATA = "wikidata"
"""Short name of a base whose ids are those of Wikidata: OpenRefine knows them by these addresses."""

_QUERY_BYTES, _CELL_BYTES = 4000, 40
"""About the size of the candidates of a query, and of a cell of an extension, as JSON."""

router = router_of("reconciliation", "/reconcile/{collection}")


class CrossOrigin:
    """Middleware around all others: a browser asks before it sends a key, and reads errors as well.

    Version 0.2 demands it of the paths of reconciliation; no other path has it. It also marks requests for a manifest:
    the specification leaves them open where a service has keys.
    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=settings.reconcile_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("Retry-After", "X-Request-ID"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        name = scope["path"][len(PREFIX) :]
        if scope["method"] == "GET" and name and "/" not in name and not scope["query_string"]:
            scope[NEEDS_NO_KEY] = True
        await self._open(scope, receive, send)


@dataclass(frozen=True)
class Place:
    """A collection that a request names, with what is known of it."""

    handle: CollectionHandle
    settings: ServiceSettings
    catalogues: Catalogues

    async def catalogue(self) -> Catalogue:
        """Its properties and types."""
        return await self.catalogues.of(self.handle)


async def _place(
    name: Annotated[str, Path(alias="collection", description="Name of the collection.")],
    request: Request,
    collections: CollectionsHere,
    settings: SettingsHere,
) -> Place:
    try:
        handle = await collections.get(name)
    except CollectionNotFoundError as error:
        if request.scope[HAS_KEY]:
            raise
        raise UnauthorizedError(f"There is no collection '{name}' without a key.") from error
    return Place(handle, settings, request.app.state.catalogues)


PlaceHere = Annotated[Place, Depends(_place)]
PrefixHere = Annotated[str, Query(description="What was typed so far.")]
CursorHere = Annotated[int, Query(ge=0, description="Suggestions to leave out at the start.")]
IdHere = Annotated[str, Query(alias="id")]


_EXAMPLE = '{"q0": {"query": "NYTimes", "limit": 3}, "q1": {"query": "Big Apple", "type": "city"}}'
_QUERIES_TEXT = "A batch of queries as JSON: an object with a query for each key."
_EXTEND_TEXT = "Which properties of which entities to return, as JSON."


def _json_text(description: str, example: str) -> dict[str, Any]:
    return {"type": "string", "contentMediaType": reading.JSON, "description": description, "examples": [example]}


_FIELDS = {
    "queries": _json_text(_QUERIES_TEXT, _EXAMPLE),
    "extend": _json_text(_EXTEND_TEXT, '{"ids": ["nyt"], "properties": [{"id": "description"}, {"id": "aliases"}]}'),
}

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            reading.FORM: {
                "schema": {"type": "object", "properties": _FIELDS},
                "examples": {"queries": {"value": {"queries": _EXAMPLE}}},
            },
            reading.JSON: {
                "schema": {"type": "object", "properties": {name: {"type": "object"} for name in _FIELDS}},
                "examples": {"queries": {"value": {"queries": {"q0": {"query": "NYTimes"}}}}},
            },
        },
    }
}
"""The body of a POST, for OpenAPI; the specification describes queries and extensions."""


@router.get("", responses=declared(404), openapi_extra={"security": [{}]})  # the manifest needs no key
async def manifest_or_queries(
    request: Request,
    place: PlaceHere,
    queries: Annotated[str | None, Query(description=_QUERIES_TEXT)] = None,
    extend: Annotated[str | None, Query(description=_EXTEND_TEXT)] = None,
) -> Response:
    """The service manifest; with queries, their candidates; with extend, values of properties."""
    if queries is None and extend is None:
        base_url = (place.settings.public_url or str(request.base_url)).rstrip("/")
        return json_answer(manifest(base_url, place.handle, await place.catalogue(), place.settings))
    return await _answer(request, place, reading.read_texts(queries, extend))


@router.post("", responses=declared(404, 415), openapi_extra=_BODY)
async def queries_or_extension(request: Request, place: PlaceHere) -> Response:
    """Candidates for a batch of queries, or values of properties."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    return await _answer(request, place, await beside(len(body), reading.read_body, body, kind))


async def _answer(request: Request, place: Place, given: dict[str, Any]) -> Response:
    size = len(await request.body())
    if "extend" in given:
        asked = await beside(size, reading.read_extension, given["extend"], place.settings)
        rows = await place.handle.call(lambda linker: extended_rows(linker, asked))
        cells_size = len(asked.ids) * len(asked.limits) * _CELL_BYTES
        return await beside(cells_size, json_answer, {"meta": list(map(_property, asked.limits)), "rows": rows})
    batch = await beside(size, reading.read_batch, given["queries"], place.settings)
    found = await match(place.handle, list(batch.values()), await place.catalogue(), is_gone=request.is_disconnected)
    records = zip(batch, map(answers.answer_record, found), strict=True)
    return await beside(len(found) * _QUERY_BYTES, lambda: json_answer(dict(records)))


@router.get("/extend/propose", responses=declared(404))
async def propose(
    place: PlaceHere,
    type: Annotated[str, Query(description="Id of a type; empty for all.")] = "",  # noqa: A002
    limit: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """Properties that entities of a type have, the most frequent first."""
    check_fields(place.settings, limit=limit)
    found = (await place.catalogue()).properties_of(type)
    record: dict[str, Any] = {"properties": [_property(one) for one in found[:limit]], "type": type}
    return json_answer(record if limit is None else {**record, "limit": limit})


@router.get("/suggest/entity", responses=declared(404))
async def suggest_entity(
    place: PlaceHere,
    prefix: PrefixHere,
    cursor: CursorHere = 0,
    type: Annotated[str | None, Query(description="Only entities of this type.")] = None,  # noqa: A002
) -> Response:
    """Entities by the beginning of a name, also with a slip, or by their id."""
    check_fields(place.settings, prefix=prefix, cursor=cursor)
    found: list[Any] = []
    if wanted := prefix.strip():  # the entity that has this very id comes first
        found += [one.point for one in (await place.handle.call(lambda linker: with_names(linker, [wanted]))).values()]
        types = [type] if type else []
        found += await place.handle.search_names(prefix, types=types, limit=cursor + SUGGESTED)
    records: dict[str, dict[str, Any]] = {}
    for one in found:
        record = {
            "id": one.entity_id,
            "name": one.canonical_name,
            "notable": answers.type_list((*one.kb_types, *one.types)),
        }
        described = {"description": one.description} if one.description else {}
        records.setdefault(one.entity_id, record | described)
    return json_answer({"result": list(records.values())[cursor : cursor + SUGGESTED]})


@router.get("/suggest/type", responses=declared(404))
async def suggest_type(place: PlaceHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Types of the base and coarse types; all of them for an empty prefix."""
    check_fields(place.settings, prefix=prefix, cursor=cursor)
    types = (await place.catalogue()).types
    found = _starting(prefix, {one: one for one in types})[cursor : cursor + LISTED]
    return json_answer({"result": [{"id": one, "name": one, "description": _count(types[one])} for one in found]})


@router.get("/suggest/property", responses=declared(404))
async def suggest_property(place: PlaceHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Properties of the entities; all of them for an empty prefix."""
    check_fields(place.settings, prefix=prefix, cursor=cursor)
    found = _starting(prefix, {one: property_name(one) for one in (await place.catalogue()).properties})
    return json_answer({"result": [_property(one) for one in found[cursor : cursor + LISTED]]})


def _starting(prefix: str, names: Mapping[str, str]) -> list[str]:
    """The ids that match, in the order given: first what starts so, then with a word that does, then what has it."""
    wanted = prefix.strip().casefold()
    ranks: dict[str, int] = {}
    for one, name in names.items():
        texts = one.casefold(), name.casefold()
        if any(text.startswith(wanted) for text in texts):
            ranks[one] = 0 if wanted not in texts else -1
        elif any(f" {wanted}" in text.replace("_", " ").replace(":", " ") for text in texts):
            ranks[one] = 1
        elif any(wanted in text for text in texts):
            ranks[one] = 2
    return sorted(ranks, key=ranks.__getitem__)


def _property(property_id: str) -> dict[str, str]:
    return {"id": property_id, "name": property_name(property_id)}


def _count(n_names: int) -> str:
    """How many names have a type."""
    return f"{n_names:,} name{'' if n_names == 1 else 's'}"


@router.get("/flyout/entity", responses=declared(404))
async def flyout_entity(place: PlaceHere, entity_id: IdHere) -> Response:
    """A small preview of an entity."""
    check_fields(place.settings, id=entity_id)
    found = (await place.handle.call(lambda linker: with_names(linker, [entity_id]))).get(entity_id)
    html = entity_html(found, is_preview=True) if found else flyout_html(entity_id, ["Not found"])
    return json_answer({"id": entity_id, "html": html})


@router.get("/flyout/type", responses=declared(404))
async def flyout_type(place: PlaceHere, type_id: IdHere) -> Response:
    """How many names have a type."""
    check_fields(place.settings, id=type_id)
    n_names = (await place.catalogue()).types.get(type_id, 0)
    return json_answer({"id": type_id, "html": flyout_html(type_id, [_count(n_names)])})


@router.get("/flyout/property", responses=declared(404))
async def flyout_property(place: PlaceHere, property_id: IdHere) -> Response:
    """Some values of a property."""
    check_fields(place.settings, id=property_id)
    sampled = (await place.catalogue()).values.get(property_id, ())
    values = list(dict.fromkeys(value[:100] for one in sampled for value in one))[:5]
    return json_answer({"id": property_id, "html": flyout_html(property_name(property_id), values)})


_HTML: dict[str, Any] = {"text/html": {"schema": {"type": "string"}}}

_PAGES: dict[int | str, dict[str, Any]] = {
    **declared(),
    200: {"description": "A page.", "content": _HTML},
    404: {
        **declared(404)[404],
        "description": "No such collection, or a page that says so of an id.",
        "content": _HTML,
    },
}


@router.get("/preview", response_model=None, responses=_PAGES)
async def preview(place: PlaceHere, entity_id: IdHere) -> Response:
    """A short page about an entity, for a frame in a client."""
    return await _entity_page(place, entity_id, is_preview=True)


@router.get("/view", response_model=None, responses=_PAGES)
async def view(place: PlaceHere, entity_id: IdHere) -> Response:
    """A page about an entity, with all that is known of it."""
    return await _entity_page(place, entity_id, is_preview=False)


async def _entity_page(place: Place, entity_id: str, *, is_preview: bool) -> HTMLResponse:
    check_fields(place.settings, id=entity_id)
    found = (await place.handle.call(lambda linker: with_names(linker, [entity_id]))).get(entity_id)
    return entity_page(found, is_preview=is_preview) if found else missing_page(entity_id)


def manifest(
    base_url: str, handle: CollectionHandle, catalogue: Catalogue, settings: ServiceSettings
) -> dict[str, Any]:
    """The service manifest of version 0.2: what the service offers for a collection, and where.

    Args:
        base_url: Address of the service, without a slash at its end.
    """
    endpoint = f"{base_url}/reconcile/{quote(handle.name, safe='')}"
    is_wikidata = handle.kb.casefold() == _WIKIDATA
    known = handle.name.casefold()
    others = [one for one in (handle.kb, handle.manifest.kb_version) if one and one.casefold() not in known]
    title = f"{handle.name}: {' '.join(others)}" if others else handle.name
    record: dict[str, Any] = {
        "versions": ["0.2"],
        "name": f"{title} (pearl-qdrant)",
        "identifierSpace": "http://www.wikidata.org/entity/" if is_wikidata else f"{endpoint}/view?id=",
        "schemaSpace": "http://www.wikidata.org/prop/direct/" if is_wikidata else f"{endpoint}/suggest/property",
        "serviceVersion": __version__,
        "documentation": f"{base_url}/openapi.json",
        "view": {"url": "https://www.wikidata.org/wiki/{{id}}" if is_wikidata else f"{endpoint}/view?id={{{{id}}}}"},
        "defaultTypes": answers.type_list(list(catalogue.types)[:_DEFAULT_TYPES]),
        "preview": {"url": f"{endpoint}/preview?id={{{{id}}}}", "width": PREVIEW_WIDTH, "height": PREVIEW_HEIGHT},
        "suggest": {
            kind: {
                "service_url": endpoint,
                "service_path": f"/suggest/{kind}",
                "flyout_service_url": endpoint,
                "flyout_service_path": f"/flyout/{kind}?id=${{id}}",
            }
            for kind in ("entity", "property", "type")
        },
        "extend": {
            "propose_properties": {"service_url": endpoint, "service_path": "/extend/propose"},
            "property_settings": [
                {
                    "name": "limit",
                    "label": "Limit",
                    "type": "number",
                    "default": 0,
                    "help_text": "Most values of a cell; 0 for all.",
                }
            ],
        },
        "batchSize": min(settings.reconcile_batch, settings.max_mentions),
        "standardizedScore": True,
    }
    if settings.api_keys:
        record["authentication"] = {"type": "apiKey", "name": "X-API-Key", "in": "header"}
    return record
