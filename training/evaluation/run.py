"""Runs tasks on a model and on baselines, and compares them item by item."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.evaluation.data import Data
from training.evaluation.methods import Method
from training.evaluation.outcome import Difference, Outcome, paired_bootstrap
from training.evaluation.task import EvaluationOptions, Task

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Results of one task.

    Attributes:
        task: The task.
        outcomes: By name of the method, for the methods that support the task.
        differences: The model minus each baseline that has an outcome, by name of the baseline.
        seconds: Wall clock, with the encoding of new strings.
    """

    task: Task
    outcomes: Mapping[str, Outcome]
    differences: Mapping[str, Difference]
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a run.

    Attributes:
        model: Name of the model.
        baselines: Names of the baselines, in order.
        results: One for each task that ran, in order.
        skipped: Reasons of the tasks that did not run, by name.
    """

    model: str
    baselines: tuple[str, ...]
    results: tuple[TaskResult, ...]
    skipped: Mapping[str, str]


def evaluate(
    data: Data,
    model: Method,
    baselines: Sequence[Method],
    tasks: Sequence[Task],
    options: EvaluationOptions,
    *,
    progress: Callable[[str], None] = _log.info,
) -> Report:
    """Run each task for which the data has files and which the model supports.

    Args:
        data: Where the sets are.
        model: The method to evaluate.
        baselines: Methods to compare it with, by paired bootstrap.
        tasks: In the order of the report.
        options: Options of all tasks.
        progress: Called with a line when a task starts or is skipped.

    Raises:
        ValueError: If two methods have the same name.
        FormatError: If a table of a task is broken.
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
            name: {**_figures(result.outcomes[name]), **_difference(difference)}
            for name, difference in result.differences.items()
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


def _difference(difference: Difference) -> dict[str, object]:
    return {
        "difference": round(difference.mean, 2),
        "interval": [round(difference.low, 2), round(difference.high, 2)],
        "significant": difference.significant,
    }
