"""`pearl-qdrant serve` and `pearl-qdrant mcp`: answers over HTTP, and to assistants."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import click

from pearl_qdrant.cli.setting import set_option
from pearl_qdrant.cli.shared import needs_extra, only_collection, store_option
from pearl_qdrant.cli.terminal import echo


@click.command()
@click.option("--collection", "collections", multiple=True, metavar="NAME", show_default="all of the store",
              help="Collection to serve; may be repeated.")  # fmt: skip
@store_option
@click.option(
    "--host", envvar="PEARL_QDRANT_HOST", show_envvar=True, show_default="127.0.0.1", help="Address to listen on."
)
@click.option("--port", envvar="PEARL_QDRANT_PORT", show_envvar=True, type=click.IntRange(0, 65535),
              show_default="8765", help="Port to listen on; 0 is a free one.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), show_default="1", metavar="N", help="Processes that answer.")
@click.option(
    "--api-keys",
    envvar="PEARL_QDRANT_SERVICE_KEYS_FILE",
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File of API keys, one a line; more are read from PEARL_QDRANT_SERVICE_KEYS. Without any, no key is needed.",
)
@set_option("pearl_qdrant.service.settings:ServiceSettings")
def serve(
    collections: tuple[str, ...],
    store: str,
    api_keys: Path | None,
    settings: dict[str, Any],
    **given: str | int | None,
) -> None:
    """Answer over HTTP: link mentions, annotate texts, look up and suggest entities.

    It listens on this machine alone unless --host says otherwise. SIGTERM stops it when what it accepted is answered.

    \b
    pearl-qdrant serve
    curl -s localhost:8765/v1/link -H 'Content-Type: application/json' -d '{"mentions": ["NYTimes"]}'
    pearl-qdrant serve --workers 2 --api-keys keys.txt --host 0.0.0.0
    """
    with needs_extra("serve"):
        from pearl_qdrant.service.app import serve as run
        from pearl_qdrant.service.gate import read_keys
        from pearl_qdrant.service.settings import ServiceSettings

    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen |= {"store": store, "collections": collections, "api_keys": read_keys(api_keys)}
    run(ServiceSettings(**chosen, **settings))


@click.command()
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Collection to serve; may be repeated."
)
@store_option
@click.option("--port", type=click.IntRange(1, 65535), show_default="none: the assistant starts this command, stdio",
              help="Streamable HTTP at http://127.0.0.1:PORT/mcp, without authentication.")  # fmt: skip
@click.option("--allow-writing", is_flag=True, help="Also offer tools that add and delete entities.")
def mcp(collections: tuple[str, ...], store: str, port: int | None, allow_writing: bool) -> None:
    """Serve collections to assistants over the Model Context Protocol (extra mcp).

    Tools: link, annotate, entity, search. With one collection they need not be told which.

    \b
    pearl-qdrant mcp --collection umls
    pearl-qdrant mcp --collection umls --collection wikidata --port 8000
    """
    with needs_extra("mcp"):
        from pearl_qdrant.integrations.mcp import DEFAULT_PORT, serve
    names = list(collections) or [only_collection(store)]
    if port is not None:
        echo(f"Serving {', '.join(names)} at http://127.0.0.1:{port}/mcp", err=True)
    with redirect_stdout(sys.__stdout__):  # the protocol needs the bytes of the stream that main() wraps
        transport: Literal["stdio", "http"] = "stdio" if port is None else "http"
        serve(names, store=store, writable=allow_writing, transport=transport, port=port or DEFAULT_PORT)
