"""POST /v1/link: mentions to links."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.records import Link
from pearl_qdrant.service.bodies.linking import LinkAnswer, LinkBody, link_record
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere

router = APIRouter(tags=["linking"])

_MANY = 500
"""From this many candidates on, their records are made in a thread: they take some milliseconds."""


@router.post("/v1/link", response_model=LinkAnswer, responses=declared(404, 415))
async def link(body: LinkBody, request: Request, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Link mentions to entities of a collection, each with a probability, or to NIL with a reason."""
    body.check(settings)
    handle = await collections.get(body.collection)
    links = await handle.link(body.mentions, body.options(), is_gone=request.is_disconnected)

    def answer() -> Response:
        linker = handle.linker if body.explain else None
        return json_answer({"collection": handle.name, "links": _records(links, linker)})

    return answer() if len(links) * body.limit < _MANY else await asyncio.to_thread(answer)


def _records(links: Sequence[Link], explaining: EntityLinker | None) -> list[dict[str, Any]]:
    """The JSON of links, with explanations if their linker is given."""
    if explaining is None:
        return [link_record(one) for one in links]
    calibration, model = explaining.calibration, explaining.model
    return [link_record(one, explanation=explain_link(one, calibration, model)) for one in links]
