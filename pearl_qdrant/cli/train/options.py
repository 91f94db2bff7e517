"""Options of the training commands; their defaults come from the library's records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.options import MIN_COUNT

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
RATE = click.FloatRange(0, min_open=True)
SAMPLING = ("lowest-score", "random-ngram", "random-span", "entity")


def sampling_of(option: str | None) -> str | None:
    """Return the library's name of a value of `--sampling`."""
    return None if option is None else option.replace("-", "_")


def option_of(record: type[Any]) -> Callable[..., Callable[[F], F]]:
    """Return a `click.option` whose default is that of a field of a dataclass.

    It is called as `option(flag, field, **attributes)`: the flag, the field's name, and what `click.option` takes.
    """
    defaults = {field.name: field.default for field in fields(record)}

    def option(flag: str, field: str, **attributes: Any) -> Callable[[F], F]:
        default = defaults[field]
        if default is MISSING:
            attributes["required"] = True
        elif default is not None and default is not False and default != ():
            attributes |= {"default": default, "show_default": True}
        return click.option(flag, field, **attributes)

    return option


def taken(record: type[T], options: dict[str, Any], **changes: Any) -> T:
    """Return a record of options; its fields are removed from the options of a command, and `changes` win."""
    found = {field.name: options.pop(field.name) for field in fields(cast("Any", record)) if field.name in options}
    return record(**found | changes)


phrases_option: Callable[[F], F] = click.option(
    "--phrases",
    type=PATH,
    multiple=True,
    metavar="PATH",
    help="Corpus folder, freq_phrase.txt, phrase_with_etype.txt or entities.jsonl; may be repeated.",
)

aliases_option: Callable[[F], F] = click.option(
    "--aliases",
    type=PATH,
    multiple=True,
    metavar="PATH",
    help="Base in any format that ingest reads: names of one entity are positives; may be repeated.",
)

min_count_option: Callable[[F], F] = click.option(
    "--min-count",
    type=click.IntRange(1),
    default=MIN_COUNT,
    show_default=True,
    help="Phrases that occur less often in a corpus are skipped.",
)

max_errors_option: Callable[[F], F] = click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=DEFAULT_MAX_ERRORS,
    show_default=True,
    help="Bad rows that all inputs together may have.",
)

base_model_option: Callable[[F], F] = click.option(
    "--base-model",
    "base_model",
    required=True,
    metavar="DIR|HUB",
    help="Encoder to start from: a folder or a hub id.",
)
