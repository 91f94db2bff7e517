"""`pearl-qdrant train average`."""

from __future__ import annotations

from pathlib import Path

import click

from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.options import FOLDER
from pearl_qdrant.cli.train.output import training_stage
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from training.options import AVERAGE_RATIO

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
