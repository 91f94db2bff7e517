"""The options of `pearl-qdrant ingest` that control how files are read, from the registry of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ingest.formats import FORMAT_NAMES, FORMATS, ReadOptions, all_options

if TYPE_CHECKING:
    from ingest.base.format import FormatOption

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = "columns"

FLAGS = {option.field: option.flag for option, _ in all_options()} | {_COLUMNS: "a column option"}
"""The flag of each field of `ReadOptions`, for errors."""

format_option: Callable[[F], F] = click.option(
    "--format",
    "kind",
    default="auto",
    show_default=True,
    metavar="FORMAT",
    help=f"auto finds the format in the content; or one of {', '.join(FORMAT_NAMES)}, or a base that --formats lists.",
)


def print_formats(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    """Print the formats and known bases, with the files that each reads, and end."""
    if not is_asked or context.resilient_parsing:
        return
    from ingest.formats import known_bases

    every = (*FORMATS, *known_bases())
    width = max(len(one.name) for one in every)
    for one in every:
        click.echo(f"{one.name:<{width}}  {one.title}: {one.what}")
    context.exit()


def reading_options(command: F) -> F:
    """Add a flag for each option of the formats; its help text names the formats that take it."""
    command = click.option(
        "--layout",
        "layouts",
        type=click.Path(dir_okay=False),
        multiple=True,
        help="Tables: a base of your own, described as JSON; may be repeated.",
    )(command)
    for option, formats in reversed(tuple(all_options())):
        titles = ", ".join(one.title for one in formats)
        add = click.option(
            option.flag,
            _parameter(option),
            type=_type_of(option),
            metavar=option.metavar,
            multiple=option.is_repeated,
            is_flag=option.is_switch,
            help=f"{titles}: {option.help}",
        )
        command = add(command)
    return command


def _parameter(option: FormatOption) -> str:
    return option.field.replace(".", "_")


def _type_of(option: FormatOption) -> click.ParamType[Any] | None:
    if option.choices:
        return click.Choice(option.choices, case_sensitive=False)
    if option.minimum is not None:
        return click.IntRange(option.minimum)
    return None


def read_options(given: Mapping[str, Any]) -> ReadOptions:
    """The options of reading from the parameters of the command.

    Args:
        given: ``limit``, and the parameters of `reading_options`.
    """
    from ingest.readers.columns import TableColumns
    from ingest.readers.layouts import read_bases

    values = {option.field: given[_parameter(option)] for option, _ in all_options()}
    columns = TableColumns(
        **{field.partition(".")[2]: value for field, value in values.items() if field.startswith(f"{_COLUMNS}.")}
    )
    others = {field: value for field, value in values.items() if "." not in field}
    bases = tuple(base for path in given["layouts"] for base in read_bases(path))
    return ReadOptions(
        limit=given["limit"], bases=bases, columns=None if columns == TableColumns() else columns, **others
    )
