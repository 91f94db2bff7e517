"""Figures of the evaluation: t-SNE by type, and reliability diagrams.

Figure 4 of the paper has the vectors of up to 100 names for each of six types, a panel an encoder. The paper takes its
names from YAGO 4; here they come from the test split (`entity_types`) and from biomedical bases.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.linking.calibration.metrics import Answers, bins, calibration_error
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import FloatArray
from training.evaluation.tasks.entity_types import READS, held_out_names

_KINDS = {
    "Place": ("GPE", "LOC"),
    "Person": ("PERSON",),
    "Event": ("EVENT",),
    "Organization": ("ORG",),
    "CreativeWork": ("WORK_OF_ART",),
}
_MEDICAL = "MedicalEntity"
_MEDICAL_TABLES = ("kb/biomedical/mondo*.tsv", "kb/biomedical/doid*.tsv", "kb/biomedical/*.tsv")
_EACH = 100
_FEWEST = 10
"""Minimum number of points for t-SNE."""


def figure_names(data: Data, rng: random.Random) -> dict[str, list[str]]:
    """Up to 100 names of each type. Raises SettingsError if the data has too few typed names."""
    typed = held_out_names(data) if data.paths(READS) else []
    names = {
        label: [name for name, found in typed if len(found) == 1 and set(found) <= set(kinds)]
        for label, kinds in _KINDS.items()
    }
    for pattern in _MEDICAL_TABLES:
        if paths := data.paths(pattern):
            names[_MEDICAL] = sorted({name for path in paths for (name,) in data.rows(path, "name")})
            break
    chosen = {label: rng.sample(found, min(_EACH, len(found))) for label, found in names.items() if found}
    if sum(map(len, chosen.values())) < _FEWEST:
        raise SettingsError(f"The figure needs typed names of the test split: the data must have {READS}.")
    return chosen


def draw_figure(path: Path, data: Data, methods: Sequence[EncoderMethod]) -> None:
    """Write the figure as PNG.

    Raises:
        SettingsError: If the data has too few typed names, matplotlib is not installed, or the file cannot be written.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    names = figure_names(data, random.Random(0))
    drawing = Figure(figsize=(5 * len(methods), 5), layout="constrained")
    for column, method in enumerate(methods, 1):
        axes = drawing.add_subplot(1, len(methods), column)
        points = project(method.vectors([name for found in names.values() for name in found]))
        start = 0
        for label, found in names.items():
            part = points[start : start + len(found)]
            axes.scatter(part[:, 0], part[:, 1], s=12, label=label)
            start += len(found)
        axes.set_title(Path(method.name).name)
        axes.set_xticks([])
        axes.set_yticks([])
        if column == len(methods):
            axes.legend(fontsize="small", loc="upper right")
    _save(drawing, path, dpi=150)


def project(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> FloatArray:
    """t-SNE of vectors, (n, dim) to (n, 2), seed 0."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    made = TSNE(n_components=2, perplexity=perplexity, metric="cosine", init="random", random_state=0)
    points: FloatArray = made.fit_transform(vectors).astype(np.float64)
    return points


def draw_reliability(path: Path, named: Mapping[str, Answers], *, title: str = "") -> None:
    """Draw a panel for each set of answers: share correct by probability above, number of answers below.

    Args:
        path: The PNG file; an existing one is replaced.
        named: Answers by the title of their panel, at least one.
        title: Title of the figure.

    Raises:
        SettingsError: If matplotlib is not installed, or the file cannot be written.
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
    _save(figure, path, dpi=120)


def _save(figure: Any, path: Path, *, dpi: int) -> None:
    try:
        figure.savefig(path, dpi=dpi, format="png")
    except OSError as error:
        raise SettingsError(f"The figure {path} cannot be written ({error.strerror or error}).") from error


def check_matplotlib() -> None:
    """Check for matplotlib before anything is computed.

    Raises:
        SettingsError: If matplotlib is not installed.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise SettingsError(f"A figure needs matplotlib: {install_command('train')}")
