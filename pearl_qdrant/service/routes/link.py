"""POST /v1/link: mentions to links."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.service.bodies.linking import LinkAnswer, LinkBody, link_record
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.answers import declared, json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere, SettingsHere, check_count, check_number

router = APIRouter(tags=["linking"])


@router.post("/v1/link", response_model=LinkAnswer, responses=declared(404))
async def link(body: LinkBody, request: Request, collections: CollectionsHere, settings: SettingsHere) -> Response:
    """Link mentions to entities of a collection, each with a probability, or to NIL with a reason."""
    check_link_limits(body, settings)
    handle = await collections.get(body.collection)
    links = await handle.link(body.mentions, body.options(), is_gone=request.is_disconnected)
    linker = handle.linker
    records = [
        link_record(one, explanation=explain_link(one, linker.calibration, linker.model) if body.explain else None)
        for one in links
    ]
    return json_answer({"collection": handle.name, "links": records})


def check_link_limits(body: LinkBody, settings: ServiceSettings) -> None:
    """Refuse what is over a limit.

    Raises:
        LimitError: It names the limit.
    """
    check_count(body.mentions, "max_mentions", settings, "mentions")
    for mention in body.mentions:
        check_count(mention, "max_mention_characters", settings, "mentions")
    check_count(body.types, "max_types", settings, "types")
    check_count(body.context or "", "max_text_characters", settings, "context")
    check_number(body.limit, "max_limit", settings, "limit")
