"""POST /v1/annotate and /v1/documents: mentions of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.responses import Response

from pearl_qdrant.records import Annotation
from pearl_qdrant.service.bodies.texts import AnnotateBody, AnnotationsAnswer, DocumentBody, annotation_record
from pearl_qdrant.service.errors import InvalidRequestError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere

router = APIRouter(tags=["texts"])


@router.post("/v1/annotate", response_model=AnnotationsAnswer, responses=declared(404, 415))
async def annotate(body: AnnotateBody, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Find the mentions of a text and link them."""
    body.check(settings)
    handle = await collections.get(body.collection)
    return await _answer(handle, await handle.annotate(body.text, body.options()))


@router.post("/v1/documents", response_model=AnnotationsAnswer, responses=declared(404, 415))
async def documents(body: DocumentBody, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Link the mentions of a document together, where their places are known."""
    body.check(settings)
    length = len(body.text)
    for number, span in enumerate(body.spans):
        if not span.start < span.end <= length:
            raise InvalidRequestError(
                f"spans.{number} is {span.start} to {span.end}, but the text has {length} characters. Offsets count "
                f"code points from 0; the end is behind the last character.",
                where=f"spans.{number}",
            )
    handle = await collections.get(body.collection)
    spans = [(span.start, span.end) for span in body.spans]
    return await _answer(handle, await handle.link_document(body.text, spans, body.options(), without=body.without))


async def _answer(handle: CollectionHandle, found: Sequence[Annotation]) -> Response:
    """The answer, made in a thread: a text has thousands of mentions."""
    return await asyncio.to_thread(
        lambda: json_answer({"collection": handle.name, "annotations": [annotation_record(one) for one in found]})
    )
