"""The Reconciliation Service API 0.2 at /reconcile/COLLECTION: its paths, its manifest, and pages of other origins."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Path, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, Response

from pearl_qdrant._version import __version__
from pearl_qdrant.errors import CollectionNotFoundError
from pearl_qdrant.linking.columns import KB_TYPES, NAME, OWN, POPULARITY, TYPES, EntityColumns, with_names
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.service.answers import CollectionsHere, beside, declared, json_answer, router_of
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.gate import HAS_KEY, NEEDS_NO_KEY
from pearl_qdrant.service.reconcile import queries as reading
from pearl_qdrant.service.reconcile.matching import Answer, Scored, match
from pearl_qdrant.service.reconcile.properties import Catalogue, catalogue_of, property_name
from pearl_qdrant.service.reconcile.queries import MOST_VALUES, BadQuery, Extension
from pearl_qdrant.service.settings import ServiceError, ServiceSettings, check_fields
from pearl_qdrant.settings import DEFAULT_LIMIT

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


PREFIX = "/reconcile/"  # All paths of reconciliation start so
SUGGESTED = DEFAULT_LIMIT  # Suggested entities of an answer; a client asks for more with a cursor
LISTED = 50  # The same of types and properties, of which there are fewer: people look through them
PREVIEW_WIDTH, PREVIEW_HEIGHT = 430, 300  # Of the frame of a preview, in pixels

_DEFAULT_TYPES = 10

_WIKIDATA = "wikidata"  # Short name of a base whose ids are those of Wikidata: OpenRefine knows them by these addresses

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


async def _handle(
    name: Annotated[str, Path(alias="collection", description="Name of the collection.")],
    request: Request,
    collections: CollectionsHere,
) -> CollectionHandle:
    try:
        return await collections.get(name)
    except CollectionNotFoundError as error:
        if request.scope[HAS_KEY]:
            raise
        text = f"There is no collection '{name}' without a key."
        raise ServiceError(text, status=401, code="unauthorized") from error


HandleHere = Annotated[CollectionHandle, Depends(_handle)]
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
    handle: HandleHere,
    queries: Annotated[str | None, Query(description=_QUERIES_TEXT)] = None,
    extend: Annotated[str | None, Query(description=_EXTEND_TEXT)] = None,
) -> Response:
    """The service manifest; with queries, their candidates; with extend, values of properties."""
    if queries is None and extend is None:
        base_url = (handle.settings.public_url or str(request.base_url)).rstrip("/")
        return json_answer(manifest(base_url, handle, await catalogue_of(handle)))
    return await _answer(request, handle, reading.read_texts(queries, extend))


@router.post("", responses=declared(404, 415), openapi_extra=_BODY)
async def queries_or_extension(request: Request, handle: HandleHere) -> Response:
    """Candidates for a batch of queries, or values of properties."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    return await _answer(request, handle, await beside(len(body), reading.read_body, body, kind))


async def _answer(request: Request, handle: CollectionHandle, given: dict[str, Any]) -> Response:
    size = len(await request.body())
    if "extend" in given:
        asked = await beside(size, reading.read_extension, given["extend"], handle.settings)
        rows = await handle.call(lambda linker: extended_rows(linker, asked))
        cells_size = len(asked.ids) * len(asked.limits) * _CELL_BYTES
        return await beside(cells_size, json_answer, {"meta": list(map(_property, asked.limits)), "rows": rows})
    batch = await beside(size, reading.read_batch, given["queries"], handle.settings)
    found = await match(handle, list(batch.values()), is_gone=request.is_disconnected)
    records = zip(batch, map(answer_record, found), strict=True)
    return await beside(len(found) * _QUERY_BYTES, lambda: json_answer(dict(records)))


@router.get("/extend/propose", responses=declared(404))
async def propose(
    handle: HandleHere,
    type: Annotated[str, Query(description="Id of a type; empty for all.")] = "",  # noqa: A002
    limit: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """Properties that entities of a type have, the most frequent first."""
    check_fields(handle.settings, limit=limit)
    found = (await catalogue_of(handle)).properties_of(type)
    record: dict[str, Any] = {"properties": [_property(one) for one in found[:limit]], "type": type}
    return json_answer(record if limit is None else {**record, "limit": limit})


@router.get("/suggest/entity", responses=declared(404))
async def suggest_entity(
    handle: HandleHere,
    prefix: PrefixHere,
    cursor: CursorHere = 0,
    type: Annotated[str | None, Query(description="Only entities of this type.")] = None,  # noqa: A002
) -> Response:
    """Entities by the beginning of a name, also with a slip, or by their id."""
    check_fields(handle.settings, prefix=prefix, cursor=cursor)
    found: list[Any] = []
    if wanted := prefix.strip():  # the entity that has this very id comes first
        found += [
            one.point for one in (await handle.call(lambda linker: with_names(linker.collections, [wanted]))).values()
        ]
        types = [type] if type else []
        found += await handle.search_names(prefix, types=types, limit=cursor + SUGGESTED)
    records: dict[str, dict[str, Any]] = {}
    for one in found:
        record = {"id": one.entity_id, "name": one.canonical_name, "notable": type_list((*one.kb_types, *one.types))}
        described = {"description": one.description} if one.description else {}
        records.setdefault(one.entity_id, record | described)
    return json_answer({"result": list(records.values())[cursor : cursor + SUGGESTED]})


@router.get("/suggest/type", responses=declared(404))
async def suggest_type(handle: HandleHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Types of the base and coarse types; all of them for an empty prefix."""
    check_fields(handle.settings, prefix=prefix, cursor=cursor)
    types = (await catalogue_of(handle)).types
    found = _starting(prefix, {one: one for one in types})[cursor : cursor + LISTED]
    return json_answer({"result": [{"id": one, "name": one, "description": _count(types[one])} for one in found]})


@router.get("/suggest/property", responses=declared(404))
async def suggest_property(handle: HandleHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Properties of the entities; all of them for an empty prefix."""
    check_fields(handle.settings, prefix=prefix, cursor=cursor)
    found = _starting(prefix, {one: property_name(one) for one in (await catalogue_of(handle)).properties})
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
    return f"{n_names:,} name{'' if n_names == 1 else 's'}"


@router.get("/flyout/entity", responses=declared(404))
async def flyout_entity(handle: HandleHere, entity_id: IdHere) -> Response:
    """A small preview of an entity."""
    check_fields(handle.settings, id=entity_id)
    found = (await handle.call(lambda linker: with_names(linker.collections, [entity_id]))).get(entity_id)
    html = entity_html(found, is_preview=True) if found else flyout_html(entity_id, ["Not found"])
    return json_answer({"id": entity_id, "html": html})


@router.get("/flyout/type", responses=declared(404))
async def flyout_type(handle: HandleHere, type_id: IdHere) -> Response:
    """How many names have a type."""
    check_fields(handle.settings, id=type_id)
    n_names = (await catalogue_of(handle)).types.get(type_id, 0)
    return json_answer({"id": type_id, "html": flyout_html(type_id, [_count(n_names)])})


@router.get("/flyout/property", responses=declared(404))
async def flyout_property(handle: HandleHere, property_id: IdHere) -> Response:
    """Some values of a property."""
    check_fields(handle.settings, id=property_id)
    sampled = (await catalogue_of(handle)).values.get(property_id, ())
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
async def preview(handle: HandleHere, entity_id: IdHere) -> Response:
    """A short page about an entity, for a frame in a client."""
    return await _entity_page(handle, entity_id, is_preview=True)


@router.get("/view", response_model=None, responses=_PAGES)
async def view(handle: HandleHere, entity_id: IdHere) -> Response:
    """A page about an entity, with all that is known of it."""
    return await _entity_page(handle, entity_id, is_preview=False)


async def _entity_page(handle: CollectionHandle, entity_id: str, *, is_preview: bool) -> HTMLResponse:
    check_fields(handle.settings, id=entity_id)
    found = (await handle.call(lambda linker: with_names(linker.collections, [entity_id]))).get(entity_id)
    if found is None:
        return page("Not found", f"<h1>Not found</h1><p>No entity has the id {escape(entity_id[:_CUT])}.</p>", 404)
    return page(found.point.canonical_name, entity_html(found, is_preview=is_preview))


def manifest(base_url: str, handle: CollectionHandle, catalogue: Catalogue) -> dict[str, Any]:
    """The service manifest of version 0.2: what the service offers for a collection, and where; `base_url` without a
    slash at its end.
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
        "defaultTypes": type_list(list(catalogue.types)[:_DEFAULT_TYPES]),
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
        "batchSize": min(handle.settings.reconcile_batch, handle.settings.max_mentions),
        "standardizedScore": True,
    }
    if handle.settings.api_keys:
        record["authentication"] = {"type": "apiKey", "name": "X-API-Key", "in": "header"}
    return record


SCORE_DIGITS = 2

Row = Mapping[str, Sequence[Mapping[str, str | float]]]
"""The values of each property: {"str": ...}, {"float": ...}, or an entity as {"id": ..., "name": ...}."""


def type_list(types: Sequence[str]) -> list[dict[str, str]]:
    """Types as objects."""
    return [{"id": one, "name": one} for one in dict.fromkeys(types)]


def answer_record(answer: Answer) -> dict[str, Any]:
    """The JSON of the answer of a query."""
    if isinstance(answer, BadQuery):
        return {"result": [], "error": answer}
    return {"result": [_candidate(one) for one in answer]}


def _candidate(scored: Scored) -> dict[str, Any]:
    candidate = scored.candidate
    record = {
        "id": candidate.entity_id,
        "name": candidate.canonical_name,
        "score": round(100 * (candidate.probability or 0.0), SCORE_DIGITS),
        "match": scored.is_match,
        "type": type_list((*candidate.kb_types, *candidate.types)),
        "features": _features(scored),
    }
    return record | ({"description": candidate.description} if candidate.description else {})


def _features(scored: Scored) -> list[dict[str, Any]]:
    """What is behind a score, without what is not known."""
    candidate = scored.candidate
    known: list[tuple[str, str, float | bool | None]] = [
        ("name_probability", "Probability by the name alone", scored.by_name),
        ("dense_score", "Similarity of meaning", candidate.dense_score),
        ("lexical_score", "Similarity of spelling", candidate.lexical_score),
        ("equal_name", "Equal name", candidate.features.get("edit_similarity") == 1.0),
        ("canonical_name", "The preferred name", candidate.name == candidate.canonical_name),
        ("namesakes", "Another entity has this name", candidate.tie),
        ("popularity", "Popularity", candidate.popularity),
    ]
    known += [(f"property:{one}", property_name(one), value) for one, value in candidate.properties.items()]
    return [
        {"id": id_, "name": name, "value": round(value, 4) if isinstance(value, float) else value}
        for id_, name, value in known
        if value is not None
    ]


def extended_rows(linker: EntityLinker, asked: Extension) -> dict[str, Row]:
    """The rows of entities, by their ids; empty lists for an unknown one."""
    found = with_names(linker.collections, asked.ids)
    linked: dict[str, EntityColumns] = {}
    if (limit := asked.limits.get(LINKS_FIELD)) is not None:
        ids = {link: None for one in found.values() for link in one.values(LINKS_FIELD)[:limit]}
        linked = with_names(linker.collections, list(ids)[: MOST_VALUES * 10])
    # One row for all unknown ids: with 1,000 of them and 50 properties, garbage collection would stop the event loop.
    unknown: Row = {one: [] for one in asked.limits}
    return {
        id_: {one: _values(found[id_], one, linked)[: min(limit, MOST_VALUES)] for one, limit in asked.limits.items()}
        if id_ in found
        else unknown
        for id_ in asked.ids
    }


def _values(
    columns: EntityColumns, property_id: str, linked: Mapping[str, EntityColumns]
) -> list[Mapping[str, str | float]]:
    values = columns.values(property_id)
    if property_id == LINKS_FIELD:
        return [{"id": one, "name": linked[one].point.canonical_name if one in linked else one} for one in values]
    if property_id == POPULARITY and columns.point.popularity is not None and POPULARITY not in columns.point.extra:
        return [{"float": columns.point.popularity}]
    return [{"str": one} for one in values]


_STYLE = """
:root { color-scheme: light dark; font: 14px/1.4 system-ui, sans-serif; }
body { margin: 0.75rem; overflow-wrap: anywhere; }
h1 { font-size: 1.1rem; margin: 0; }
p { margin: 0.3rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.75rem; margin: 0.5rem 0 0; }
dt { font-weight: 600; max-width: 10rem; }
dd { margin: 0; }
"""

PREVIEW_ALIASES, PREVIEW_COLUMNS, PREVIEW_VALUES = 8, 8, 5
"""How much of an entity a preview shows; its own page shows all."""

_CUT = 300  # characters of a value in a preview


@lru_cache(maxsize=1)
def _policy() -> str:
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """A page without scripts; any site may show it in a frame, as previews are. All text of `body` is escaped."""
    text = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f'<body><main dir="auto">{body}</main></body></html>'
    )
    headers = {
        "Content-Security-Policy": _policy(),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(text, status_code=status, headers=headers)


def entity_html(columns: EntityColumns, *, is_preview: bool) -> str:
    """Names, types, description and columns of an entity; a preview is short enough for its frame."""
    point = columns.point
    lines = [f"<h1>{escape(point.canonical_name)}</h1>", f"<p>{_id_html(point.entity_id)}</p>"]
    if point.description:
        lines.append(f"<p>{escape(_cut(point.description, is_preview))}</p>")
    rows: list[tuple[str, Sequence[str]]] = [("Types", list(dict.fromkeys((*point.kb_types, *point.types))))]
    aliases = columns.aliases or ()
    rows.append((OWN["aliases"], aliases[:PREVIEW_ALIASES] if is_preview else aliases))
    others = [one for one in columns.property_ids() if one not in (NAME, KB_TYPES, TYPES, "aliases", "description")]
    for one in others[:PREVIEW_COLUMNS] if is_preview else others:
        values = columns.values(one)
        rows.append((property_name(one), values[:PREVIEW_VALUES] if is_preview else values))
    shown = [(name, [_cut(value, is_preview) for value in values]) for name, values in rows if values]
    return "".join(lines) + (f"<dl>{_rows(shown)}</dl>" if shown else "")


def flyout_html(title: str, lines: Iterable[str]) -> str:
    """A small preview of a type or a property, to be put into the client's own page."""
    return f"<p><strong>{escape(title)}</strong></p>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _rows(rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(', '.join(values))}</dd>" for name, values in rows)


def _id_html(entity_id: str) -> str:
    """An id; a link if it is an address."""
    shown = escape(entity_id)
    if not entity_id.startswith(("http://", "https://")):
        return shown
    return f'<a href="{shown}" target="_blank" rel="noopener noreferrer">{shown}</a>'


def _cut(text: str, is_preview: bool) -> str:
    return f"{text[:_CUT].rstrip()}..." if is_preview and len(text) > _CUT else text
