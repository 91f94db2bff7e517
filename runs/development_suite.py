"""Compare encoders with their start on the tasks of `evaluate` in two folds: choose on fold 1, confirm on fold 2.

    python runs/development_suite.py MODEL ... --baseline START --data FOLDER --fold both

`training.evaluation.data.FoldData` says what a fold is. The score of a fold is the mean over its tasks of the
difference in its own standard errors. A model should ship only if no task is below its start, that is with the whole
95 % interval below 0.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import click

from pearl_qdrant.encoder.loading import load_encoder
from training.evaluation.data import FOLDS, Data, FoldData, FolderData
from training.evaluation.methods import EncoderMethod
from training.evaluation.run import Report, evaluate, report_as_text
from training.evaluation.tasks import TASKS
from training.options import EvaluationOptions


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
