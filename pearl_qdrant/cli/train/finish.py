"""What makes a model of a trained network: `train average`, `head` and `export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import (
    FOLDER,
    PATH,
    aliases_option,
    base_model_option,
    options_of,
    phrases_option,
    taken,
    training_stage,
)
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from training.options import AVERAGE_RATIO, HeadOptions

if TYPE_CHECKING:
    from training.export.export_checkpoint import Precision

_EXISTING = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("base_model", type=_EXISTING)
@click.argument("tuned", type=_EXISTING)
@click.argument("out", type=FOLDER)
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1),
    default=AVERAGE_RATIO,
    show_default=True,
    help="Share of TUNED: 0 is BASE_MODEL, 1 is TUNED unchanged.",
)
def average(base_model: Path, tuned: Path, out: Path, ratio: float) -> None:
    """Average the fine-tuned checkpoint TUNED with the encoder BASE_MODEL that it started from, against forgetting.

    TUNED may also be a plain encoder, as `train ulr` writes it, and OUT is one then. Only the phrase encoder is
    averaged. Type head and character encoder stay TUNED's. `pearl-qdrant train head` fits a new head to the result. It
    needs names of every type that the head is to know: a head of few types is worse than none.

    \b
    pearl-qdrant train average all-MiniLM-L6-v2/ fitted/ averaged/ --ratio 0.5
    """
    with training_stage():
        from pearl_qdrant import average_checkpoint

        average_checkpoint(base_model, tuned, out, ratio=ratio)
    done = f"{out}: {ratio:g} of {tuned}, {1 - ratio:g} of {base_model}."
    if is_checkpoint(out):
        done += (
            f" Its type head is that of {tuned}; with names of every type, `train head` fits one to the averaged "
            "vectors. Next: train export"
        )
    echo(done, err=True)


@click.command()
@base_model_option
@click.option("--out", type=FOLDER, required=True, help="Checkpoint to write.")
@phrases_option
@click.option("--typed-names", type=PATH, multiple=True, metavar="F",
              help="TSV of names and entity types; may be repeated.")  # fmt: skip
@aliases_option
@options_of(HeadOptions, without=("learning_rate", "balance", "max_each", "hold_out"))
@device_option
@json_option
def head(base_model: str, out: Path, as_json: bool, **others: Any) -> None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    A tenth of the names is held out and scored.

    \b
    pearl-qdrant train head --base-model Lihuchen/pearl_small --phrases phrase_with_etype.txt --out pearl-small-typed
    pearl-qdrant train head --base-model averaged/ --typed-names names.tsv --out typed
    """
    with training_stage() as output:
        from pearl_qdrant import train_head

        options = taken(HeadOptions, others)
        scores = train_head(base_model, out, options=options, events=output, **others)
    if as_json:
        found = {} if scores is None else {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "n": scores.n}
        echo_json({"model": str(out), **found})
    elif scores is not None:
        echo(f"{out}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.3f} on {scores.n:,} names")


@click.command()
@click.argument("model", type=_EXISTING)
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
@json_option
def export(model: Path, out: Path, precision: Precision, name: str | None, with_torch: bool, as_json: bool) -> None:
    """Export the trained checkpoint MODEL as one ONNX graph, and check that graph and network agree.

    \b
    pearl-qdrant train export averaged/ my-model/ --name my-model
    pearl-qdrant link "nytimes.com" --model my-model/
    """
    with training_stage():
        from pearl_qdrant import export_checkpoint

        parity = export_checkpoint(model, out, precision=precision, name=name, with_torch=with_torch)
    if as_json:
        echo_json({"model": str(out), "precision": precision, **asdict(parity)})
    else:
        echo(f"{parity}")
