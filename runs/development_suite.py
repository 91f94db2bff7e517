"""Compare encoders with their start on the tasks of `evaluate` in two folds: choose on fold 1, confirm on fold 2.

    python runs/development_suite.py MODEL ... --baseline START --data FOLDER --fold both

The score of a fold is the mean over its tasks of the
difference in its own standard errors. A model should ship only if no task is below its start, that is with the whole
95 % interval below 0.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import click

from pearl_qdrant.encoder.loading import load_encoder
from training.evaluation.data import Data, FolderData, Row
from training.evaluation.methods import EncoderMethod
from training.evaluation.run import Report, evaluate, report_as_text
from training.evaluation.tasks import TASKS
from training.examples.example import name_key, split_of
from training.options import EvaluationOptions

FOLDS = {1: 7, 2: 8}
"""The development split of each fold (`training.examples.example`)."""

_ITEMS: Mapping[str, tuple[str, ...]] = {
    "pearl_bench/ppdb*.tsv": ("phrase1", "phrase2"),
    "pearl_bench/turney.tsv": ("query",),
    "pearl_bench/bird.tsv": ("term1",),
    "pearl_bench/*_test.tsv": ("canonical",),
    "pearl_bench/*.tsv": ("mention",),
    "autofj/*.tsv": ("dataset",),
    "intent/*.tsv": ("text",),
    "tweets/*.tsv": ("text",),
    "ulr_analogy/*.tsv": ("c", "d_gold"),
    "geogranno/*.tsv": ("canonical",),
}
"""The columns that say which item a row is of. The smallest cell is hashed, so that a pair and its reverse agree."""


class FoldData:
    """One of two folds of another source, so that a model is chosen on one and confirmed on the other.

    A row belongs to fold 1 or 2 by the hash of its item; bases and typed names are whole, since tasks choose from these
    by split (`EvaluationOptions.splits`). Of sets with the splits train, dev and test (CoNLL), dev stands for test.
    """

    def __init__(self, data: Data, fold: int) -> None:
        self._data, self._fold, self.paths = data, fold, data.paths

    def rows(self, path: str, *columns: str) -> list[Row]:
        """As `Data.rows`."""
        items = next((found for pattern, found in _ITEMS.items() if fnmatch.fnmatch(path, pattern)), ())
        if not items:
            return self._data.rows(path, *columns)
        n, found = len(columns), self._data.rows(path, *columns, *items)
        kept = [row[:n] for row in found if split_of(name_key(min(row[n:]))) % 2 == self._fold % 2]
        if items != ("mention",) or "split" not in columns:
            return kept
        place, stands_for = columns.index("split"), {"dev": "test", "test": "left out"}
        return [(*row[:place], stands_for.get(row[place], row[place]), *row[place + 1 :]) for row in kept]


def compare(model: EncoderMethod, start: EncoderMethod, data: Data, fold: int) -> Report:
    """Measure a model and its start on a fold."""
    return evaluate(FoldData(data, fold), model, [start], TASKS, EvaluationOptions(splits=(FOLDS[fold],)))


def summary(report: Report) -> str:
    """Return the score with the lower bound of its 95 % interval, and the tasks on which the model is below."""
    found = {result.task.name: result.differences[report.baselines[0]] for result in report.results}
    score = fmean(one.mean / one.error if one.error else 0.0 for one in found.values())
    below = ", ".join(name for name, one in found.items() if one.high < 0) or "none"
    return f"score {score:+.2f} (lower bound {score - 1.96 / len(found) ** 0.5:+.2f}); below the start: {below}"


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--baseline", required=True, help="The start: a folder, a hub id or a name.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--fold", type=click.Choice([*map(str, FOLDS), "both"]), default="1", show_default=True)
def main(models: tuple[str, ...], baseline: str, data: Path, fold: str) -> None:
    """Compare encoders with their start: folders, hub ids or names."""
    start = EncoderMethod(load_encoder(baseline, device="cpu"), name=baseline)
    for name in models:
        model = EncoderMethod(load_encoder(name, device="cpu"), name=name)
        for number in FOLDS if fold == "both" else [int(fold)]:
            report = compare(model, start, FolderData(data), number)
            click.echo(f"{name}, fold {number}\n\n{report_as_text(report)}\n\n{summary(report)}\n")


if __name__ == "__main__":
    main()
