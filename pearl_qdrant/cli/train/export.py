"""`pearl-qdrant train export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER
from pearl_qdrant.cli.train.output import training_stage

if TYPE_CHECKING:
    from training.export.export_checkpoint import Precision


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=FOLDER)
@click.option(
    "--precision",
    type=click.Choice(["int8", "fp32"]),
    default="int8",
    show_default=True,
    help="Of the graph: int8 has a quarter of the size and twice the speed; fp32 is as trained.",
)
@click.option("--name", help="Name of the exported model.  [default: that of MODEL]")
@click.option("--torch", "with_torch", is_flag=True, help="Keep the weights for torch beside the graph.")
@click.option(
    "--names",
    type=click.File("r", encoding="utf-8"),
    help="Names to compare graph and network on, one per line.  [default: pieces of the vocabulary]",
)
@json_option
def export(
    model: Path,
    out: Path,
    precision: Precision,
    name: str | None,
    with_torch: bool,
    names: TextIO | None,
    as_json: bool,
) -> None:
    """Export the trained checkpoint MODEL as one ONNX graph, and check that graph and network agree.

    \b
    pearl-qdrant train export averaged/ my-model/ --name my-model
    pearl-qdrant link "nytimes.com" --model my-model/
    """
    texts = [line.strip() for line in names if line.strip()] if names is not None else []
    if names is not None and not texts:
        raise click.UsageError(f"{names.name} has no names: give one per line.")
    with training_stage():
        from pearl_qdrant import export_checkpoint

        parity = export_checkpoint(model, out, precision=precision, name=name, with_torch=with_torch, names=texts)
    if as_json:
        echo_json({"model": str(out), "precision": precision, **asdict(parity)})
    else:
        echo(f"{parity}")
