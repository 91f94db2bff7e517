"""`pearl-qdrant models` and `pearl-qdrant doctor`: encoders, and the installation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pearl_qdrant.cli.common.options import (
    json_option,
    needs_extra,
    shipped_model_option,
    store_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json


@click.group()
def models() -> None:
    """List the shipped encoders, and inspect any encoder."""


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List the models that ship with this package."""
    from pearl_qdrant.encoder.find_model import list_models as shipped

    for config in shipped():
        if as_json:
            echo_json({"model": config.name, "dim": config.dim, "precision": config.precision})
        else:
            echo(f"{config.name}  {config.dim} dim  {config.precision}")
    if not as_json:
        echo("--model also takes any folder, or a hub id as OWNER/NAME[@REVISION].", err=True)


@models.command("show")
@click.argument("model")
@json_option
def show(model: str, as_json: bool) -> None:
    """Load a model, verify its files, and show its facts."""
    from pearl_qdrant.encoder.describe import describe_model

    facts = describe_model(model).to_json()
    if as_json:
        echo_json(facts)
        return
    for key, value in facts.items():
        for line, (left, right) in enumerate(value.items() if isinstance(value, dict) else [("", value)]):
            echo(f"{key if line == 0 else '':>18}  {left}{': ' if left else ''}{right}")
    if not facts["has_head"]:
        echo("A plain encoder: no type head, so points get no predicted types.", err=True)


@models.command("export")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--torch", "for_torch", is_flag=True, help="Rebuild model.safetensors from the 8-bit weights of the graph."
)
@json_option
def export(model: str, out: Path, for_torch: bool, as_json: bool) -> None:
    """Write a model into a folder in a form that torch and sentence-transformers can load too.

    It is the same model: collections made with one form can be queried with the other.

    \b
    pearl-qdrant models export pearl-mini pearl-mini-torch/ --torch
    """
    if not for_torch:
        raise click.UsageError("Choose the form to write: --torch. The ONNX form is the model's own folder.")
    with needs_extra("train"):
        from training.export.export_checkpoint import rebuild_for_torch

        parity = rebuild_for_torch(model, out)
    if as_json:
        echo_json({"model": str(out), **asdict(parity)})
    else:
        echo(f"{parity}")


@click.command()
@store_option
@shipped_model_option("The model to check.")
@json_option
@click.pass_context
def doctor(context: click.Context, store: str, model: str, as_json: bool) -> None:
    """Check versions, devices, the store and the model. The exit status is 1 if something needs a fix."""
    from pearl_qdrant.doctor import run_checks

    has_failed = False
    for check in run_checks(store, model):
        has_failed |= check.state == "fail"
        if as_json:
            echo_json({"check": check.subject, "state": check.state, "found": check.finding})
        else:
            echo(f"{check.state:>5}  {check.subject:<10}  {check.finding}")
    if has_failed:
        context.exit(1)
