"""The command `pearl-qdrant serve`."""

from __future__ import annotations

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import device_option, model_option, store_option


@click.command()
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Collection to serve; may be repeated."
)
@store_option
@model_option
@device_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port to listen on.")
def serve(collections: tuple[str, ...], store: str, model: str | None, device: str, host: str, port: int) -> None:
    """Answer over HTTP: link mentions, annotate texts, look up entities.

    \b
    pearl-qdrant serve
    curl -s localhost:8765/v1/link -H 'Content-Type: application/json' -d '{"mentions": ["NYTimes"]}'
    """
    with needs_extra("serve"):
        from pearl_qdrant.service.run import serve as run
        from pearl_qdrant.service.settings import ServiceSettings
    run(ServiceSettings(store=store, collections=collections, model=model, device=device, host=host, port=port))
