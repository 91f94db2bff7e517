"""`pearl-qdrant evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pearl_qdrant.cli.evaluate_linking import (
    LinkingRun,
    as_linking_options,
    evaluate_linking,
    join_reports,
    linking_options,
)
from pearl_qdrant.cli.options import device_option, json_option
from pearl_qdrant.cli.terminal import echo, echo_json
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.evaluation.defaults import DEFAULT_DISTRACTORS, DEFAULT_SEEDS

if TYPE_CHECKING:
    from training.evaluation.data import Data
    from training.evaluation.methods import EncoderMethod, Similarity
    from training.evaluation.task import Task

_LIBRARIES = ("sklearn", "torch")
_STRINGS = ("jaccard", "tfidf")


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
    _check_before(figure)
    from training.evaluation.own_base import OwnBase
    from training.evaluation.run import as_record
    from training.evaluation.run import evaluate as run
    from training.evaluation.table import as_text
    from training.evaluation.task import EvaluationOptions

    source = _data(data)
    chosen = _tasks(tasks)
    if isinstance(source, OwnBase):
        if set(tasks) - {"linking"}:
            raise click.BadParameter("a base of your own has the task linking only", param_hint="--task")
        chosen = source.tasks()
        if click.get_current_context().get_parameter_source("folds") is click.core.ParameterSource.DEFAULT:
            folds = tuple(range(10))
    plain = [task for task in chosen if not _is_linking(task)]
    options = EvaluationOptions(
        n_seeds=seeds, n_distractors=distractors, linking=as_linking_options(folds, mentions, nil_shares)
    )
    methods: list[Similarity] = []
    report = None
    if plain or figure is not None:
        method = _encoder(model, device)
        others = [_method(name, device) for name in dict.fromkeys(baselines or _STRINGS)]
        methods = [method, *others]
        report = run(source, method, others, plain, options, say=lambda line: echo(line, err=True))
    if len(plain) < len(chosen):
        encoders = [name for name in dict.fromkeys(baselines) if name not in (*_STRINGS, model)]
        linking = LinkingRun(model, device, encoders, bases, ablation)
        report = join_reports(report, evaluate_linking(linking, source, list(filter(_is_linking, chosen)), options))
    assert report is not None, "some task was chosen"
    if not report.results:
        raise click.ClickException(f"{data} has none of the files that {len(chosen)} tasks read: see --list.")
    if as_json:
        echo_json(as_record(report))
    else:
        echo(*as_text(report).split("\n"))
    if figure is not None:
        _draw(figure, source, methods)


def _is_linking(task: Task) -> bool:
    return task.needs in ("linking", "large_linking")


def _check_before(figure: Path | None) -> None:
    """Say before anything is encoded what is not installed, and where a figure cannot be."""
    from importlib.util import find_spec

    from pearl_qdrant.errors import SettingsError

    needed = _LIBRARIES if figure is None else (*_LIBRARIES, "matplotlib")
    if absent := [library for library in needed if find_spec(library) is None]:
        raise SettingsError(f"evaluate needs {', '.join(absent)}: {install_command('train')}")
    if figure is not None and not figure.parent.is_dir():
        raise SettingsError(f"No folder {figure.parent} for the figure. Make it first.")


def _draw(path: Path, source: Data, methods: Sequence[Similarity]) -> None:
    from training.evaluation.figure import draw_figure
    from training.evaluation.methods import EncoderMethod

    draw_figure(path, source, [method for method in methods if isinstance(method, EncoderMethod)])
    echo(f"drew {path}", err=True)


def _tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    from training.evaluation.registry import find_tasks

    try:
        return find_tasks(names)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--task") from error


def _data(place: str) -> Data:
    from training.evaluation.data import FolderData
    from training.evaluation.hub import REPOSITORY, HubData
    from training.evaluation.own_base import OwnBase

    # A folder of that name goes before.
    if place in ("hub", REPOSITORY) and not Path(place).is_dir():
        return HubData()
    path = Path(place).expanduser()
    return OwnBase(path, max_errors=DEFAULT_MAX_ERRORS) if path.is_file() else FolderData(path)


def _encoder(name: str, device: str) -> EncoderMethod:
    from pearl_qdrant.encoder.loading import load_encoder
    from training.evaluation.methods import EncoderMethod

    return EncoderMethod(load_encoder(name, device=device))


def _method(name: str, device: str) -> Similarity:
    from training.evaluation.strings import StringMethod

    if name in _STRINGS:
        return StringMethod("jaccard" if name == "jaccard" else "tfidf")
    return _encoder(name, device)
