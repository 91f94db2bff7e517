"""The paths of reconciliation."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response

from pearl_qdrant.errors import CollectionNotFoundError
from pearl_qdrant.service.bodies.limits import Limit
from pearl_qdrant.service.errors import UnauthorizedError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.linkers.registry import Collections
from pearl_qdrant.service.reconcile import answers as a
from pearl_qdrant.service.reconcile.bodies import (
    EXTEND_BODY,
    EXTEND_TEXT,
    FORM_BODY,
    MATCH_BODY,
    QUERIES_TEXT,
    only_text,
    read_form,
)
from pearl_qdrant.service.reconcile.extending import extend, read_extension
from pearl_qdrant.service.reconcile.manifest import manifest
from pearl_qdrant.service.reconcile.matching import match
from pearl_qdrant.service.reconcile.pages import entity_html, entity_page, flyout_html, missing_page
from pearl_qdrant.service.reconcile.properties.catalogue import Catalogue, Catalogues
from pearl_qdrant.service.reconcile.properties.columns import with_names
from pearl_qdrant.service.reconcile.queries import load_json, read_batch, read_draft_batch
from pearl_qdrant.service.reconcile.suggesting import (
    count_text,
    property_record,
    suggest_entities,
    suggest_properties,
    suggest_types,
)
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere
from pearl_qdrant.service.web.keys import HAS_KEY

router = APIRouter(tags=["reconciliation"], prefix="/reconcile/{collection}")

PREFIX_LIMITS = (Limit("prefix", "max_mention_characters", "characters"), Limit("cursor", "max_mentions", "value"))
ID_LIMITS = (Limit("id", "max_mention_characters", "characters"),)
PROPOSAL_LIMITS = (Limit("limit", "max_limit", "value"),)

LIMITS = {
    "/reconcile/{collection}/suggest/entity": PREFIX_LIMITS,
    "/reconcile/{collection}/suggest/type": PREFIX_LIMITS,
    "/reconcile/{collection}/suggest/property": PREFIX_LIMITS,
    "/reconcile/{collection}/flyout/entity": ID_LIMITS,
    "/reconcile/{collection}/flyout/type": ID_LIMITS,
    "/reconcile/{collection}/flyout/property": ID_LIMITS,
    "/reconcile/{collection}/preview": ID_LIMITS,
    "/reconcile/{collection}/view": ID_LIMITS,
    "/reconcile/{collection}/extend/propose": PROPOSAL_LIMITS,
}
"""Limits of query parameters, by path."""

NameHere = Annotated[str, Path(alias="collection", description="Name of the collection.")]
PrefixHere = Annotated[str, Query(description="What was typed so far.")]
CursorHere = Annotated[int, Query(ge=0, description="Suggestions to leave out at the start.")]
IdHere = Annotated[str, Query(alias="id")]


class Place:
    """A collection that a request names, with what is known of it."""

    def __init__(self, handle: CollectionHandle, settings: ServiceSettings, catalogues: Catalogues) -> None:
        self.handle = handle
        self.settings = settings
        self._catalogues = catalogues

    async def catalogue(self) -> Catalogue:
        """Its properties and types."""
        return await self._catalogues.of(self.handle)


async def _place(name: NameHere, request: Request, collections: CollectionsHere, settings: SettingsHere) -> Place:
    try:
        handle = await collections.get(name)
    except CollectionNotFoundError as error:
        if request.scope[HAS_KEY]:
            raise
        raise UnauthorizedError(f"There is no collection '{name}' without a key.") from error
    return Place(handle, settings, _catalogues(request, collections))


def _catalogues(request: Request, collections: Collections) -> Catalogues:
    """The catalogues of the service: those of the collections that it has open."""
    kept = getattr(request.app.state, "catalogues", None)
    if kept is None or kept[0] is not collections:
        kept = request.app.state.catalogues = (collections, Catalogues())
    found: Catalogues = kept[1]
    return found


PlaceHere = Annotated[Place, Depends(_place)]


def _base_url(request: Request, settings: ServiceSettings) -> str:
    return (settings.public_url or str(request.base_url)).rstrip("/")


@router.get(
    "",
    response_model=a.ManifestAnswer | a.ReconcileBatchAnswer | a.ExtensionAnswer,
    responses=declared(404),
    response_model_exclude_unset=True,
    openapi_extra={"security": [{}]},  # the manifest needs no key
)
async def manifest_or_queries(
    request: Request,
    place: PlaceHere,
    queries: Annotated[str | None, Query(description=QUERIES_TEXT)] = None,
    extend: Annotated[str | None, Query(description=EXTEND_TEXT)] = None,
) -> Response:
    """The service manifest; with queries, their candidates; with extend, values of properties."""
    if queries is None and extend is None:
        base_url = _base_url(request, place.settings)
        return json_answer(manifest(base_url, place.handle, await place.catalogue(), place.settings))
    return await _answer(request, place, only_text(queries, extend))


@router.post(
    "",
    response_model=a.ReconcileBatchAnswer | a.ExtensionAnswer,
    responses=declared(404, 415),
    openapi_extra=FORM_BODY,
)
async def queries_or_extension(request: Request, place: PlaceHere) -> Response:
    """Candidates for a batch of queries, or values of properties."""
    return await _answer(request, place, await read_form(request))


async def _answer(request: Request, place: Place, given: dict[str, Any]) -> Response:
    if "extend" in given:
        asked = await asyncio.to_thread(read_extension, given["extend"], place.settings)
        extended = await extend(place.handle, asked)
        return await asyncio.to_thread(lambda: json_answer(extended.record()))
    batch = await asyncio.to_thread(read_batch, given["queries"], place.settings)
    found = await match(place.handle, list(batch.values()), await place.catalogue(), is_gone=request.is_disconnected)
    answers = dict(zip(batch, found, strict=True))
    return await asyncio.to_thread(lambda: json_answer(a.batch_record(answers)))


@router.post("/match", response_model=a.DraftBatchAnswer, responses=declared(404), openapi_extra=MATCH_BODY)
async def match_draft(request: Request, place: PlaceHere) -> Response:
    """Candidates for a batch of queries in the form of the 1.0 draft."""
    batch = await asyncio.to_thread(read_draft_batch, load_json(await request.body(), "body"), place.settings)
    found = await match(place.handle, batch, await place.catalogue(), is_gone=request.is_disconnected)
    return await asyncio.to_thread(lambda: json_answer(a.draft_record(found)))


@router.post("/extend", response_model=a.DraftExtensionAnswer, responses=declared(404), openapi_extra=EXTEND_BODY)
async def extend_draft(request: Request, place: PlaceHere) -> Response:
    """Values of properties in the form of the 1.0 draft."""
    asked = await asyncio.to_thread(read_extension, load_json(await request.body(), "body"), place.settings)
    extended = await extend(place.handle, asked)
    return await asyncio.to_thread(lambda: json_answer(extended.draft_record()))


@router.get("/extend/propose", response_model=a.ProposalAnswer, responses=declared(404))
async def propose(
    place: PlaceHere,
    type: Annotated[str, Query(description="Id of a type; empty for all.")] = "",  # noqa: A002
    limit: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """Properties that entities of a type have, the most frequent first."""
    for one in PROPOSAL_LIMITS:
        one.check(limit, place.settings)
    found = (await place.catalogue()).properties_of(type)
    record: dict[str, Any] = {"properties": [property_record(one) for one in found[:limit]], "type": type}
    return json_answer(record if limit is None else {**record, "limit": limit})


def _check_prefix(prefix: str, cursor: int, settings: ServiceSettings) -> None:
    for one, value in zip(PREFIX_LIMITS, (prefix, cursor), strict=True):
        one.check(value, settings)


@router.get("/suggest/entity", response_model=a.SuggestAnswer, responses=declared(404))
async def suggest_entity(
    place: PlaceHere,
    prefix: PrefixHere,
    cursor: CursorHere = 0,
    type: Annotated[str | None, Query(description="Only entities of this type.")] = None,  # noqa: A002
) -> Response:
    """Entities by the beginning of a name, also with a slip, or by their id."""
    _check_prefix(prefix, cursor, place.settings)
    return json_answer(await suggest_entities(place.handle, prefix, cursor, type))


@router.get("/suggest/type", response_model=a.SuggestAnswer, responses=declared(404))
async def suggest_type(place: PlaceHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Types of the base and coarse types; all of them for an empty prefix."""
    _check_prefix(prefix, cursor, place.settings)
    return json_answer(suggest_types(await place.catalogue(), prefix, cursor))


@router.get("/suggest/property", response_model=a.SuggestAnswer, responses=declared(404))
async def suggest_property(place: PlaceHere, prefix: PrefixHere = "", cursor: CursorHere = 0) -> Response:
    """Properties of the entities; all of them for an empty prefix."""
    _check_prefix(prefix, cursor, place.settings)
    return json_answer(suggest_properties(await place.catalogue(), prefix, cursor))


def _flyout(id_: str, html: str) -> Response:
    return json_answer({"id": id_, "html": html})


@router.get("/flyout/entity", response_model=a.FlyoutAnswer, responses=declared(404))
async def flyout_entity(place: PlaceHere, entity_id: IdHere) -> Response:
    """A small preview of an entity."""
    ID_LIMITS[0].check(entity_id, place.settings)
    found = (await place.handle.call(lambda linker: with_names(linker, [entity_id]))).get(entity_id)
    return _flyout(entity_id, entity_html(found, is_preview=True) if found else flyout_html(entity_id, ["Not found"]))


@router.get("/flyout/type", response_model=a.FlyoutAnswer, responses=declared(404))
async def flyout_type(place: PlaceHere, type_id: IdHere) -> Response:
    """How many names have a type."""
    ID_LIMITS[0].check(type_id, place.settings)
    n_names = (await place.catalogue()).types.get(type_id, 0)
    return _flyout(type_id, flyout_html(type_id, [count_text(n_names)]))


@router.get("/flyout/property", response_model=a.FlyoutAnswer, responses=declared(404))
async def flyout_property(place: PlaceHere, property_id: IdHere) -> Response:
    """Some values of a property."""
    ID_LIMITS[0].check(property_id, place.settings)
    sampled = (await place.catalogue()).values.get(property_id, ())
    values = list(dict.fromkeys(value[:100] for one in sampled for value in one))[:5]
    return _flyout(property_id, flyout_html(property_record(property_id)["name"], values))


async def _entity_page(place: Place, entity_id: str, *, is_preview: bool) -> HTMLResponse:
    ID_LIMITS[0].check(entity_id, place.settings)
    found = (await place.handle.call(lambda linker: with_names(linker, [entity_id]))).get(entity_id)
    return entity_page(found, is_preview=is_preview) if found else missing_page(entity_id)


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
