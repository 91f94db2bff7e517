"""`pearl-qdrant train head`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import (
    FOLDER,
    PATH,
    RATE,
    aliases_option,
    base_model_option,
    max_errors_option,
    min_count_option,
    option_of,
    phrases_option,
    taken,
)
from pearl_qdrant.cli.train.output import training_stage
from training.options import HeadOptions

_option = option_of(HeadOptions)


@click.command()
@base_model_option
@click.option("--out", type=FOLDER, required=True, help="Checkpoint to write.")
@phrases_option
@click.option("--typed-names", type=PATH, multiple=True, metavar="F",
              help="TSV of names and entity types; may be repeated.")  # fmt: skip
@aliases_option
@_option("--epochs", "epochs", type=click.IntRange(1), help="Passes over the names.")
@_option("--learning-rate", "learning_rate", type=RATE, help="Peak of a cosine schedule.")
@_option("--balance", "balance", type=click.FloatRange(0, 1),
         help="0 draws each name equally often, 1 each type.")  # fmt: skip
@_option("--max-each", "max_each", type=click.IntRange(1), help="Names of one type, at most.")
@click.option("--no-hold-out", is_flag=True, help="Use all names, and keep none for a test.")
@click.option("--name", metavar="NAME", help="Name of the model.  [default: that of the folder]")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="Instead of the base model's own.")
@click.option("--prefix", metavar="TEXT", help="Text before each name, instead of the base model's own.")
@_option("--seed", "seed", type=int, help="Determines everything.")
@min_count_option
@max_errors_option
@device_option
@json_option
def head(base_model: str, out: Path, no_hold_out: bool, as_json: bool, **others: Any) -> None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    A tenth of the names is held out and scored.

    \b
    pearl-qdrant train head --base-model Lihuchen/pearl_small --phrases phrase_with_etype.txt --out pearl-small-typed
    pearl-qdrant train head --base-model averaged/ --typed-names names.tsv --out typed
    """
    with training_stage() as output:
        from pearl_qdrant import train_head

        options = taken(HeadOptions, others, hold_out=not no_hold_out)
        scores = train_head(base_model, out, options=options, events=output, **others)
    if as_json:
        found = {} if scores is None else {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "n": scores.n}
        echo_json({"model": str(out), **found})
    elif scores is not None:
        echo(f"{out}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.3f} on {scores.n:,} names")
