"""Options of commands, made from the library's records, and what the training commands print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from pearl_qdrant.cli.shared import attribute_texts, device_option, needs_extra
from pearl_qdrant.cli.terminal import echo
from pearl_qdrant.errors import OptionError
from pearl_qdrant.progress import counting_bar
from pearl_qdrant.settings import DEFAULT_DEVICE
from training.options import Hint, Paths, TrainingEvents, Within, hints_of

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)

_MARKED = re.compile(r"`([^`]+)`")


class _Named(click.Choice[str]):
    """A choice among the library's names, which may be typed with dashes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value.replace("-", "_") if isinstance(value, str) else value, param, ctx)


def options_of(record: type[Any], names: str, /, **flags: str) -> Callable[[F], F]:
    """Return a decorator that adds options for fields of a record; its other fields are Python's alone.

    Args:
        record: A dataclass; the text of a field under `Attributes` in its docstring is the help.
        names: The fields, in the order of `--help`, with spaces between.
        flags: Flags of fields, where they are not the field's own name.
    """
    named = {name: flags.get(name, f"--{name.replace('_', '-')}") for name in names.split()}
    helps, by_name = attribute_texts(record), {field.name: field for field in fields(record)}
    hints: dict[str, Hint] = {}
    for kind in record.__mro__:  # of the chosen fields alone: others have types that only type checkers import
        annotations = {name: text for name, text in vars(kind).get("__annotations__", {}).items() if name in named}
        chosen = type(kind.__name__, (), {"__annotations__": annotations, "__module__": kind.__module__})
        hints = hints_of(chosen) | hints

    def decorate(command: F) -> F:
        for name, flag in reversed(named.items()):
            text = _MARKED.sub(lambda found: named.get(found[1], found[1]), helps[name])
            command = _option(by_name[name], hints[name], flag, text)(command)
        return command

    return decorate


def _option(field: Field[Any], hint: Hint, flag: str, text: str) -> Callable[[F], F]:
    if field.name == "device" and field.default == DEFAULT_DEVICE:
        return device_option
    default: Any = field.default
    if hint.kind is bool:
        decl = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.option(decl, field.name, is_flag=True, default=default, help=text)
    attributes: dict[str, Any] = {"required": True} if default is MISSING else {}
    if default is not MISSING and default not in (None, ()):
        attributes |= {"default": default, "show_default": True}
    if hint.is_many or hint.kind == frozenset(get_args(Paths)):
        said, sign, default = text.partition(". [")
        text = f"{said.removesuffix('.')}; may be repeated.{' [' if sign else ''}{default}"
        attributes["multiple"] = True
    if hint.choices:
        attributes["type"] = _Named(hint.choices)
    elif isinstance(hint.kind, frozenset):
        attributes |= {"type": PATH, "metavar": "PATH"}
    elif hint.bounds is not None and hint.bounds != Within():
        low, high = hint.bounds.low, hint.bounds.high
        kind: Any = click.IntRange if hint.kind is int else click.FloatRange
        attributes["type"] = kind(low, high, min_open=hint.bounds.low_open, max_open=hint.bounds.high_open)
    elif hint.kind in (int, float):
        attributes["type"] = hint.kind
    return click.option(flag, field.name, help=text, **attributes)


@contextmanager
def refused_values() -> Iterator[None]:
    """Turn a value that a record refuses into a usage error."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


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

base_model_option: Callable[[F], F] = click.option(
    "--base-model", "base_model", required=True, metavar="DIR|HUB", help="Encoder to start from: a folder or a hub id."
)


_QUOTED = re.compile(r"'(\w+)'")


class TrainingOutput(TrainingEvents):
    """Prints the events of a stage on stderr; encoding has a progress bar."""

    def __init__(self) -> None:
        self._bar: Any = None

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in skipped.items())
        echo(f"{count:,} examples{f'; skipped: {reasons}' if reasons else ''}", err=True)

    def types_at_risk(self, kept: int, known: int) -> None:
        echo(
            f"These names have {kept} of the {known} entity types that the type head knows: it will forget the others. "
            f"Keep the head unchanged with --type-weight 0, or add names of the other types",
            err=True,
        )

    def names_encoded(self, count: int) -> None:
        if self._bar is None:
            self._bar = counting_bar("encode", " names")
        self._bar.update(count)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def training_stage() -> Iterator[TrainingOutput]:
    """Run a stage: print its events, name the flags in its errors, and say how to install missing libraries."""
    output = TrainingOutput()
    try:
        with needs_extra("train"), naming_flags():
            yield output
    finally:
        output.close()


@contextmanager
def naming_flags() -> Iterator[None]:
    """Turn an error about an argument of the library into a usage error about the flag."""
    try:
        yield
    except OptionError as error:
        parameters = click.get_current_context().command.params
        flags = {str(p.name): p.opts[0] if isinstance(p, click.Option) else p.human_readable_name for p in parameters}
        message = _QUOTED.sub(lambda found: flags.get(found[1], found[0]), str(error))
        parameter = next((p for p in parameters if p.name == error.option), None)
        raise click.BadParameter(message, param=parameter) from error
