"""A hook of MkDocs that writes the command reference from the click tree, so that it cannot disagree with `--help`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from pearl_qdrant.cli import cli

MARK = "<!-- commands -->"
"""Where the reference goes in a page."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs with the text of each page; replaces the mark."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n".join(describe(cli, click.Context(cli, info_name="pearl-qdrant"))))


def describe(command: click.Command, context: click.Context) -> Iterator[str]:
    """Markdown of a command and of the commands in it."""
    path = context.command_path
    depth = len(path.split())
    if depth > 1:
        yield f"{'#' * depth} {path} {{ #{'-'.join(path.split()[1:])} }}\n"
    yield from describe_help(command)
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from describe_options(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from describe(inner, click.Context(inner, info_name=name, parent=context))


def describe_help(command: click.Command) -> Iterator[str]:
    """The help text; paragraphs that click must not wrap are examples."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_example = paragraph.startswith("\b")
        yield f"```text\n{paragraph[1:].strip()}\n```\n" if is_example else f"{paragraph}\n"


def describe_options(command: click.Command, context: click.Context) -> Iterator[str]:
    """A table of the options, with values, defaults and variables as `--help` shows them."""
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    rows = [f"| <code>{cell(names)}</code> | {cell(meaning)} |" for names, meaning in filter(None, records)]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""])


def cell(text: str) -> str:
    """Text that may stand in a cell of a table: without the marks of tables, links and tags."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return escaped.replace("|", "&#124;").replace("[", "&#91;")
