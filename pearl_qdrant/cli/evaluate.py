"""`pearl-qdrant evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.evaluate_linking import linking_options
from pearl_qdrant.settings import DEFAULT_MODEL
from training.evaluation.defaults import DEFAULT_DISTRACTORS, DEFAULT_SEEDS


def _list_tasks(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Name the tasks and stop, before anything else is asked for."""
    if not value or context.resilient_parsing:
        return
    from training.evaluation.registry import ON_REQUEST, TASKS

    for task in (*TASKS, *ON_REQUEST):
        echo(f"{task.name:<22}  {task.group}: {task.metric}. Reads {', '.join(task.reads)}")
    context.exit()


@click.command()
@click.option(
    "--model",
    envvar="PEARL_QDRANT_MODEL",
    show_envvar=True,
    default=DEFAULT_MODEL,
    show_default=True,
    help="A shipped name, a folder, or a hub id.",
)
@click.option(
    "--data",
    "data",
    required=True,
    metavar="DIR|FILE|hub",
    help="Folder with the evaluation sets (see --list), a base of your own as one file, or hub for "
    "Lihuchen/pearl_benchmark and autofj.",
)
@click.option("--task", "tasks", multiple=True, metavar="T", help="Only this one; may be repeated. See --list.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_tasks,
    help="Name the tasks and stop.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=DEFAULT_SEEDS, show_default=True, help="Runs of what is random."
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="M",
    help="Another model to compare with, or jaccard or tfidf; may be repeated.  [default: jaccard, tfidf]",
)
@click.option(
    "--distractors",
    type=click.IntRange(0),
    default=DEFAULT_DISTRACTORS,
    show_default=True,
    help="Names added to the dictionary of entity retrieval.",
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Also draw t-SNE by type, as PNG.")
@linking_options
@device_option
@json_option
def evaluate(
    model: str,
    data: str,
    tasks: tuple[str, ...],
    seeds: int,
    baselines: tuple[str, ...],
    distractors: int,
    figure: Path | None,
    folds: tuple[int, ...],
    mentions: int,
    nil_shares: tuple[float, ...],
    bases: Path | None,
    ablation: bool,
    device: str,
    as_json: bool,
) -> None:
    """Measure a model on the paper's tasks and on linking, with baselines and the paper's figures beside.

    Sets that DIR does not have are skipped and named. Of a base of your own (FILE, any format of ingest) the aliases
    are linked, with its canonical names alone and with all names but the mention's own. Needs the extra `train`, as
    `pearl-qdrant train` does.

    \b
    pearl-qdrant evaluate --model pearl-mini-en --data data/
    pearl-qdrant evaluate --model runs/a --baseline pearl-mini-en --data data/ --task bird --task turney --json
    pearl-qdrant evaluate --data data/ --task linking --bases loaded/ --mentions 1000
    pearl-qdrant evaluate --data base.tsv
    """
    from pearl_qdrant.errors import MissingDataError, OptionError
    from training.evaluation.requirements import check_installed

    check_installed()
    from training.evaluation.evaluate_model import evaluate_model
    from training.evaluation.reports.table import as_text
    from training.evaluation.run import as_record

    source = click.get_current_context().get_parameter_source("folds")
    try:
        report = evaluate_model(
            data,
            model,
            tasks=tasks,
            baselines=baselines,
            seeds=seeds,
            distractors=distractors,
            figure=figure,
            folds=None if source is click.core.ParameterSource.DEFAULT else folds,
            mentions=mentions,
            nil_shares=nil_shares,
            bases=bases,
            ablation=ablation,
            device=device,
            say=lambda line: echo(line, err=True),
        )
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--task") from error
    except MissingDataError as error:
        raise click.ClickException(f"{error}: see --list.") from error
    if as_json:
        echo_json(as_record(report))
    else:
        echo(*as_text(report).split("\n"))
