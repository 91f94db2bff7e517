"""The command `pearl-qdrant demo`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pearl_qdrant.cli.annotate import annotate
from pearl_qdrant.cli.common.options import Target, store_option
from pearl_qdrant.cli.common.terminal import ask, echo
from pearl_qdrant.cli.link import link, link_lines

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker

SHOWN = (
    ("A name of the base, and one that it lacks: no entity is certain enough, so the answer is NIL.",
     "link NYTimes 'hepatitis Z' --limit 1"),
    ("Two entities have this name, and nothing separates them: NIL, with both. A type decides.",
     "link Giants --limit 2"),
    ("A slip, and why it is linked.",
     "link 'heart atack' --limit 1 --explain"),
    ("Mentions in running text.",
     "annotate 'She read the NYTimes after her heart attack (MI).'"),
)  # fmt: skip
"""What each command shows, and the command."""


@click.command()
@click.option("--collection", default="demo", show_default=True, metavar="NAME", help="Collection of the sample base.")
@store_option
@click.pass_context
def demo(context: click.Context, collection: str, store: str) -> None:
    """Load a sample base of well-known entities, and link a few mentions to it.

    At a terminal, link mentions of your own then; an empty line ends. The collection stays, for other commands.

    \b
    pearl-qdrant demo
    pearl-qdrant demo --store demo-store
    """
    from ingest.sample import load_sample

    found = load_sample(collection, store=store)
    echo(f"Collection '{collection}' in {store}: {found.entities:,} entities with {found.names:,} names.")
    chosen = ["--collection", collection]
    if context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        chosen += ["--store", store]
    for says, line in SHOWN:
        command, *words = shlex.split(line)
        echo("", f"# {says}", f"$ pearl-qdrant {line} {shlex.join(chosen)}")
        given = [*words, "--collection", collection, "--store", store]
        (link if command == "link" else annotate).main(given, standalone_mode=False)
    if sys.stdin.isatty() and sys.stdout.isatty():
        echo("", "Link mentions of your own; an empty line ends.")
        with Target(store, (collection,)).open() as linker:
            _answer(linker)


def _answer(linker: EntityLinker) -> None:
    """Ask for mentions, and link and explain each, until an empty line or the end of the input."""
    from pearl_qdrant.linking.ranking.explain import explain_link

    while True:
        try:
            mention = ask("mention")
        except click.Abort:  # Ctrl-D
            echo("", err=True)
            return
        if not mention.strip():
            return
        found = linker.link(mention, limit=3)
        lines = explain_link(found, linker.calibration, linker.model)
        echo(*link_lines(found), *(f"    {line}" for line in lines))
