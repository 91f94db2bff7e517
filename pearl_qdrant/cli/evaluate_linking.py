"""The options that `pearl-qdrant evaluate --task linking` has beyond those of the other tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from training.evaluation.defaults import DEFAULT_FOLDS, DEFAULT_MENTIONS, DEFAULT_NIL_SHARES

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--fold",
        "folds",
        type=click.IntRange(0, 9),
        multiple=True,
        default=DEFAULT_FOLDS,
        show_default=True,
        help="Linking: entities whose aliases are asked for, by SHA-1 of their id mod 10; may be repeated.",
    ),
    click.option(
        "--mentions",
        type=click.IntRange(1),
        default=DEFAULT_MENTIONS,
        show_default=True,
        help="Linking: mentions of each base at most.",
    ),
    click.option(
        "--nil-share",
        "nil_shares",
        type=click.FloatRange(0, 1, max_open=True),
        multiple=True,
        default=DEFAULT_NIL_SHARES,
        show_default=True,
        help="Linking: share of mentions whose entity is taken away; may be repeated.",
    ),
    click.option(
        "--bases",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Linking: where loaded bases are kept for the next run.  [default: nowhere]",
    ),
    click.option("--ablation", is_flag=True, help="Linking: also without each feature of the ranking."),
)


def linking_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
