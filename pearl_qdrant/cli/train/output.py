"""What the training commands print, and errors of the library in terms of flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.errors import OptionError
from training.options import TrainingEvents

_QUOTED = re.compile(r"'(\w+)'")


class TrainingOutput(TrainingEvents):
    """Prints the events of a stage on stderr; encoding has a progress bar per task."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        """Print the counts."""
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in skipped.items())
        echo(f"{count:,} examples{f'; skipped: {reasons}' if reasons else ''}", err=True)

    def types_at_risk(self, kept: int, known: int) -> None:
        """Warn, and say how to keep the type head."""
        echo(
            f"These names have {kept} of the {known} entity types that the type head knows: it will forget the others. "
            f"Keep the head unchanged with --type-weight 0, or add names of the other types",
            err=True,
        )

    def names_encoded(self, task: str, count: int) -> None:
        """Move the progress bar of the task."""
        from tqdm import tqdm

        if task not in self._bars:
            self._bars[task] = tqdm(unit=" names", unit_scale=True, desc=task, disable=None)
        self._bars[task].update(count)

    def close(self) -> None:
        """Remove the progress bars."""
        for bar in self._bars.values():
            bar.close()


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
