"""`pearl-qdrant train average`."""

from __future__ import annotations

from pathlib import Path

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.inputs import refuse_overwriting


@click.command()
@click.argument("base", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("tuned", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Share of TUNED: 0 is BASE, 1 is TUNED as it is.",
)
def average(base: Path, tuned: Path, out: Path, ratio: float) -> None:
    """Average the fine-tuned checkpoint TUNED with the encoder BASE that it started from, against forgetting.

    Only the phrase encoder is averaged. Type head and character encoder stay TUNED's. `pearl-qdrant train head` fits a
    new head to the result, from names of every type that it shall know; one of few types is worse than none.

    \b
    pearl-qdrant train average all-MiniLM-L6-v2/ fitted/ averaged/ --ratio 0.5
    """
    refuse_overwriting(out, base, tuned)
    with needs_extra("train"):
        from training.networks.average_checkpoint import average_checkpoint

        average_checkpoint(base, tuned, out, ratio=ratio)
    echo(
        f"{out}: {ratio:g} of {tuned}, {1 - ratio:g} of {base}. Its type head is that of {tuned}; with names of every "
        f"type at hand, `train head` fits one to the averaged vectors. Next: train export",
        err=True,
    )
