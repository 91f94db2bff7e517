"""What `pearl-qdrant evaluate --task linking` has beyond the other tasks: its options, and its methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pearl_qdrant.cli.terminal import echo
from training.evaluation.defaults import DEFAULT_FOLDS, DEFAULT_MENTIONS, DEFAULT_NIL_SHARES

if TYPE_CHECKING:
    from training.evaluation.data import Data
    from training.evaluation.run import Report
    from training.evaluation.task import EvaluationOptions, LinkingOptions, Task

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


@dataclass(frozen=True)
class LinkingRun:
    """What a run of the linking tasks is made of.

    Attributes:
        model: Name of the model.
        device: Where it runs.
        baselines: Other models, by their vectors alone.
        bases: Folder for the loaded bases, or None.
        ablation: Whether to leave out each feature in turn.
    """

    model: str
    device: str
    baselines: Sequence[str]
    bases: Path | None
    ablation: bool


def linking_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def as_linking_options(folds: tuple[int, ...], mentions: int, nil_shares: tuple[float, ...]) -> LinkingOptions:
    """The options as the evaluation wants them."""
    from training.evaluation.task import LinkingOptions

    return LinkingOptions(
        folds=tuple(sorted(set(folds))), n_mentions=mentions, nil_shares=tuple(dict.fromkeys(nil_shares))
    )


def evaluate_linking(run: LinkingRun, data: Data, tasks: Sequence[Task], options: EvaluationOptions) -> Report:
    """Measure the linker with a model beside its parts and what users have today."""
    from pearl_qdrant.encoder.loading import load_encoder
    from pearl_qdrant.linking.ranking import FEATURES, shipped_model
    from training.evaluation.linking_base import Bases
    from training.evaluation.linking_methods import Ablation, Dense, Fusion, Linker, LinkingMethod
    from training.evaluation.linking_peers import peers
    from training.evaluation.run import evaluate

    def say(line: str) -> None:
        echo(line, err=True)

    encoder = load_encoder(run.model, device=run.device)
    with Bases(run.bases, say=say) as bases:
        linker = Linker(encoder, bases)
        strings = peers()
        dense = Dense(encoder, bases, name="dense")
        others: list[LinkingMethod] = [*strings, dense, Fusion([dense, strings[-1]])]
        others += [Dense(load_encoder(name, device=run.device), bases, name=name) for name in run.baselines]
        if run.ablation:
            used = [name for name, value in zip(FEATURES, shipped_model().features, strict=True) if value]
            others += [Ablation(linker, name) for name in used]
        return evaluate(data, linker, others, tasks, options, say=say)


def join_reports(first: Report | None, second: Report | None) -> Report:
    """One report of two, of which one may not be."""
    from training.evaluation.run import Report

    if first is None or second is None:
        return first or second or Report("", (), (), {})
    return Report(
        first.model,
        tuple(dict.fromkeys((*first.baselines, *second.baselines))),
        (*first.results, *second.results),
        {**first.skipped, **second.skipped},
    )
