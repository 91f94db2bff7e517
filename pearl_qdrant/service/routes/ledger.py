"""POST /v1/accept and /v1/reject: answers of people, which the collection learns."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from pearl_qdrant.linking.learned.ledger import LearnedBatch
from pearl_qdrant.service.bodies.ledger import AcceptBody, BatchAnswer, RejectBody
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere

router = APIRouter(tags=["learning"])


@router.post("/v1/accept", response_model=BatchAnswer, responses=declared(403, 404, 415))
async def accept(body: AcceptBody, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Learn that a mention meant an entity, or none; effective at once."""
    body.check(settings)
    handle = await collections.get(body.collection)
    return _answer(handle, await handle.accept(body.mention, body.entity_id))


@router.post("/v1/reject", response_model=BatchAnswer, responses=declared(403, 404, 415))
async def reject(body: RejectBody, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Learn that a mention did not mean an entity; effective at once."""
    body.check(settings)
    handle = await collections.get(body.collection)
    return _answer(handle, await handle.reject(body.mention, body.entity_id))


def _answer(handle: CollectionHandle, batch: LearnedBatch) -> Response:
    return json_answer({"collection": handle.name, "number": batch.number, "kind": batch.kind, "time": batch.time})
