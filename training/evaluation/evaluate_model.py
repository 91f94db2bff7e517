"""`evaluate_model` measures a model on the paper's tasks and on linking; `pearl-qdrant evaluate` prints its report."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import MissingDataError, OptionError, SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.evaluation.data import REPOSITORY, Data, FolderData, HubData, OwnBase
from training.evaluation.linking.methods import Dense, EverydayLinker, Linker, LoadedBases
from training.evaluation.linking.peers import everyday_peers, peers
from training.evaluation.methods import Bm25Method, EncoderMethod, Method, StringMethod
from training.evaluation.run import Report, evaluate
from training.evaluation.task import Task
from training.options import EvaluationOptions

_log = logging.getLogger(__name__)

_STRING_METHODS: Mapping[str, Callable[[], Method]] = {
    "jaccard": lambda: StringMethod("jaccard"),
    "tfidf": lambda: StringMethod("tfidf"),
    "bm25": Bm25Method,
}
"""Baselines without a model, by name; all run by default."""


def evaluate_model(  # long: its arguments, and what they mean
    data: str | os.PathLike[str],
    model: str = DEFAULT_MODEL,
    *,
    tasks: Sequence[str] = (),
    baselines: Sequence[str] = (),
    options: EvaluationOptions | None = None,
    bases: Path | None = None,
    device: str = DEFAULT_DEVICE,
    progress: Callable[[str], None] = _log.info,
) -> Report:
    """Run tasks on a model and on baselines. Tasks whose data sets are missing are skipped; the report names them.

    Args:
        data: Folder with the evaluation sets, a base of your own as one file, or ``hub``.
        model: A shipped name, a folder or a hub id.
        tasks: Names of tasks (see `list_tasks`); none: all that run by default.
        baselines: Other models, ``jaccard``, ``tfidf`` or ``bm25`` (question retrieval only); none: these three.
        options: How they are measured.
        bases: Linking: folder that keeps loaded bases for the next run.
        device: auto, cpu, cuda or cuda:N.
        progress: Called with a line when a task starts or is skipped.

    Raises:
        OptionError: If a task does not exist, or cannot run on a base of your own.
        SettingsError: If a library is missing.
        MissingDataError: If none of the files that the tasks read exist.
        FormatError: If a table is broken.
        ModelError: If a model cannot be loaded.
    """
    check_installed()
    source = _open_data(data)
    chosen = _choose_tasks(tasks, source)
    options = options or EvaluationOptions()
    if isinstance(source, OwnBase) and not options.splits:
        options = replace(options, splits=tuple(range(10)))
    encoder = load_encoder(model, device=device)
    of_kind: dict[str, list[Task]] = {"phrases": [], "linking": [], "everyday": []}
    for task in chosen:
        of_kind["linking" if task.is_linking else "everyday" if task.needs == "everyday" else "phrases"].append(task)
    reports = []
    with ExitStack() as stack:
        needs_bases = of_kind["linking"] or of_kind["everyday"]
        loaded = stack.enter_context(LoadedBases(bases, progress=progress)) if needs_bases else None
        for kind, some in of_kind.items():
            if some:
                methods = _methods(kind, encoder, loaded, [*dict.fromkeys(baselines)], device)
                reports.append(evaluate(source, methods[0], methods[1:], some, options, progress=progress))
    report = Report(
        reports[0].model,
        tuple(dict.fromkeys(name for one in reports for name in one.baselines)),
        tuple(result for one in reports for result in one.results),
        {task: reason for one in reports for task, reason in one.skipped.items()},
    )
    if not report.results:
        raise MissingDataError(os.fspath(data), None, f"has none of the files that {len(chosen)} tasks read")
    return report


def _methods(
    kind: str, encoder: Encoder, loaded: LoadedBases | None, baselines: Sequence[str], device: str
) -> list[Method]:
    """The model as a method of a kind of tasks, then what it is compared with."""
    if kind == "phrases" or loaded is None:
        others = [
            _STRING_METHODS[name]() if name in _STRING_METHODS else EncoderMethod(load_encoder(name, device=device))
            for name in baselines or _STRING_METHODS
        ]
        return [EncoderMethod(encoder), *others]
    if kind == "everyday":
        return [EverydayLinker(encoder, loaded), *everyday_peers()]
    linker = Linker(encoder, loaded)
    models = [name for name in baselines if name not in (*_STRING_METHODS, linker.name)]
    others = [Dense(load_encoder(name, device=device), loaded, name=name) for name in models]
    return [linker, *peers(), Dense(encoder, loaded, name="dense"), *others]


def check_installed() -> None:
    """Check for the libraries of the evaluation. Raises SettingsError if one is not installed; the message has the
    command that installs it.
    """
    if absent := [library for library in ("sklearn", "torch") if importlib.util.find_spec(library) is None]:
        raise SettingsError(f"evaluate needs {', '.join(absent)}: {install_command('train')}")


def list_tasks() -> tuple[Task, ...]:
    """All tasks: first those that run by default, then those that run only if named.

    Raises:
        SettingsError: If a library of the extra `train` is missing.
    """
    check_installed()
    from training.evaluation.tasks import ON_REQUEST, TASKS

    return (*TASKS, *ON_REQUEST)


def _choose_tasks(names: Sequence[str], data: Data) -> tuple[Task, ...]:
    from training.evaluation.tasks import find_tasks
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
