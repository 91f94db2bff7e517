"""Runs tasks on a model and on baselines, and compares them item by item."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from statistics import fmean

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import MissingDataError, OptionError, SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.evaluation.data import REPOSITORY, Data, FolderData, HubData, OwnBase
from training.evaluation.linking_methods import Dense, EverydayLinker, Linker, LoadedBases, everyday_peers, peers
from training.evaluation.methods import Bm25Method, EncoderMethod, Method, StringMethod, WordVectors
from training.evaluation.outcome import Difference, Outcome, paired_bootstrap
from training.evaluation.task import MAIN, Task
from training.options import EvaluationOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Results of one task."""

    task: Task  # the task
    outcomes: Mapping[str, Outcome]  # by name of the method, for the methods that support the task
    differences: Mapping[str, Difference]  # the model minus each baseline that has an outcome, by name of the baseline
    seconds: float  # wall clock, with the encoding of new strings


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a run."""

    model: str  # name of the model
    baselines: tuple[str, ...]  # names of the baselines, in order
    results: tuple[TaskResult, ...]  # one for each task that ran, in order
    skipped: Mapping[str, str]  # reasons of the tasks that did not run, by name


def evaluate(
    data: Data,
    model: Method,
    baselines: Sequence[Method],
    tasks: Sequence[Task],
    options: EvaluationOptions,
    *,
    progress: Callable[[str], None] = _log.info,
) -> Report:
    """Run each task for which the data has files and which the model supports. Raises ValueError if two methods have
    the same name; FormatError if a table of a task is broken.

    Args:
        data: Where the sets are.
        baselines: Methods to compare it with, by paired bootstrap.
        tasks: In the order of the report.
        options: Options of all tasks.
        progress: Called with a line when a task starts or is skipped.
    """
    names = [model.name, *(baseline.name for baseline in baselines)]
    if len(set(names)) < len(names):
        raise ValueError(f"each method needs a name of its own, not {', '.join(names)}")
    results: list[TaskResult] = []
    skipped: dict[str, str] = {}
    for task in tasks:
        absent = [path for path in task.reads if not data.paths(path)]
        if absent or task.needs not in model.supports:
            skipped[task.name] = f"no {', '.join(absent)}" if absent else f"{model.name} does not support {task.needs}"
            progress(f"{task.name}: skipped, {skipped[task.name]}")
            continue
        progress(f"{task.name}: {task.metric}")
        results.append(_run_task(task, data, model, baselines, options))
    return Report(model.name, tuple(names[1:]), tuple(results), skipped)


def _run_task(
    task: Task, data: Data, model: Method, baselines: Sequence[Method], options: EvaluationOptions
) -> TaskResult:
    start = time.monotonic()
    outcomes = {
        method.name: task.run(data, method, options) for method in (model, *baselines) if task.needs in method.supports
    }
    differences = {
        name: paired_bootstrap(outcomes[model.name], outcome, rng=np.random.default_rng(0))
        for name, outcome in outcomes.items()
        if name != model.name
    }
    return TaskResult(task, outcomes, differences, time.monotonic() - start)


def as_record(report: Report) -> dict[str, object]:
    """The report as a JSON object, with figures in percent and differences in points."""
    return {
        "model": report.model,
        "tasks": {result.task.name: _task_record(report, result) for result in report.results},
        "skipped": dict(report.skipped),
    }


def _task_record(report: Report, result: TaskResult) -> dict[str, object]:
    outcome = result.outcomes[report.model]
    return {
        "metric": result.task.metric,
        **_figures(outcome),
        "n": outcome.n,
        "paper": dict(result.task.paper),
        "baselines": {
            name: {
                **_figures(result.outcomes[name]),
                "difference": round(one.mean, 2),
                "interval": [round(one.low, 2), round(one.high, 2)],
                "significant": one.significant,
            }
            for name, one in result.differences.items()
        },
        "seconds": round(result.seconds, 1),
    }


def _figures(outcome: Outcome) -> dict[str, object]:
    return {
        "value": round(outcome.value, 2),
        "deviation": None if outcome.deviation is None else round(outcome.deviation, 2),
        "values": [round(value, 2) for value in outcome.values],
        "details": {name: round(value, 2) for name, value in outcome.details.items()},
    }


_TABLES = (
    (
        "Phrase tasks (the paper's Table 1)",
        ("Paraphrase Classification", "Phrase Similarity", "Entity Retrieval", "Entity Clustering", "Fuzzy Join"),
    ),
    ("Short texts (Table 2)", ("Sentiment Analysis", "Intent Classification")),
    ("Entity types of unseen names", ("Type Classification",)),
    ("Universal analogy (the second paper's Table 2)", ("Universal Analogy",)),
    ("Question retrieval (the second paper's Table 4)", ("Question Retrieval",)),
)
"""Groups that share a table; any other group has its own."""

_NONE = "-"
_NAME = 28
"""Maximum length of a method's name, in characters."""


def report_as_text(report: Report) -> str:
    """The tables that have results, then the differences, then the skipped tasks."""
    tables = [*_task_tables(report), *_by_kind(report), *_group_means(report)]
    parts = [*tables, *_details(report), *_differences(report)]
    if report.skipped:
        parts.append(["Skipped", *(f"  {task}: {reason}" for task, reason in report.skipped.items())])
    return "\n\n".join("\n".join(part) for part in parts)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Folders by the shortest tails of their paths that differ."""
    short = {}
    for name in names:
        parts = PurePath(name).parts if PurePath(name).is_absolute() else (name,)
        for n in range(1, len(parts) + 1):
            tail = "/".join(parts[-n:])
            if n == len(parts) or not any(other != name and other.endswith("/" + tail) for other in names):
                break
        short[name] = tail if len(tail) <= _NAME else "…" + tail[1 - _NAME :]
    return short


def _task_tables(report: Report) -> Iterator[list[str]]:
    grouped = [group for _, groups in _TABLES for group in groups]
    others = dict.fromkeys(r.task.group for r in report.results if r.task.group not in grouped)
    for title, groups in (*_TABLES, *((group, (group,)) for group in others)):
        results = [result for result in report.results if result.task.group in groups]
        if results:
            yield [title, *_aligned(_rows(report, results))]


def _rows(report: Report, results: Sequence[TaskResult]) -> Iterator[tuple[str, ...]]:
    """The heading, then a row for each method, then a row for each model of the paper."""
    yield ("", *(result.task.head for result in results))
    yield ("n", *(f"{result.outcomes[report.model].n:,}" for result in results))
    names = short_names([report.model, *report.baselines])
    for method, name in names.items():
        if any(method in result.outcomes for result in results):
            yield (name, *(_figure(result, method) for result in results))
    models = dict.fromkeys(model for result in results for model in result.task.paper)
    for model in sorted(models, key=lambda model: model != MAIN):
        yield (
            f"{model} (paper)",
            *(f"{result.task.paper[model]:.1f}" if model in result.task.paper else _NONE for result in results),
        )


def _figure(result: TaskResult, method: str) -> str:
    outcome = result.outcomes.get(method)
    if outcome is None:
        return _NONE
    return f"{outcome.value:.1f}" + ("" if outcome.deviation is None else f"±{outcome.deviation:.1f}")


def _by_kind(report: Report) -> Iterator[list[str]]:
    """What became of each kind of everyday mention."""
    for result in report.results:
        if is_by_kind(result.outcomes[report.model].details):
            title = f"{result.task.head}, by kind: right, wrong and NIL, in percent"
            yield [title, *_aligned(list(kind_rows(result, short_names([report.model, *report.baselines]))))]


OUTCOMES = ("right", "wrong", "nil")


def kind_rows(result: TaskResult, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The heading, a row for each kind of everyday mentions, and the milliseconds a mention."""
    methods = [method for method in names if method in result.outcomes]
    details = {method: result.outcomes[method].details for method in methods}
    yield ("", "n", *(names[method] for method in methods))
    kinds = [key.removesuffix("/n") for key in details[methods[0]] if key.endswith("/n")]
    for kind in kinds:
        n = details[methods[0]][f"{kind}/n"]
        # Percent of right, wrong and NIL answers.
        figures = ([details[method][f"{kind}/{one}"] for one in OUTCOMES] for method in methods)
        yield (kind, f"{n:,.0f}", *(f"{right:>5.1f} {wrong:>5.1f} {nil:>5.1f}" for right, wrong, nil in figures))
    yield ("milliseconds", "", *(f"{details[method]['milliseconds']:.2f}" for method in methods))


def is_by_kind(details: Mapping[str, float]) -> bool:
    """Whether the details of an outcome are figures by kind."""
    return any(key.endswith("/right") for key in details)


def _group_means(report: Report) -> Iterator[list[str]]:
    """Means by group, as in Table 3: each set once, by the paper's protocol."""
    counted = [result for result in report.results if result.task.in_table_3]
    groups = dict.fromkeys(result.task.group for result in counted)
    if len(groups) < 2:
        return
    rows: list[tuple[str, ...]] = [("", *groups, "Avg")]
    for method, name in short_names([report.model, *report.baselines]).items():
        figures = {r.task.name: r.outcomes[method].value for r in counted if method in r.outcomes}
        rows.append((name, *_means(counted, figures, groups)))
    figures = {r.task.name: r.task.paper[MAIN] for r in counted if MAIN in r.task.paper}
    rows.append((f"{MAIN} (paper)", *_means(counted, figures, groups)))
    yield ["Means by family, over the sets that were run (Table 3)", *_aligned(rows)]


def _means(counted: Sequence[TaskResult], figures: Mapping[str, float], groups: Mapping[str, None]) -> Iterator[str]:
    """The mean of each group, then of all sets; `_NONE` if a figure is missing."""
    for group in (*groups, None):
        names = [r.task.name for r in counted if group in (r.task.group, None)]
        is_complete = all(name in figures for name in names)
        yield f"{fmean(figures[name] for name in names):.1f}" if is_complete else _NONE


def _details(report: Report) -> Iterator[list[str]]:
    """The further figures of the tasks."""
    lines = []
    for result in report.results:
        details = result.outcomes[report.model].details
        if details and not is_by_kind(details):
            shown = []
            for name, value in details.items():
                if not name.startswith("n_") or f"f1_{name[2:]}" not in details:
                    number = f"{value:,.0f}" if float(value).is_integer() and abs(value) > 100 else f"{value:.1f}"
                    n = details.get(f"n_{name[3:]}") if name.startswith("f1_") else None  # names behind an F1
                    shown.append(f"{name.removeprefix('f1_')} {number}" + ("" if n is None else f" ({n:.0f})"))
            lines.append(f"  {result.task.name}: {', '.join(shown)}")
    if lines:
        yield ["Details", *lines]


def _differences(report: Report) -> Iterator[list[str]]:
    names = short_names([report.model, *report.baselines])
    for baseline in report.baselines:
        rows: list[tuple[str, ...]] = [("", "points", "95 % interval", "")]
        for result in report.results:
            if found := result.differences.get(baseline):
                verdict = "significant" if found.significant else "not significant"
                rows.append((result.task.name, f"{found.mean:+.1f}", f"{found.low:+.1f} to {found.high:+.1f}", verdict))
        if len(rows) > 1:
            yield [f"{names[report.model]} above {names[baseline]} (paired bootstrap over items)", *_aligned(rows)]


def _aligned(rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with columns of equal width, names left-aligned, figures right-aligned."""
    every = list(rows)
    widths = [max(len(row[i]) for row in every) for i in range(len(every[0]))]
    return [
        (
            "  "
            + row[0].ljust(widths[0])
            + "".join("  " + c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))
        ).rstrip()
        for row in every
    ]


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
    device: str = DEFAULT_DEVICE,
    progress: Callable[[str], None] = _log.info,
) -> Report:
    """Run tasks on a model and on baselines. Tasks whose data sets are missing are skipped; the report names them.

    Args:
        data: Folder with the evaluation sets, a base of your own as one file, or ``hub``.
        model: A shipped name, a folder or a hub id.
        tasks: Names of tasks (see `list_tasks`); none: all that run by default.
        baselines: Other models, ``jaccard``, ``tfidf``, ``bm25`` (for questions), ``.vec`` files; none: these three.
        options: How they are measured.
        device: auto, cpu, cuda or cuda:N.
        progress: Called with a line when a task starts or is skipped.

    Raises:
        OptionError: If a task does not exist, or cannot run on a base of your own; if a baseline is the model.
        SettingsError: If a library is missing.
        MissingDataError: If none of the files that the tasks read exist.
        FormatError: If a table is broken.
        ModelError: If a model cannot be loaded.
    """
    check_installed()
    if model in baselines:
        raise OptionError("baselines", f"{model} is the model that is measured. Name another one to compare it with.")
    source = _open_data(data)
    chosen = _choose_tasks(tasks, source)
    options = options or EvaluationOptions()
    if isinstance(source, OwnBase) and not options.splits:
        options = options.model_copy(update={"splits": tuple(range(10))})
    encoder = load_encoder(model, device=device)
    of_kind: dict[str, list[Task]] = {"phrases": [], "linking": [], "everyday": []}
    for task in chosen:
        kind = "linking" if "linking" in task.needs else "everyday" if task.needs == "everyday" else "phrases"
        of_kind[kind].append(task)
    reports = []
    with LoadedBases(progress=progress) as loaded:
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


def _methods(kind: str, encoder: Encoder, loaded: LoadedBases, baselines: Sequence[str], device: str) -> list[Method]:
    """The model as a method of a kind of tasks, then what it is compared with."""
    if kind == "phrases":
        return [EncoderMethod(encoder), *(_baseline(name, device) for name in baselines or _STRING_METHODS)]
    if kind == "everyday":
        return [EverydayLinker(encoder, loaded), *everyday_peers()]
    linker = Linker(encoder, loaded)
    models = [name for name in baselines if name not in (*_STRING_METHODS, linker.name)]
    others = [Dense(load_encoder(name, device=device), loaded, name=name) for name in models]
    return [linker, *peers(), Dense(encoder, loaded, name="dense"), *others]


def _baseline(name: str, device: str) -> Method:
    if name in _STRING_METHODS:
        return _STRING_METHODS[name]()
    is_file = name.endswith((".vec", ".vec.gz"))
    return EncoderMethod(WordVectors(Path(name)) if is_file else load_encoder(name, device=device))


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
