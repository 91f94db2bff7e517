"""`pearl-qdrant evaluate`."""

from __future__ import annotations

from typing import Any

import click

from pearl_qdrant.cli.common.options import (
    device_option,
    json_option,
    shipped_model_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import options_of, taken
from training.options import EvaluationOptions


def _list_tasks(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the tasks and exit, before required options are checked."""
    if not value or context.resilient_parsing:
        return
    from pearl_qdrant import list_tasks

    for task in list_tasks():
        echo(f"{task.name:<22}  {task.description}")
    context.exit()


@click.command()
@shipped_model_option("A shipped name, a folder, or a hub id.")
@click.option(
    "--data",
    required=True,
    metavar="DIR|FILE|hub",
    help="Folder with the evaluation sets (see --list), a base of your own as one file, or hub for "
    "Lihuchen/pearl_benchmark and autofj.",
)
@click.option("--task", "tasks", multiple=True, metavar="T", help="Run only this task; repeatable. See --list.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_tasks, help="Print the tasks and exit."
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="M",
    help="Another model to compare with, jaccard, tfidf or bm25; repeatable.  [default: jaccard, tfidf, bm25]",
)
@options_of(
    EvaluationOptions,
    flags={"n_mentions": "--mentions"},
    without=("n_seeds", "n_distractors", "max_epochs", "splits", "nil_shares"),
)
@device_option
@json_option
def evaluate(data: str, as_json: bool, **others: Any) -> None:
    """Measure a model on the tasks of both papers and on linking, with baselines and their figures for comparison.

    Tasks whose sets are missing in DIR are skipped and named. For a base of your own (FILE, in any format of ingest),
    its aliases are linked twice: against its canonical names only, and against all names except the mention's own.
    The task `everyday` makes mentions of every kind that people type from a base, and shows what becomes of them, for
    the linker, for exact lookup, for exact lookup with rapidfuzz, and for TF-IDF. Needs the extra `train`.

    \b
    pearl-qdrant evaluate --model pearl-mini --data data/
    pearl-qdrant evaluate --model runs/a --baseline pearl-mini --data data/ --task bird --task turney --json
    pearl-qdrant evaluate --data data/ --task linking --mentions 1000
    pearl-qdrant evaluate --data base.tsv
    pearl-qdrant evaluate --data base.tsv --task everyday
    """
    from pearl_qdrant import evaluate_model, report_as_text
    from pearl_qdrant.errors import MissingDataError, OptionError
    from training.evaluation.run import as_record

    try:
        options = taken(EvaluationOptions, others)
        report = evaluate_model(data, options=options, progress=lambda line: echo(line, err=True), **others)
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--task") from error
    except MissingDataError as error:
        raise click.ClickException(f"{error}: see --list.") from error
    if as_json:
        echo_json(as_record(report))
    else:
        echo(*report_as_text(report).split("\n"))
