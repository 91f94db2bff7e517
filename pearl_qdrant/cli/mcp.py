"""The command `pearl-qdrant mcp`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, cast

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import only_collection, store_option
from pearl_qdrant.cli.common.terminal import echo

if TYPE_CHECKING:
    from typing import Literal


@click.command()
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Collection to serve; may be repeated."
)
@store_option
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="stdio: the assistant starts this command; http: streamable HTTP at http://HOST:PORT/mcp.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for HTTP; there is no authentication.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port for HTTP.")
@click.option("--writable", is_flag=True, help="Also offer tools that add and delete entities.")
def mcp(collections: tuple[str, ...], store: str, transport: str, host: str, port: int, writable: bool) -> None:
    """Serve collections to assistants over the Model Context Protocol (extra mcp).

    Tools: link, annotate, entity, search. With one collection they need not be told which.

    \b
    pearl-qdrant mcp --collection umls
    pearl-qdrant mcp --collection umls --collection wikidata --transport http --port 8000
    """
    with needs_extra("mcp"):
        from pearl_qdrant.integrations.mcp import serve
    names = list(collections) or [only_collection(store)]
    if transport == "http":
        echo(f"Serving {', '.join(names)} at http://{host}:{port}/mcp", err=True)
    with redirect_stdout(sys.__stdout__):  # the protocol needs the bytes of the stream that main() wraps
        serve(
            names,
            store=store,
            writable=writable,
            transport=cast('Literal["stdio", "http"]', transport),
            host=host,
            port=port,
        )
