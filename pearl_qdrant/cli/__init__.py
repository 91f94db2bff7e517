"""The command line. A command parses its options, calls one library function, and prints the result.

Data goes to stdout, messages and progress go to stderr. This is the one place that turns a `PearlQdrantError` into exit
status 1, and that adds the name of a flag to its message. click uses status 2 for usage errors; Ctrl-C gives 130.
Commands import the library when they run, so that `--help` only imports click.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

import click

from pearl_qdrant._version import __version__
from pearl_qdrant.cli.calibrate import calibrate, learn
from pearl_qdrant.cli.collections import collections, entities
from pearl_qdrant.cli.ingest import ingest
from pearl_qdrant.cli.link import annotate, demo, link
from pearl_qdrant.cli.models import doctor, evaluate, models, reencode
from pearl_qdrant.cli.names import crosswalk, resolve
from pearl_qdrant.cli.serve import mcp, serve
from pearl_qdrant.cli.setting import RENAMED, flag_of, replacement
from pearl_qdrant.cli.terminal import (
    OutputError,
    echo,
    show_usage_error,
    silence_output,
    start_logging,
    visible_streams,
)
from pearl_qdrant.errors import PearlQdrantError

_INTERRUPTED = 130
_LEAST_ADDRESS_SPACE = 512 * 1024 * 1024  # bytes; above it, what does not fit is an error that is told
_PATH_CHARS = 200  # of a path in a message
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")  # where a library is loaded

log = logging.getLogger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pearl-qdrant")
@click.option("-v", "--verbose", is_flag=True, help="Show more messages on stderr.")
def cli(verbose: bool) -> None:
    """Entity linking over Qdrant with PEARL phrase embeddings.

    \b
    pearl-qdrant demo
    pearl-qdrant ingest names.tsv --collection names
    pearl-qdrant link "nytimes.com" --type ORG
    """
    start_logging(verbose=verbose)
    if not {"-h", "--help"} & {*sys.argv}:
        _check_address_space()


def _check_address_space() -> None:
    """Refuse a limit below which libraries end the process, without a word of what it lacks."""
    with suppress(ImportError):  # on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if 0 <= limit < _LEAST_ADDRESS_SPACE:
            raise PearlQdrantError(
                f"this process may use {limit / 1e6:,.0f} MB of address space, and needs 1,500 at least. Allow more: "
                "ulimit -v unlimited"
            )


class _Training(click.Group):
    """The stages of training; they are imported when one is asked for."""

    @cached_property
    def commands(self) -> dict[str, click.Command]:  # type: ignore[override]  # click has an attribute here
        from pearl_qdrant.cli import training

        return {name: getattr(training, name) for name in training.COMMANDS}

    def __init__(self, name: str | None = None, **attributes: object) -> None:
        super().__init__(name, **attributes)  # type: ignore[arg-type]
        del self.commands  # what click has set; the next access imports the commands


@click.group(cls=_Training)
def train() -> None:
    """Refresh the encoder: phrases, character encoder, fine-tuning, type head, averaging, export.

    The stages need the extra `train`; without it each command prints how to install it.
    """


_WORK = (ingest, link, annotate, learn, calibrate, collections, reencode, entities, resolve, crosswalk)
for _command in (*_WORK, models, evaluate, train, demo, doctor, serve, mcp):
    cli.add_command(_command)


def main() -> None:
    """Run the command line and exit."""
    with visible_streams():
        _run()


def _run() -> None:
    try:
        # A command that finds problems (verify, doctor) returns its exit status instead of raising.
        status = cli(standalone_mode=False)
    except PearlQdrantError as error:
        if isinstance(error, OutputError):
            silence_output()
        _print_error(message_of(error))
        sys.exit(1)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error, click.Abort) and not isinstance(error.__cause__, KeyboardInterrupt):
            _print_error("nothing was done: it was not confirmed. To run without a question, add --yes")
            sys.exit(1)
        _print_error("interrupted; what was stored is kept, and the same command resumes from there")
        sys.exit(_INTERRUPTED)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and (new := replacement(error)):
            error = click.UsageError(f"No such option: {error.option_name}. Write {new}", error.ctx)
        show_usage_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output has exited, as in `| head`
        silence_output()
        sys.exit(1)
    except (OSError, MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and not any(sign in str(error) for sign in _NO_MEMORY):
            raise
        log.info("The error in full:", exc_info=error)
        _print_error(_message_of_system(error))
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def message_of(error: PearlQdrantError) -> str:
    """Return the message of an error, with what to write for the option that would help."""
    message, flag = str(error), ""
    if error.option:
        plain = f"--{error.option.replace('_', '-')}"
        flag = flag_of(_command_of(sys.argv[1:]), error.option) or RENAMED.get(plain, plain)
    if "one column for both ids and names" in message:
        flag += ", or for a list --id-column 1 --name-column 1"
    return message if flag in message else f"{message} Option: {flag}"


def _command_of(words: Iterable[str]) -> click.Command:
    """The command that the words of a line name."""
    command: click.Command = cli
    for word in words:
        if isinstance(command, click.Group):
            command = command.commands.get(word, command)
    return command


def _message_of_system(error: OSError | MemoryError | ImportError) -> str:
    """What the operating system refused, with the start of the path, and what to do."""
    if isinstance(error, ImportError):
        return f"memory ran out while a library was loaded ({error}). Free some, or allow more (ulimit -v)"
    if isinstance(error, MemoryError):
        return "memory ran out; what was stored is kept. Free some, or take less at once"
    path = "" if error.filename is None else os.fsdecode(error.filename)
    shown = f": {path[:_PATH_CHARS]}{'…' if len(path) > _PATH_CHARS else ''}" if path else ""
    return f"{error.strerror or error}{shown}"


def _print_error(message: str) -> None:
    echo(f"Error: {message}", err=True)
