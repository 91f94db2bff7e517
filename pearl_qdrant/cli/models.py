"""`pearl-qdrant models`: list, show, export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json


@click.group()
def models() -> None:
    """See the encoders that ship, and look into any other."""


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List the models that ship with this package."""
    from pearl_qdrant.encoder.find import list_models as shipped

    for config in shipped():
        if as_json:
            echo_json({"model": config.name, "dim": config.dim, "precision": config.precision})
        else:
            echo(f"{config.name}  {config.dim} dim  {config.precision}")
    if not as_json:
        echo("Any folder, or hub id as OWNER/NAME[@REVISION], works with --model too.", err=True)


@models.command("show")
@click.argument("model")
@json_option
def show(model: str, as_json: bool) -> None:
    """Load a model, verify its files, and say what it is."""
    from pearl_qdrant.encoder.checkpoint import is_checkpoint
    from pearl_qdrant.encoder.find import find_model
    from pearl_qdrant.encoder.loading import load_encoder
    from pearl_qdrant.encoder.verify import verify

    found = find_model(model)
    facts: dict[str, object] = {}
    if is_checkpoint(found.folder):
        config = verify(found.folder).config
        facts = {"files": {name: record.bytes for name, record in config.files.items()}, "training": config.training}
    facts = {**asdict(load_encoder(model, device="cpu").info), **facts}
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
@click.option("--torch", "for_torch", is_flag=True, help="Rebuild model.safetensors out of the graph's 8-bit weights.")
@json_option
def export(model: str, out: Path, for_torch: bool, as_json: bool) -> None:
    """Write a model that holds its weights once into a folder, for torch and sentence-transformers too.

    The folder is the same model: collections made with one form are queried with the other.

    \b
    pearl-qdrant models export pearl-mini-en pearl-mini-en-torch/ --torch
    """
    from pearl_qdrant.encoder.find import find_model

    if not for_torch:
        raise click.UsageError("Say which form to write: --torch. The ONNX form is the model's folder itself.")
    folder = find_model(model).folder
    with needs_extra("train"):
        from training.export.export_checkpoint import rebuild_for_torch

        parity = rebuild_for_torch(folder, out)
    if as_json:
        echo_json({"model": str(out), **asdict(parity)})
    else:
        echo(f"{parity}")
