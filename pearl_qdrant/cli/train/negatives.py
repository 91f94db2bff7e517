"""`pearl-qdrant train negatives`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import device_option
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.options import (
    aliases_option,
    max_errors_option,
    min_count_option,
    option_of,
    phrases_option,
    taken,
)
from pearl_qdrant.cli.train.output import training_stage
from pearl_qdrant.settings import DEFAULT_MODEL
from training.options import MiningConfig

_option = option_of(MiningConfig)


@click.command()
@phrases_option
@aliases_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="hard_negative.txt, or JSON Lines if the name ends in .jsonl.")  # fmt: skip
@click.option("--model", envvar="PEARL_QDRANT_MODEL", show_envvar=True, default=DEFAULT_MODEL, show_default=True,
              help="Base encoder: the candidates with its lowest cosines are kept.")  # fmt: skip
@click.option("--teacher", metavar="M", help="Encoder that decides what means the same.  [default: the base encoder]")
@_option("--max-cosine", "max_cosine", type=click.FloatRange(-1, 1),
         help="A candidate with a higher teacher cosine means the same and is skipped.")  # fmt: skip
@_option("--keep", "kept", type=click.IntRange(1), help="Hard negatives per phrase, at most.")
@_option("--pool", "pool", type=click.IntRange(1),
         help="Candidates per phrase that are compared: those at the smallest edit distance.")  # fmt: skip
@_option("--neighbours", "neighbours", type=click.IntRange(0),
         help="Neighbours compared in each sorted order; 0 leaves only edit distance 2.")  # fmt: skip
@_option("--max-share", "max_share", type=click.FloatRange(0, 1, min_open=True),
         help="Edit distance divided by the length of the longer phrase, at most.")  # fmt: skip
@_option("--different-type", "different_type", is_flag=True, help="Only candidates known to be of another phrase type.")
@_option("--threads", "threads", type=click.IntRange(1), help="Threads that measure edit distances.")
@min_count_option
@max_errors_option
@device_option
def negatives(out: Path, pool: int, kept: int, **others: Any) -> None:
    """Find hard negatives: phrases that are spelled almost like a phrase and mean something else.

    A hard negative is never of the same entity, equal after case and punctuation folding, or close in meaning to the
    teacher.

    \b
    pearl-qdrant train negatives --phrases corpus --out corpus/hard_negative.txt
    pearl-qdrant train negatives --aliases umls.tsv --model all-MiniLM-L6-v2/ --out hard_negative.jsonl
    """
    config = taken(MiningConfig, others, kept=kept, pool=max(pool, kept))
    with training_stage() as output:
        from pearl_qdrant import mine_negatives

        n_rows = mine_negatives(out, config=config, events=output, **others)
    echo(f"{out}: {n_rows:,} phrases with hard negatives", err=True)
