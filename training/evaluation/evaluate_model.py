"""Measuring a model on the paper's tasks and on linking: what `pearl-qdrant evaluate` does, in one call."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import MissingDataError, OptionError, SettingsError
from pearl_qdrant.linking.ranking.model import FEATURES, shipped_model
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.evaluation.datasets.data import Data, FolderData
from training.evaluation.datasets.hub import REPOSITORY, HubData
from training.evaluation.defaults import (
    DEFAULT_DISTRACTORS,
    DEFAULT_FOLDS,
    DEFAULT_MENTIONS,
    DEFAULT_NIL_SHARES,
    DEFAULT_SEEDS,
)
from training.evaluation.linking.base import Bases
from training.evaluation.linking.methods import Ablation, Dense, Fusion, Linker, LinkingMethod
from training.evaluation.linking.own_base import OwnBase
from training.evaluation.linking.peers import peers
from training.evaluation.methods import EncoderMethod, Similarity
from training.evaluation.registry import find_tasks
from training.evaluation.requirements import check_installed
from training.evaluation.run import Report, evaluate
from training.evaluation.strings import StringMethod
from training.evaluation.task import EvaluationOptions, LinkingOptions, Task

_log = logging.getLogger(__name__)

_STRINGS = ("jaccard", "tfidf")
_ALL_FOLDS = tuple(range(10))


def evaluate_model(
    data: str | os.PathLike[str],
    model: str = DEFAULT_MODEL,
    *,
    tasks: Sequence[str] = (),
    baselines: Sequence[str] = (),
    seeds: int = DEFAULT_SEEDS,
    distractors: int = DEFAULT_DISTRACTORS,
    figure: Path | None = None,
    folds: Sequence[int] | None = None,
    mentions: int = DEFAULT_MENTIONS,
    nil_shares: Sequence[float] = DEFAULT_NIL_SHARES,
    bases: Path | None = None,
    ablation: bool = False,
    device: str = DEFAULT_DEVICE,
    say: Callable[[str], None] = _log.info,
) -> Report:
    """Run tasks on a model and on baselines. Sets that the folder lacks are skipped and named in the report.

    Args:
        data: Folder with the evaluation sets, a base of your own as one file, or ``hub``.
        model: A shipped name, a folder or a hub id.
        tasks: Names of tasks (`registry.TASKS`); none: all that run by default.
        baselines: Other models, or jaccard or tfidf; none: these two.
        seeds: Runs of what is random.
        distractors: Names added to the dictionary of entity retrieval.
        figure: Where t-SNE by type is drawn, as PNG.
        folds: Linking: entities whose aliases are asked for, by SHA-1 of their id mod 10. None: 7 and 8, or all of a
            base of your own.
        mentions: Linking: of each base at most.
        nil_shares: Linking: shares of mentions whose entity is taken away.
        bases: Linking: folder where loaded bases are kept for the next run.
        ablation: Linking: also without each feature of the ranking.
        device: auto, cpu, cuda or cuda:N.
        say: Gets a line when a task begins and when one is skipped.

    Raises:
        OptionError: If a task is unknown, or not one of a base of your own.
        SettingsError: If a library is missing, or the figure's folder is.
        MissingDataError: If there are none of the files that the tasks read.
        FormatError: If a table is broken.
        ModelError: If a model cannot be loaded.
    """
    _check_before(figure)
    source = _data(data)
    chosen = _tasks(tasks)
    if isinstance(source, OwnBase):
        if set(tasks) - {"linking"}:
            raise OptionError("tasks", "a base of your own has the task linking only")
        chosen, folds = source.tasks(), _ALL_FOLDS if folds is None else folds
    options = EvaluationOptions(
        n_seeds=seeds,
        n_distractors=distractors,
        linking=LinkingOptions(
            folds=tuple(sorted(set(DEFAULT_FOLDS if folds is None else folds))),
            n_mentions=mentions,
            nil_shares=tuple(dict.fromkeys(nil_shares)),
        ),
    )
    plain = [task for task in chosen if not _is_linking(task)]
    methods: list[Similarity] = []
    report = None
    if plain or figure is not None:
        method = _encoder(model, device)
        others = [_method(name, device) for name in dict.fromkeys(baselines or _STRINGS)]
        methods = [method, *others]
        report = evaluate(source, method, others, plain, options, say=say)
    if len(plain) < len(chosen):
        encoders = [name for name in dict.fromkeys(baselines) if name not in (*_STRINGS, model)]
        linking = _LinkingRun(model, device, encoders, bases, ablation)
        report = _joined(report, _evaluate_linking(linking, source, list(filter(_is_linking, chosen)), options, say))
    assert report is not None, "some task was chosen"
    if not report.results:
        raise MissingDataError(os.fspath(data), None, f"has none of the files that {len(chosen)} tasks read")
    if figure is not None:
        from training.evaluation.reports.figure import draw_figure

        draw_figure(figure, source, [method for method in methods if isinstance(method, EncoderMethod)])
        say(f"drew {figure}")
    return report


@dataclass(frozen=True)
class _LinkingRun:
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


def _evaluate_linking(
    run: _LinkingRun, data: Data, tasks: Sequence[Task], options: EvaluationOptions, say: Callable[[str], None]
) -> Report:
    """Measure the linker with a model beside its parts and what users have today."""
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


def _joined(first: Report | None, second: Report) -> Report:
    """One report of two, the first of which may not be."""
    if first is None:
        return second
    return Report(
        first.model,
        tuple(dict.fromkeys((*first.baselines, *second.baselines))),
        (*first.results, *second.results),
        {**first.skipped, **second.skipped},
    )


def _is_linking(task: Task) -> bool:
    return task.needs in ("linking", "large_linking")


def _check_before(figure: Path | None) -> None:
    """Say before anything is encoded what is not installed, and where a figure cannot be."""
    check_installed(*(() if figure is None else ("matplotlib",)))
    if figure is not None and not figure.parent.is_dir():
        raise SettingsError(f"No folder {figure.parent} for the figure. Make it first.")


def _tasks(names: Sequence[str]) -> tuple[Task, ...]:
    try:
        return find_tasks(tuple(names))
    except ValueError as error:
        raise OptionError("tasks", str(error)) from error


def _data(place: str | os.PathLike[str]) -> Data:
    path = Path(place).expanduser()
    # A folder of that name goes before.
    if place in ("hub", REPOSITORY) and not path.is_dir():
        return HubData()
    return OwnBase(path, max_errors=DEFAULT_MAX_ERRORS) if path.is_file() else FolderData(path)


def _encoder(name: str, device: str) -> EncoderMethod:
    return EncoderMethod(load_encoder(name, device=device))


def _method(name: str, device: str) -> Similarity:
    if name in _STRINGS:
        return StringMethod("jaccard" if name == "jaccard" else "tfidf")
    return _encoder(name, device)
