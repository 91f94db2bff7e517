"""`pearl-qdrant train negatives`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import device_option
from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.inputs import (
    aliases_option,
    max_errors_option,
    min_count_option,
    phrases_option,
    read_material,
    refuse_overwriting,
)
from pearl_qdrant.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from training.mining.hard_negatives import Encode, FloatArray


@click.command()
@phrases_option
@aliases_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="hard_negative.txt, or JSON Lines if the name ends in .jsonl.")  # fmt: skip
@click.option("--model", envvar="PEARL_QDRANT_MODEL", show_envvar=True, default=DEFAULT_MODEL, show_default=True,
              help="Base encoder: candidates with a low cosine are kept.")  # fmt: skip
@click.option("--teacher", metavar="M", help="Encoder that says what means the same.  [default: the base encoder]")
@click.option("--max-cosine", type=click.FloatRange(-1, 1), default=0.9, show_default=True,
              help="Teacher cosine over which a candidate means the same and is left out.")  # fmt: skip
@click.option("--keep", type=click.IntRange(1), default=12, show_default=True, help="Negatives a phrase, at most.")
@click.option("--pool", type=click.IntRange(1), default=32, show_default=True,
              help="Candidates a phrase that are compared, those at the smallest edit distance.")  # fmt: skip
@click.option("--neighbours", type=click.IntRange(0), default=8, show_default=True,
              help="Looked at in each sorted order; 0 leaves only edit distance 2.")  # fmt: skip
@click.option("--max-share", type=click.FloatRange(0, 1, min_open=True), default=0.5, show_default=True,
              help="Edit distance over the longer phrase's length, at most.")  # fmt: skip
@click.option("--different-type", is_flag=True, help="Only candidates known to be of another phrase type.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="That measure edit distances.")
@min_count_option
@max_errors_option
@device_option
def negatives(
    phrases: tuple[Path, ...],
    aliases: tuple[Path, ...],
    out: Path,
    model: str,
    teacher: str | None,
    max_cosine: float,
    keep: int,
    pool: int,
    neighbours: int,
    max_share: float,
    different_type: bool,
    threads: int,
    min_count: int,
    max_errors: int,
    device: str,
) -> None:
    """Find hard negatives: phrases that are spelled almost like a phrase and mean something else.

    None is of the same entity, equal after case and punctuation folding, or close in meaning to the teacher.

    \b
    pearl-qdrant train negatives --phrases corpus --out corpus/hard_negative.txt
    pearl-qdrant train negatives --aliases umls.tsv --model all-MiniLM-L6-v2/ --out hard_negative.jsonl
    """
    refuse_overwriting(out, *phrases, *aliases)
    with needs_extra("train"):
        from training.data.training_files import as_phrases
        from training.mining.hard_negatives import MiningConfig, mine_hard_negatives
        from training.mining.negative_table import write_hard_negatives

        examples = read_material(phrases, aliases, min_count=min_count, max_errors=max_errors)
        config = MiningConfig(
            kept=keep,
            pool=max(pool, keep),
            neighbours=neighbours,
            max_share=max_share,
            max_cosine=max_cosine,
            different_type=different_type,
            threads=threads,
        )
        judge = None if teacher is None else _encode(teacher, device, "teacher")
        found = mine_hard_negatives(
            list(as_phrases(examples)), _encode(model, device, "encode"), teacher=judge, config=config
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        n_rows = write_hard_negatives(out, found)
    echo(f"{out}: {n_rows:,} phrases with hard negatives", err=True)


_SLICE = 1024  # names between two moves of the bar


def _encode(model: str, device: str, label: str) -> Encode:
    """A model as a function, with a progress bar."""
    import numpy as np
    from tqdm import tqdm

    from pearl_qdrant.encoder.loading import load_encoder

    encoder = load_encoder(model, device=device)
    bar = tqdm(unit=" names", unit_scale=True, desc=label, disable=None)

    def encode(names: Sequence[str]) -> FloatArray:
        parts = []
        for start in range(0, len(names), _SLICE):
            parts.append(encoder.encode(names[start : start + _SLICE]).vectors)
            bar.update(len(parts[-1]))
        return np.concatenate(parts)

    return encode
