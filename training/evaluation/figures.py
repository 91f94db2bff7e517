"""Reliability diagrams."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.linking.calibration.metrics import Answers, bins, calibration_error


def draw_reliability(path: Path, named: Mapping[str, Answers], *, title: str = "") -> None:
    """Draw a panel for each set of answers: share correct by probability above, number of answers below. Raises
    SettingsError if matplotlib is not installed, or the file cannot be written.
    `path` is a PNG file, which is replaced; `named` has the answers by the title of their panel, at least one.
    """
    check_matplotlib()
    # Not by pyplot, which keeps global state and may look for a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(named), 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(named), squeeze=False, sharex=True, height_ratios=(3, 1))
    for above, below, (name, answers) in zip(*panels, named.items(), strict=True):
        _, probability, correct = bins(answers)
        above.plot((0, 1), (0, 1), color="0.7", linewidth=1)
        above.plot(probability, correct, marker="o", markersize=4)
        above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share right", title=f"{name}: ECE {calibration_error(answers):.3f}")
        below.hist(answers.probability, bins=np.linspace(0, 1, 21), weights=answers.weights, color="0.6")
        below.set(xlabel="probability of the answer", ylabel="mentions")
    if title:
        figure.suptitle(title)
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise SettingsError(f"The figure {path} cannot be written ({error.strerror or error}).") from error


def check_matplotlib() -> None:
    """Check for matplotlib before anything is computed. Raises SettingsError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise SettingsError(f"A figure needs matplotlib: {install_command('train')}")
