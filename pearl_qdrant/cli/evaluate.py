"""`pearl-qdrant evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.settings import DEFAULT_MODEL
from training.options import (
    DEFAULT_DISTRACTORS,
    DEFAULT_MENTIONS,
    DEFAULT_NIL_SHARES,
    DEFAULT_SEEDS,
    DEFAULT_SPLITS,
)


def _list_tasks(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the tasks and exit, before required options are checked."""
    if not value or context.resilient_parsing:
        return
    from pearl_qdrant import list_tasks

    for task in list_tasks():
        echo(f"{task.name:<22}  {task.description}")
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
    "--seeds", type=click.IntRange(1, 100), default=DEFAULT_SEEDS, show_default=True, help="Number of random seeds."
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="M",
    help="Another model to compare with, jaccard, tfidf or bm25; repeatable.  [default: jaccard, tfidf, bm25]",
)
@click.option(
    "--distractors",
    type=click.IntRange(0),
    default=DEFAULT_DISTRACTORS,
    show_default=True,
    help="Names added to the dictionary of entity retrieval.",
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Also draw t-SNE by type, as PNG.")
@click.option(
    "--split",
    "splits",
    type=click.IntRange(0, 9),
    multiple=True,
    help="Linking: entities whose aliases are the mentions, by SHA-1 of their id mod 10; repeatable.  [default: "
    f"{', '.join(map(str, DEFAULT_SPLITS))}; all for a base of your own]",
)
@click.option(
    "--mentions",
    type=click.IntRange(1),
    default=DEFAULT_MENTIONS,
    show_default=True,
    help="Linking: at most this many mentions of each base.",
)
@click.option(
    "--nil-share",
    "nil_shares",
    type=click.FloatRange(0, 1, max_open=True),
    multiple=True,
    default=DEFAULT_NIL_SHARES,
    show_default=True,
    help="Linking: share of mentions whose entity is removed; repeatable.",
)
@click.option(
    "--bases",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Linking: keep loaded bases here for the next run.  [default: not kept]",
)
@click.option("--ablation", is_flag=True, help="Linking: also measure the ranking without each of its features.")
@device_option
@json_option
def evaluate(data: str, splits: tuple[int, ...], as_json: bool, **options: Any) -> None:
    """Measure a model on the tasks of both papers and on linking, with baselines and their figures for comparison.

    Tasks whose sets are missing in DIR are skipped and named. For a base of your own (FILE, in any format of ingest),
    its aliases are linked twice: against its canonical names only, and against all names except the mention's own.
    The task `everyday` makes mentions of every kind that people type from a base, and shows what becomes of them, for
    the linker, for exact lookup, for exact lookup with rapidfuzz, and for TF-IDF. Needs the extra `train`.

    \b
    pearl-qdrant evaluate --model pearl-mini-en --data data/
    pearl-qdrant evaluate --model runs/a --baseline pearl-mini-en --data data/ --task bird --task turney --json
    pearl-qdrant evaluate --data data/ --task linking --bases loaded/ --mentions 1000
    pearl-qdrant evaluate --data base.tsv
    pearl-qdrant evaluate --data base.tsv --task everyday
    """
    from pearl_qdrant import evaluate_model, report_as_text
    from pearl_qdrant.errors import MissingDataError, OptionError
    from training.evaluation import as_record

    try:
        report = evaluate_model(data, splits=splits or None, progress=lambda line: echo(line, err=True), **options)
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--task") from error
    except MissingDataError as error:
        raise click.ClickException(f"{error}: see --list.") from error
    if as_json:
        echo_json(as_record(report))
    else:
        echo(*report_as_text(report).split("\n"))
