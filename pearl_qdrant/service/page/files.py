"""The files of the page, with headers that forbid everything but themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.types import Scope

FOLDER = Path(__file__).resolve().parent / "static"

PREFIX = "/page"
"""Where the files are; `/` itself is `index.html`."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # A name can never become markup: the browser refuses every assignment of HTML.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",  # asked again by ETag, so that an upgrade shows at the next load
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        return _guarded(await super().get_response(path, scope))


def _guarded(answer: Response) -> Response:
    answer.headers.update(HEADERS)
    return answer


def mount_files(app: FastAPI) -> None:
    """Answer `/` and the paths below `PREFIX` with the files of the page."""
    app.mount(PREFIX, _Files(directory=FOLDER), name="page")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Any:
        return _guarded(FileResponse(FOLDER / "index.html", media_type="text/html; charset=utf-8"))
