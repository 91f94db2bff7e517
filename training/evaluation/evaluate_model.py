"""`evaluate_model` measures a model on the paper's tasks and on linking; `pearl-qdrant evaluate` prints its report."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import MissingDataError, OptionError, SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.linking.ranking.features import FEATURES
from pearl_qdrant.linking.ranking.model import shipped_model
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.evaluation.data import REPOSITORY, Data, FolderData, HubData, OwnBase
from training.evaluation.linking.methods import (
    Ablation,
    Dense,
    EverydayLinker,
    Fusion,
    Linker,
    LinkingMethod,
    LoadedBases,
)
from training.evaluation.linking.peers import everyday_peers, peers
from training.evaluation.methods import Bm25Method, EncoderMethod, Method, StringMethod
from training.evaluation.run import Report, evaluate
from training.evaluation.task import EvaluationOptions, LinkingOptions, Task
from training.options import DEFAULT_DISTRACTORS, DEFAULT_MENTIONS, DEFAULT_NIL_SHARES, DEFAULT_SEEDS, DEFAULT_SPLITS

_LIBRARIES = ("sklearn", "torch")


def check_installed(*more: str) -> None:
    """Check the libraries.

    Args:
        more: Names of further modules.

    Raises:
        SettingsError: If one is not installed; the message has the command that installs it.
    """
    if absent := [library for library in (*_LIBRARIES, *more) if importlib.util.find_spec(library) is None]:
        raise SettingsError(f"evaluate needs {', '.join(absent)}: {install_command('train')}")


_log = logging.getLogger(__name__)

_STRING_METHODS: Mapping[str, Callable[[], Method]] = {
    "jaccard": lambda: StringMethod("jaccard"),
    "tfidf": lambda: StringMethod("tfidf"),
    "bm25": Bm25Method,
}
"""Baselines without a model, by name; all run by default."""
_ALL_SPLITS = tuple(range(10))


def evaluate_model(
    data: str | os.PathLike[str],
    model: str = DEFAULT_MODEL,
    *,
    tasks: Sequence[str] = (),
    baselines: Sequence[str] = (),
    seeds: int = DEFAULT_SEEDS,
    distractors: int = DEFAULT_DISTRACTORS,
    figure: Path | None = None,
    splits: Sequence[int] | None = None,
    mentions: int = DEFAULT_MENTIONS,
    nil_shares: Sequence[float] = DEFAULT_NIL_SHARES,
    bases: Path | None = None,
    ablation: bool = False,
    device: str = DEFAULT_DEVICE,
    progress: Callable[[str], None] = _log.info,
) -> Report:
    """Run tasks on a model and on baselines. Tasks whose data sets are missing are skipped; the report names them.

    Args:
        data: Folder with the evaluation sets, a base of your own as one file, or ``hub``.
        model: A shipped name, a folder or a hub id.
        tasks: Names of tasks (see `list_tasks`); none: all that run by default.
        baselines: Other models, ``jaccard``, ``tfidf`` or ``bm25`` (question retrieval only); none: these three.
        seeds: Number of runs with different random seeds.
        distractors: Names added to the dictionary of entity retrieval.
        figure: Where to draw t-SNE by type, as PNG.
        splits: Linking: which entities give mentions, by SHA-1 of their id mod 10. None: 7 and 8; all for a base of
            your own.
        mentions: Linking: at most this many mentions of each base.
        nil_shares: Linking: shares of mentions whose entity is removed from the base.
        bases: Linking: folder that keeps loaded bases for the next run.
        ablation: Linking: also measure the ranking without each of its features.
        device: auto, cpu, cuda or cuda:N.
        progress: Called with a line when a task starts or is skipped.

    Raises:
        OptionError: If a task does not exist, or cannot run on a base of your own.
        SettingsError: If a library or the folder of the figure is missing.
        MissingDataError: If none of the files that the tasks read exist.
        FormatError: If a table is broken.
        ModelError: If a model cannot be loaded.
    """
    _check_figure(figure)
    source = _open_data(data)
    is_own = isinstance(source, OwnBase)
    chosen = _choose_tasks(tasks, source)
    splits = (_ALL_SPLITS if is_own else DEFAULT_SPLITS) if splits is None else splits
    linking = LinkingOptions(tuple(sorted(set(splits))), mentions, tuple(dict.fromkeys(nil_shares)))
    options = EvaluationOptions(n_seeds=seeds, n_distractors=distractors, linking=linking)
    run = _Run(source, model, tuple(dict.fromkeys(baselines)), options, device, progress)
    report = _run_tasks(run, chosen, bases=bases, ablation=ablation, figure=figure)
    if not report.results:
        raise MissingDataError(os.fspath(data), None, f"has none of the files that {len(chosen)} tasks read")
    return report


def list_tasks() -> tuple[Task, ...]:
    """All tasks: first those that run by default, then those that run only if named.

    Raises:
        SettingsError: If a library of the extra `train` is missing.
    """
    check_installed()
    from training.evaluation.registry import ON_REQUEST, TASKS

    return (*TASKS, *ON_REQUEST)


@dataclass(frozen=True)
class _Run:
    """What all tasks of a run share.

    Attributes:
        data: Where the sets are.
        model: Name of the model.
        baselines: Names of the baselines, each once.
        options: Options of the tasks.
        device: Where the encoders run.
        progress: Called with a line when a task starts or is skipped.
    """

    data: Data
    model: str
    baselines: tuple[str, ...]
    options: EvaluationOptions
    device: str
    progress: Callable[[str], None]

    def encoder_method(self, name: str) -> EncoderMethod:
        """A model as a method."""
        return EncoderMethod(load_encoder(name, device=self.device))

    def baseline_methods(self) -> list[Method]:
        """The baselines as methods, by default those that compare strings."""
        return [
            _STRING_METHODS[name]() if name in _STRING_METHODS else self.encoder_method(name)
            for name in self.baselines or _STRING_METHODS
        ]


def _run_tasks(run: _Run, tasks: Sequence[Task], *, bases: Path | None, ablation: bool, figure: Path | None) -> Report:
    """Run the tasks on phrases, then those on linking and on everyday mentions, then draw the figure."""
    linking = [task for task in tasks if task.is_linking]
    everyday = [task for task in tasks if task.needs == "everyday"]
    on_phrases = [task for task in tasks if task not in linking and task not in everyday]
    reports: list[Report] = []
    methods: list[Method] = []
    if on_phrases or figure is not None:
        methods = [run.encoder_method(run.model), *run.baseline_methods()]
        reports.append(evaluate(run.data, methods[0], methods[1:], on_phrases, run.options, progress=run.progress))
    if linking:
        reports.append(_run_linking(run, linking, bases, ablation))
    if everyday:
        reports.append(_run_everyday(run, everyday, bases))
    report = _join_reports(reports)
    if figure is not None and report.results:
        from training.evaluation.figures import draw_figure

        draw_figure(figure, run.data, [method for method in methods if isinstance(method, EncoderMethod)])
        run.progress(f"drew {figure}")
    return report


def _run_linking(run: _Run, tasks: Sequence[Task], bases: Path | None, ablation: bool) -> Report:
    """Measure the linker with a model, its parts alone, and common alternatives."""
    encoder = load_encoder(run.model, device=run.device)
    models = [name for name in run.baselines if name not in (*_STRING_METHODS, run.model)]
    with LoadedBases(bases, progress=run.progress) as loaded:
        linker = Linker(encoder, loaded)
        strings = peers()
        dense = Dense(encoder, loaded, name="dense")
        others: list[LinkingMethod] = [*strings, dense, Fusion([dense, strings[-1]])]
        others += [Dense(load_encoder(name, device=run.device), loaded, name=name) for name in models]
        if ablation:
            used = [name for name, value in zip(FEATURES, shipped_model().features, strict=True) if value]
            others += [Ablation(linker, name) for name in used]
        return evaluate(run.data, linker, others, tasks, run.options, progress=run.progress)


def _run_everyday(run: _Run, tasks: Sequence[Task], bases: Path | None) -> Report:
    """Measure what the linker makes of everyday mentions, beside what users write instead of it."""
    encoder = load_encoder(run.model, device=run.device)
    with LoadedBases(bases, progress=run.progress) as loaded:
        linker = EverydayLinker(encoder, loaded)
        return evaluate(run.data, linker, everyday_peers(), tasks, run.options, progress=run.progress)


def _join_reports(reports: Sequence[Report]) -> Report:
    """One report with the results of all, at least one."""
    return Report(
        reports[0].model,
        tuple(dict.fromkeys(name for report in reports for name in report.baselines)),
        tuple(result for report in reports for result in report.results),
        {task: reason for report in reports for task, reason in report.skipped.items()},
    )


def _check_figure(figure: Path | None) -> None:
    """Check libraries and the folder of the figure before anything is encoded."""
    check_installed(*(() if figure is None else ("matplotlib",)))
    if figure is not None and not figure.parent.is_dir():
        raise SettingsError(f"No folder {figure.parent} for the figure. Make it first.")


def _choose_tasks(names: Sequence[str], data: Data) -> tuple[Task, ...]:
    from training.evaluation.registry import find_tasks
    from training.evaluation.tasks.linking import EVERYDAY, LINKING, everyday_task, own_base_tasks

    try:
        tasks = find_tasks(tuple(names))
    except ValueError as error:
        raise OptionError("tasks", str(error)) from error
    if not isinstance(data, OwnBase):
        return tasks
    if set(names) - {LINKING, EVERYDAY}:
        raise OptionError("tasks", f"a base of your own has the tasks {LINKING} and {EVERYDAY} only")
    chosen = own_base_tasks(data.name) if not names or LINKING in names else ()
    return (*chosen, *([everyday_task(data.name, data.name)] if EVERYDAY in names else []))


def _open_data(data: str | os.PathLike[str]) -> Data:
    path = Path(data).expanduser()
    # A folder with the name of the hub wins.
    if data in ("hub", REPOSITORY) and not path.is_dir():
        return HubData()
    return OwnBase(path, max_errors=DEFAULT_MAX_ERRORS) if path.is_file() else FolderData(path)
