"""`pearl-qdrant train`: the stages of training."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module

import click

_COMMANDS_OF = {
    "data": ("corpus", "ngrams", "paraphrase", "synonyms", "negatives"),
    "fit": ("love", "fit", "ulr", "refresh"),
    "finish": ("average", "head", "export"),
}
"""The commands of each module in this folder."""


class _LazyGroup(click.Group):
    """A group whose commands are imported on first use, so that `pearl-qdrant --help` does not pay for them."""

    @cached_property
    def commands(self) -> dict[str, click.Command]:  # type: ignore[override]  # click has an attribute here
        return {
            name: getattr(import_module(f"{__name__}.{module}"), name)
            for module, names in _COMMANDS_OF.items()
            for name in names
        }

    def __init__(self, name: str | None = None, **attributes: object) -> None:
        super().__init__(name, **attributes)  # type: ignore[arg-type]
        del self.commands  # what click has set; the next access imports the commands


@click.group(cls=_LazyGroup)
def train() -> None:
    """Refresh the encoder: phrases, character encoder, fine-tuning, type head, averaging, export.

    The stages need the extra `train`; without it each command prints how to install it.
    """
