"""GET /health/live and /health/ready: for those who start, stop and balance services. They need no key."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from pearl_qdrant.service.web.answers import json_answer
from pearl_qdrant.service.web.dependencies import CollectionsHere

router = APIRouter(tags=["health"])


class HealthAnswer(BaseModel):
    """Whether the service works; a problem says why not."""

    status: str
    problems: list[str] = []


@router.get("/health/live", response_model=HealthAnswer)
async def live() -> Response:
    """The process answers."""
    return json_answer({"status": "live", "problems": []})


@router.get("/health/ready", response_model=HealthAnswer, responses={503: {"model": HealthAnswer}})
async def ready(collections: CollectionsHere) -> Response:
    """Every collection that is served is open, and the store answers."""
    problems = await collections.problems()
    status = "not ready" if problems else "ready"
    return json_answer({"status": status, "problems": problems}, status=503 if problems else 200)
