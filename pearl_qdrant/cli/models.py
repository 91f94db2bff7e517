"""`pearl-qdrant models` and `pearl-qdrant doctor`: encoders, and the installation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import flag_of, set_option
from pearl_qdrant.cli.shared import progress_bar
from pearl_qdrant.cli.terminal import echo, echo_result
from pearl_qdrant.settings import DEFAULT_WAIT_S

if TYPE_CHECKING:
    from pearl_qdrant.transfer.reencoding import EverydayChange, ReencodeResult


@click.group()
def models() -> None:
    """List the shipped encoders, and inspect any encoder."""


@models.command("list")
def list_models() -> None:
    """List the models that ship with this package."""
    from pearl_qdrant.encoder.loading import list_models as shipped

    for config in shipped():
        echo(f"{config.name}  {config.dim} dim  {config.precision}")
    echo("--model also takes any folder, or a hub id as OWNER/NAME[@REVISION].", err=True)


@models.command("show")
@click.argument("model")
def show(model: str) -> None:
    """Load a model, verify its files, and show its facts."""
    from pearl_qdrant.encoder.loading import describe_model

    facts = describe_model(model).to_json()
    for key, value in facts.items():
        for line, (left, right) in enumerate(value.items() if isinstance(value, dict) else [("", value)]):
            echo(f"{key if line == 0 else '':>18}  {left}{': ' if left else ''}{right}")
    if not facts["has_head"]:
        echo("A plain encoder: no type head, so points get no predicted types.", err=True)


@models.command("export")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def export(model: str, out: Path) -> None:
    """Write a model into a folder in a form that torch and sentence-transformers can load too.

    model.safetensors is rebuilt from the 8-bit weights of the graph. It is the same model: collections made with one
    form can be queried with the other.

    \b
    pearl-qdrant models export pearl-mini pearl-mini-torch/
    """
    with shared.needs_extra("train"):
        from training.export.export_checkpoint import rebuild_for_torch

        parity = rebuild_for_torch(model, out)
    echo(str(parity))


@click.command()
@shared.store_option
@shared.shipped_model_option("The model to check.")
@shared.json_option
@click.pass_context
def doctor(context: click.Context, store: str, model: str, as_json: bool) -> None:
    """Check versions, devices, the store and the model. The exit status is 1 if something needs a fix."""
    from pearl_qdrant.doctor import run_checks

    has_failed = False
    for check in run_checks(store, model):
        has_failed |= check.state == "fail"
        record = {"check": check.subject, "state": check.state, "found": check.finding}
        echo_result(record, f"{check.state:>5}  {check.subject:<10}  {check.finding}", as_json=as_json)
    if has_failed:
        context.exit(1)


@click.command()
@click.argument("name", metavar="COLLECTION")
@click.option("--model", help="Shipped name, folder or hub id of the new model.")
@click.option("--rollback", is_flag=True, help="Go back to the version before the current one.")
@click.option(
    "--everyday",
    is_flag=True,
    help="Before the switch, answer everyday mentions of the names with both models; do not switch if the mean falls.",
)
@shared.store_option
def reencode(name: str, model: str | None, rollback: bool, everyday: bool, store: str) -> None:
    """Encode the names of a collection again with another model, without downtime.

    The version before it is kept, hidden. The same command goes on where it was killed. With --everyday it ends with
    status 1 if the new model is worse; the same command without --everyday switches then, without encoding again.
    """
    from pearl_qdrant.transfer.reencoding import EVERYDAY_MENTIONS, reencode_collection, rollback_collection

    if rollback == (model is not None):
        raise click.UsageError("Give --model with the new model, or --rollback.")
    if everyday and rollback:
        raise click.UsageError("--everyday compares the models of --model, and --rollback has none.")
    with progress_bar(name) as on_progress:
        if model is None:
            result = rollback_collection(name, store=store, wait_s=DEFAULT_WAIT_S, on_progress=on_progress)
        else:
            result = reencode_collection(
                name,
                model=model,
                store=store,
                device=shared.device_of_environment(),
                everyday=EVERYDAY_MENTIONS if everyday else None,
                wait_s=DEFAULT_WAIT_S,
                on_progress=on_progress,
            )
    _print(result, store)
    if not result.switched and result.everyday is not None:
        click.get_current_context().exit(1)


def _print(result: ReencodeResult, store: str) -> None:
    if result.everyday is not None:
        _print_everyday(result, result.everyday)
    if not result.switched and result.everyday is not None:
        echo(
            f"{result.collection}: stays with {result.model_before}. The version with {result.model} is kept, hidden: "
            "the same command without --everyday switches to it, and collections prune deletes it.",
            err=True,
        )
        return
    if not result.switched:
        echo(f"{result.collection}: its {result.names:,} names are encoded with {result.model} already.", err=True)
        return
    recall = "" if result.recall is None else f"Recall of a sample: {result.recall:.3f}. "
    echo(
        f"{result.collection}: {result.model} in place of {result.model_before}; {result.encoded:,} of "
        f"{result.names:,} names encoded in {result.seconds:.1f} s, writers waited {result.switch_seconds:.1f} s.",
        f"{recall}Calibrations belong to a model: see pearl-qdrant calibrate.",
        f"Back: pearl-qdrant reencode {result.collection} --rollback --store {store}",
        f"When no reader needs the old version: pearl-qdrant collections prune {result.collection} --store {store}",
        err=True,
    )


def _print_everyday(result: ReencodeResult, change: EverydayChange) -> None:
    echo(
        f"right of {change.mentions:,} everyday mentions, %   {result.model_before}   {result.model}",
        *(f"{one.kind:<18}{one.mentions:>6,}{one.before:>8.1f}{one.after:>8.1f}" for one in change.kinds),
        f"{'mean of the kinds':<24}{change.before:>8.1f}{change.after:>8.1f}"
        f"   ({-change.fall:+.1f}, standard error {change.error:.1f})",
        err=True,
    )


def _tasks() -> Iterator[tuple[str, str]]:
    from pearl_qdrant import list_tasks

    return ((task.name, task.description) for task in list_tasks())


@click.command()
@shared.shipped_model_option("A shipped name, a folder, or a hub id.")
@click.option("--data", required=True, metavar="DIR|FILE|hub",
              help="Folder with the evaluation sets, a base of your own as one file, or hub for "
              "Lihuchen/pearl_benchmark and autofj.")  # fmt: skip
@shared.named_option("--task", "tasks", multiple=True, metavar="T", names=_tasks,
                     help="Run only this task; repeatable. `--task help` lists them with their sets.")  # fmt: skip
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="M",
    help="Another model to compare with, jaccard, tfidf, bm25, or word vectors (a .vec file); repeatable.  "
    "[default: jaccard, tfidf, bm25]",
)
@set_option("training.options:EvaluationOptions")
@shared.json_option
def evaluate(data: str, settings: dict[str, Any], as_json: bool, **others: Any) -> None:
    """Measure a model on the tasks of both papers and on linking, with baselines and their figures for comparison.

    Tasks whose sets are missing in DIR are skipped and named. For a base of your own (FILE, in any format of ingest),
    its aliases are linked twice: against its canonical names only, and against all names except the mention's own.
    The task `everyday` makes mentions of every kind that people type from a base, and shows what becomes of them, for
    the linker, for exact lookup, for exact lookup with rapidfuzz, and for TF-IDF. Needs the extra `train`.

    \b
    pearl-qdrant evaluate --model pearl-mini --data data/
    pearl-qdrant evaluate --model runs/a --baseline pearl-mini --data data/ --task bird --task turney --json
    pearl-qdrant evaluate --data data/ --task twitter_s --set n_seeds=10
    pearl-qdrant evaluate --data data/ --task linking
    pearl-qdrant evaluate --data base.tsv
    pearl-qdrant evaluate --data base.tsv --task everyday
    """
    from pearl_qdrant import evaluate_model, report_as_text
    from pearl_qdrant.errors import MissingDataError, OptionError
    from training.evaluation.run import as_record
    from training.options import EvaluationOptions

    options, device = EvaluationOptions(**settings), shared.device_of_environment()
    try:
        report = evaluate_model(data, options=options, device=device, progress=partial(echo, err=True), **others)
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint=flag_of(evaluate, error.option)) from error
    except MissingDataError as error:
        raise click.ClickException(f"{error}: see --task help.") from error
    echo_result(as_record(report), *report_as_text(report).split("\n"), as_json=as_json)
