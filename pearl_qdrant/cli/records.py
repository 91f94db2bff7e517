"""Options of the training commands, made from the library's records, and what the commands print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click

from pearl_qdrant.cli.shared import attribute_texts, device_option, needs_extra
from pearl_qdrant.cli.terminal import echo
from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_DEVICE
from training.options import Hint, Paths, TrainingEvents, Within, hints_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)

_MARKED = re.compile(r"`([^`]+)`")


class _Named(click.Choice[str]):
    """A choice among the library's names, which may be typed with dashes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._of = {name.replace("_", "-"): name for name in names}
        super().__init__(list(self._of))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self._of.values() else self._of[super().convert(value, param, ctx)]


def options_of(
    record: type[Any], *, flags: Mapping[str, str] | None = None, without: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Return a decorator that adds an option for each field of a record, in its order.

    Args:
        record: A dataclass; the text of a field under `Attributes` in its docstring is the help.
        flags: Flags of fields, where they are not the field's own name.
        without: Fields that are arguments of the command, or Python's alone.
    """
    named = {field.name: (flags or {}).get(field.name, f"--{field.name.replace('_', '-')}") for field in fields(record)}
    helps, hints = attribute_texts(record), hints_of(record)

    def decorate(command: F) -> F:
        # Applied from below: the record's own fields come first, then those of the record that it extends.
        for field in sorted(fields(record), key=lambda field: field.name not in record.__annotations__)[::-1]:
            if field.name not in without:
                text = _MARKED.sub(lambda found: named.get(found[1], found[1]), helps.get(field.name, ""))
                command = _option(field, hints[field.name], named[field.name], text)(command)
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
        text = f"{text.removesuffix('.')}; may be repeated."
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


def taken(record: type[T], options: dict[str, Any]) -> T:
    """Return a record of options; its fields are removed from the options of a command."""
    names = [field.name for field in fields(cast("Any", record)) if field.name in options]
    return record(**{name: options.pop(name) for name in names})


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
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(unit=" names", unit_scale=True, desc="encode", disable=None)
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
