"""Options from the fields of `Options`, and `--set NAME=VALUE` for the fields that have no option of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pearl_qdrant.cli.terminal import echo
from pearl_qdrant.errors import OptionError

if TYPE_CHECKING:
    from pearl_qdrant.options import Options

F = TypeVar("F", bound=Callable[..., Any])

RENAMED = {
    "--again": "--yes",
    "--force": "--yes",
    "--formats": "--format help",
    "--json": "the call in Python, which returns the figures",
    "--list": "--task help",
    "--max-fall": "the same command without --everyday, which switches to the version that it kept",
    "--mentions": "--ask FILE",
    "--model": "the variable PEARL_QDRANT_MODEL",
    "--pairs": "--labelled",
    "--sssom": "--out FILE.sssom.tsv",
    "--torch": "the command without it",
    "--transport": "--port PORT for HTTP, and nothing for stdio",
    "--writable": "--allow-writing",
}
"""What replaced an option that was there before."""

_OTHER_FLAGS = {
    "assertions": ("--assertion",),
    "bases": ("--base",),
    "batch_size": ("--batch",),
    "classes": ("--class",),
    "include_nil": ("--nil",),
    "languages": ("--name-language",),
    "layouts": ("--layout",),
    "limit": ("--max-entities",),
    "min_pmi": ("--threshold",),
    "records": ("--sheet",),
    "sabs": ("--sab",),
    "scopes": ("--synonym-scope",),
    "semantic_types": ("--semantic-type",),
    "wait_s": ("--wait",),
    "workers": ("--jobs",),
}
"""Further options that are settings, by their names."""

_DEST = "set "  # before the name of a setting, where click keeps what was given as an option of that name


class SetOption(click.Option):
    """`--set NAME=VALUE`, or `--name VALUE`, given to the command as a dict of values. The model (MODULE:CLASS) is
    imported when it is needed: pydantic takes as long as all of click.
    """

    def __init__(self, flags: Sequence[str], *, source: str, **attributes: Any) -> None:
        super().__init__(flags, multiple=True, metavar="NAME=VALUE", callback=self.values_of, **attributes)
        self._source = source

    @cached_property
    def model(self) -> type[Options]:
        module, _, name = self._source.partition(":")
        found: type[Options] = getattr(import_module(module), name)
        return found

    def explained(self, command: click.Command) -> dict[str, str]:
        """The names that it takes, with what each means: all fields but those with an option of their own."""
        return dict(self.model.describe(but=_names(command)))

    def add_to_parser(self, parser: click.parser._OptionParser, ctx: click.Context) -> None:
        """Take `--name-of-a-setting VALUE`, too, as `--set name_of_a_setting=VALUE`."""
        super().add_to_parser(parser, ctx)
        taken = {flag for one in ctx.command.params for flag in one.opts}
        for name in self.explained(ctx.command):
            own = f"--{name.replace('_', '-')}", *_OTHER_FLAGS.get(name, ())
            flags = [flag for flag in own if flag not in taken]
            is_flag = self.model.model_fields[name].annotation is bool
            action = "append_const" if is_flag else "append"
            if flags:
                parser.add_option(self, flags, _DEST + name, action, 0 if is_flag else 1, "yes" if is_flag else None)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, click.core.ParameterSource]:
        given = {key.removeprefix(_DEST): texts for key, texts in opts.items() if key.startswith(_DEST)}
        written = [f"{name}={text}" for name, texts in given.items() for text in texts]
        if not written:
            return super().consume_value(ctx, opts)
        return (*(opts.get(str(self.name)) or ()), *written), click.core.ParameterSource.COMMANDLINE

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names = ", ".join(self.explained(ctx.command))
        self.help = f"Another setting, explained by `--set help`; may be repeated: {names}."
        return super().get_help_record(ctx)

    def values_of(self, ctx: click.Context, _: click.Parameter, texts: Sequence[str]) -> dict[str, Any]:
        """The values of the fields that the texts and the environment name; explains them and ends for help."""
        if "help" in texts:
            for name, text in self.explained(ctx.command).items():
                echo(f"{name}  {text}")
            ctx.exit()
        try:
            return self.model.read(texts, but=_names(ctx.command), environment=os.environ)
        except OptionError as error:
            raise click.BadParameter(str(error), ctx, self) from error


def _names(command: click.Command) -> list[str]:
    """The arguments of the library that a command has options of their own for."""
    return [str(one.name) for one in command.params]


def set_option(source: str) -> Callable[[F], F]:
    """A decorator that adds `--set`, which the command takes as `settings`: the values that were given for fields of
    MODULE:CLASS, or of a class of `pearl_qdrant.cli.rare`.
    """
    where = source if ":" in source else f"pearl_qdrant.cli.rare:{source}"
    return click.option("--set", "settings", cls=SetOption, source=where)


def field_option(model: type[Options], name: str, *flags: str, **attributes: Any) -> Callable[[F], F]:
    """A decorator that adds an option for a field of a model, which checks its value; None or () if it is not given."""
    field = model.model_fields[name]
    help_text = " ".join((field.description or "").split()) + (" May be repeated." if "multiple" in attributes else "")
    names = flags or (f"--{name.replace('_', '-')}",)
    return click.option(*names, name, required=field.is_required(), help=help_text, **attributes)


def _settings_of(command: click.Command) -> dict[str, str]:
    """The settings that a command takes, with what each means."""
    return next((one.explained(command) for one in command.params if isinstance(one, SetOption)), {})


def flag_of(command: click.Command, name: str) -> str | None:
    """What a user of a command writes for an argument of the library: an option, a setting or an argument."""
    if name == "columns":
        return "a column option"
    for one in command.params:
        if one.name == name:
            return one.opts[0] if isinstance(one, click.Option) else one.human_readable_name
    return f"--set {name}" if name in _settings_of(command) else None


def replacement(error: click.NoSuchOption) -> str | None:
    """What to write for an option that has another name now, or is nearly the name of a setting; None for others."""
    if error.ctx is None:
        return None
    command, new = error.ctx.command, RENAMED.get(error.option_name, "")
    flags = [flag for one in command.params for flag in one.opts]
    if new.startswith(("the ", *flags)):
        return new
    name = error.option_name.lstrip("-").replace("-", "_")
    near = get_close_matches(name, list(_settings_of(command)), n=1, cutoff=0.8)
    return f"--set {near[0]}=" if near else None
