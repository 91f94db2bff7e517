"""The log of a run: log.csv with a row per step, evaluation.csv with a row per metric, and curves.png of both."""

from __future__ import annotations

import csv
import importlib.util
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, TextIO

from pearl_qdrant.errors import SettingsError

_log = logging.getLogger(__name__)

LOG = "log.csv"
EVALUATION = "evaluation.csv"
CURVES = "curves.png"

_EVERY = 60.0  # seconds between two drawings
_SMOOTHING = 0.98  # of the exponential mean of the curves
_WIDEST = 4000  # points per curve

_UNITS = {"loss": "nats", "contrastive": "nats", "type_loss": "nats", "misad": "", "mlm": "nats", "learning_rate": ""}
"""Columns of a log that are drawn, those that it has, with their units; at most five beside the scores."""


class Record(Protocol):
    """Figures of one step, all of them numbers: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def step(self) -> int:
        """The step, from 1."""
        ...


class RunLog:
    """Writes the log of a run into a folder; on a resume, rows after the saved state are removed first.

    Args:
        folder: Where to write.
        done: Steps done before the run resumes.
        tensorboard: Write event files for TensorBoard too; it must be installed.
        record: The class of its steps.

    Raises:
        SettingsError: If TensorBoard is requested but not installed.
    """

    def __init__(self, folder: Path, *, done: int, tensorboard: bool = False, record: type[Record]) -> None:
        self._folder = folder
        self._warned = False
        self._drawn = time.monotonic()
        self._board = _open_board(folder) if tensorboard else None
        names = [field.name for field in fields(record)]
        self._steps = _reopen(folder / LOG, names, done)
        self._scores = _reopen(folder / EVALUATION, ["step", "metric", "value"], done)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self._steps, self._scores):
            file.close()
        if self._board is not None:
            self._board.close()

    def step(self, record: Record) -> None:
        """Write the figures of a step."""
        row = [value if isinstance(value, int) else f"{value:.6g}" for value in asdict(record).values()]
        _write(self._steps, [row])
        if self._board is not None:
            for name, value in asdict(record).items():
                self._board.add_scalar(name, value, record.step)

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Write the scores of an evaluation."""
        _write(self._scores, [[step, name, f"{value:.6g}"] for name, value in scores.items()])
        if self._board is not None:
            for name, value in scores.items():
                self._board.add_scalar(f"evaluation/{name}", value, step)

    def plot(self, *, final: bool) -> None:
        """Draw the curves, at most once a minute before the end; without matplotlib nothing is drawn."""
        if not final and time.monotonic() - self._drawn < _EVERY:
            return
        self._drawn = time.monotonic()
        if importlib.util.find_spec("matplotlib") is not None:
            plot_curves(self._folder)
        elif not self._warned:
            self._warned = True
            _log.warning("matplotlib is not installed, so %s is not drawn. The figures are in %s", CURVES, LOG)


def read_log(folder: Path) -> list[dict[str, float]]:
    """Read the rows of a run's log.csv."""
    with (folder / LOG).open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def plot_curves(folder: Path) -> Path:
    """Draw losses, learning rate and scores of a run into curves.png; returns its path."""
    from matplotlib.figure import Figure

    rows = read_log(folder)
    steps = [row["step"] for row in rows]
    drawn = [name for name in _UNITS if rows and name in rows[0]]
    columns = 2 if len(drawn) < 4 else 3
    figure = Figure(figsize=(5 * columns, 7), layout="constrained")
    panels: Any = figure.subplots(2, columns)
    for axes, name in zip(panels.flat, drawn, strict=False):
        values = [row[name] for row in rows]
        every = max(1, len(values) // _WIDEST)
        axes.plot(steps[::every], values[::every], alpha=0.3, linewidth=0.8)
        axes.plot(steps[::every], _smooth(values)[::every], linewidth=1.5)
        axes.set(title=name.replace("_", " "), xlabel="step", ylabel=_UNITS[name])
    axes = panels.flat[-1]
    for name, points in _curves(folder).items():
        axes.plot([step for step, _ in points], [value for _, value in points], marker="o", markersize=3, label=name)
    if axes.lines:
        axes.legend(fontsize="small")
    axes.set(title="evaluation", xlabel="step")
    path = folder / CURVES
    figure.savefig(path, dpi=110)
    return path


def _curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read the points of evaluation.csv, by metric."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with (folder / EVALUATION).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            curves.setdefault(row["metric"], []).append((int(row["step"]), float(row["value"])))
    return curves


def _smooth(values: Sequence[float]) -> list[float]:
    """Smooth values by an exponential mean without bias at the start."""
    smoothed, mean, weight = [], 0.0, 0.0
    for value in values:
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * value
        weight = _SMOOTHING * weight + (1 - _SMOOTHING)
        smoothed.append(mean / weight)
    return smoothed


def _reopen(path: Path, header: list[str], done: int) -> TextIO:
    """Open a CSV file to append to; keeps its rows up to a step."""
    kept: list[list[str]] = []
    if done and path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            next(rows, None)
            # A kill may have cut the last row short.
            kept = [row for row in rows if len(row) == len(header) and row[0].isdigit() and int(row[0]) <= done]
    file = path.open("w", encoding="utf-8", newline="")
    _write(file, [header, *kept])
    return file


def _write(file: TextIO, rows: Iterable[Sequence[object]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(rows)
    file.flush()


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SettingsError(
            "TensorBoard is not installed. Install it with: pip install tensorboard; or leave out 'tensorboard'"
        ) from error
    writer: Any = SummaryWriter
    return writer(folder)
