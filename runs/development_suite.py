"""Compare encoders with their start on development data of many kinds, each figure with its interval.

python runs/development_suite.py MODEL ... --baseline START --data FOLDER --wordnet FOLDER --fold both

Every task has two folds, by the hash of an entity, a phrase or a data set: choose a model on fold 1, confirm it on
fold 2. `development_tasks/readers.py` says what the tasks are. A difference to the start is bootstrapped over groups of
items (`development_tasks/figures.py`); in units of its standard error it can be averaged over tasks, which is the
score. A model should ship only if no task is below its start, that is with the whole 95 % interval below 0.

    from development_suite import compare, measure, read_suite

    suite = read_suite(data, wordnet)
    start = measure(encode_start, suite)
    for fold, figures in measure(encode_model, suite).items():
        print(compare(figures, start[fold]).score)

Both folds together have 118,000 distinct names. Each is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from development_tasks.figures import N_RESAMPLES, Difference, Figure, compare_figures
from development_tasks.readers import FOLDS, names_in_text, read_tasks
from development_tasks.tasks import FloatArray, Task

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from training.evaluation.methods import EncoderMethod

Encode = Callable[[list[str]], npt.NDArray[np.floating]]
"""From n names to n unit vectors, (n, dim); a row of zeros for a name that has no vector."""

Suite = Mapping[int, Sequence[Task]]
"""The tasks of each fold."""

Figures = Mapping[str, Figure]
"""Figures of one encoder on one fold, by the name of the task."""

TEXT_SOURCES = ("fewnerd", "crossner", "wnut17")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model beside its start, on one fold.

    Attributes:
        differences: One for each task.
        score: Mean over tasks of the difference in its own standard errors.
        low: Lower end of the 95 % interval of the score.
        size: Mean over tasks of the difference in standard errors of the start's figure, a unit that is the same for
            all models. The score says how sure the gain is, the size how large.
    """

    differences: tuple[Difference, ...]
    score: float
    low: float
    size: float

    @property
    def below(self) -> list[str]:
        """Tasks on which the model is below its start: the whole interval is below 0."""
        return [difference.task for difference in self.differences if difference.is_below]


def read_suite(data: Path, wordnet: Path, *, folds: Sequence[int] = FOLDS) -> Suite:
    """Read the tasks of the folds; deterministic.

    Args:
        data: Folder with `alias_pairs`, `autofj`, `context`, `geogranno`, `intent`, `kb`, `pearl_bench`, `tweets`,
            `typed_names` and `ulr_analogy`.
        wordnet: WordNet's `dict` folder.
        folds: 1, 2 or both.
    """
    return read_tasks(data, wordnet, folds)


def measure(encode: Encode, suite: Suite, *, n_resamples: int = N_RESAMPLES) -> dict[int, dict[str, Figure]]:
    """Measure an encoder on every task of every fold.

    Args:
        encode: Called once, with every distinct name.
        suite: From `read_suite`, or folds with tasks of your own.
        n_resamples: Bootstrap resamples of each figure.
    """
    strings = (name for tasks in suite.values() for task in tasks for name in task.strings())
    names = list(dict.fromkeys(strings))
    vectors = encode(names).astype(np.float32, copy=False)
    place = {name: i for i, name in enumerate(names)}

    def vectors_of(some: Sequence[str]) -> FloatArray:
        found: FloatArray = vectors[[place[name] for name in some]]
        return found

    return {fold: {task.name: task.measure(vectors_of, n_resamples) for task in tasks} for fold, tasks in suite.items()}


def compare(model: Figures, start: Figures) -> Comparison:
    """Compare an encoder with its start on a fold; both were measured on the same suite."""
    differences = tuple(compare_figures(task, figure, start[task]) for task, figure in model.items())
    resampled = np.mean([difference.resamples for difference in differences], axis=0)
    errors = [max(float(start[difference.task].resamples.std(ddof=1)), 1e-9) for difference in differences]
    return Comparison(
        differences,
        score=float(np.mean([difference.in_errors for difference in differences])),
        low=float(np.percentile(resampled, 2.5)),
        size=float(np.mean([difference.points / e for difference, e in zip(differences, errors, strict=True)])),
    )


def as_table(comparison: Comparison) -> list[str]:
    """Return the lines of the table: task, start, model, difference, its interval and its standard errors."""
    width = max(len(difference.task) for difference in comparison.differences)
    lines = [f"{'task':{width}}  start  model   diff  95 % interval    errors"]
    for one in comparison.differences:
        interval = f"{one.low:+.1f} to {one.high:+.1f}"
        mark = "  below" if one.is_below else ""
        lines.append(
            f"{one.task:{width}}  {one.start:5.1f}  {one.model:5.1f}  {one.points:+5.1f}  {interval:15}  "
            f"{one.in_errors:+6.1f}{mark}"
        )
    below = ", ".join(comparison.below) or "none"
    return [
        *lines,
        f"score {comparison.score:+.2f} (lower bound {comparison.low:+.2f}); size {comparison.size:+.2f}",
        f"below the start: {below}",
    ]


def head_figures(method: EncoderMethod, data: Path, fold: int) -> dict[str, float]:
    """Return how often the type head is right on names in text, in percent, by source."""
    found = {}
    for source in TEXT_SOURCES:
        names, kinds = zip(*names_in_text(data, fold, source), strict=True)
        answers = method.entity_types(names)
        found[source] = 100 * float(np.mean([answer == kind for answer, kind in zip(answers, kinds, strict=True)]))
    return found


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--baseline", required=True, help="The start: a folder, a hub id or a name.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--fold", type=click.Choice(["1", "2", "both"]), default="1", show_default=True)
@click.option("--resamples", type=click.IntRange(100), default=N_RESAMPLES, show_default=True)
def main(models: tuple[str, ...], baseline: str, data: Path, wordnet: Path, fold: str, resamples: int) -> None:
    """Compare encoders with their start: folders, hub ids or names."""
    suite = read_suite(data, wordnet, folds=FOLDS if fold == "both" else [int(fold)])
    start: dict[int, dict[str, Figure]] = {}
    for model in (baseline, *models):
        encoder = load_encoder(model, device="cpu")

        def encode(names: list[str], encoder: Encoder = encoder) -> npt.NDArray[np.floating]:
            return encoder.encode(names).vectors

        figures = measure(encode, suite, n_resamples=resamples)
        if not start:
            start = figures
            continue
        for number, found in figures.items():
            click.echo(f"{model}, fold {number}")
            click.echo("\n".join(as_table(compare(found, start[number]))))
            if encoder.info.has_head:
                head = head_figures(EncoderMethod(encoder), data, number)
                click.echo("type head on names in text: " + ", ".join(f"{k} {v:.1f}" for k, v in head.items()))
            click.echo()


if __name__ == "__main__":
    main()
