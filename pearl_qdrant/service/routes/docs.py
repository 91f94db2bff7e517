"""GET /docs: what there is to ask, as a page that loads nothing."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from pearl_qdrant.service.reconcile.pages import page

router = APIRouter(include_in_schema=False)

_EXAMPLE = """curl -s ADDRESS/v1/link -H 'Content-Type: application/json' -d '{"mentions": ["NYTimes"]}'"""


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """The paths of the service; the schema has their parameters, limits and answers."""
    rows = [
        f"<dt>{escape(method.upper())} {escape(path)}</dt><dd>{escape(operation.get('description', ''))}</dd>"
        for path, operations in request.app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    example = escape(_EXAMPLE.replace("ADDRESS", str(request.base_url).rstrip("/")))
    return page(
        "pearl-qdrant: paths",
        f'<h1>Paths</h1><p>Parameters, limits, answers and examples: <a href="openapi.json">openapi.json</a></p>'
        f"<p><code>{example}</code></p><dl>{''.join(rows)}</dl>",
    )
