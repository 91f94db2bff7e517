"""`pearl-qdrant train love`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.inputs import refuse_overwriting
from pearl_qdrant.settings import DEFAULT_CHARACTER_DIM, DEFAULT_CHARACTER_SHARE

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.argument("base", type=_FOLDER)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--vectors", type=_FILE, help="Word vectors to mimic: a .vec file of FastText, compressed or not.")
@click.option(
    "--mimic",
    type=click.Choice(["embeddings", "encoder"]),
    default="embeddings",
    show_default=True,
    help="Without --vectors: the input embeddings of BASE, or its vectors of single words.",
)
@click.option("--max-words", type=click.IntRange(2), help="Use so many words at most, the first ones.")
@click.option(
    "--char-dim", type=click.IntRange(1), default=DEFAULT_CHARACTER_DIM, show_default=True, help="Width of its part."
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=DEFAULT_CHARACTER_SHARE,
    show_default=True,
    help="Of the cosine of two names, how much comes from their characters.",
)
@click.option("--embedding-dim", type=click.IntRange(2), default=64, show_default=True, help="Of characters; even.")
@click.option("--word-dim", type=click.IntRange(1), default=128, show_default=True, help="Of a word's vector.")
@click.option("--no-wordpieces", is_flag=True, help="Characters alone.")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--batch", type=click.IntRange(2), default=128, show_default=True, help="Words a step.")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), default=2e-3, show_default=True)
@click.option("--hard-negatives", type=click.IntRange(0), default=3, show_default=True, help="Look-alikes a word.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--restart", is_flag=True, help="Do not go on from what OUT holds.")
@json_option
def love(
    base: Path,
    out: Path,
    vectors: Path | None,
    mimic: str,
    max_words: int | None,
    char_dim: int,
    share: float,
    embedding_dim: int,
    word_dim: int,
    no_wordpieces: bool,
    epochs: int,
    batch: int,
    learning_rate: float,
    hard_negatives: int,
    seed: int,
    restart: bool,
    as_json: bool,
) -> None:
    """Pre-train a character encoder for the encoder in folder BASE, by mimicry of word vectors (LOVE).

    The same command goes on after a kill. OUT is then given to `pearl-qdrant train fit`.

    \b
    pearl-qdrant train love all-MiniLM-L6-v2/ love/
    pearl-qdrant train love e5-small/ love/ --vectors wiki-news-300d-1M.vec --max-words 200000
    """
    if embedding_dim % 2:
        raise click.UsageError(f"--embedding-dim must be even, not {embedding_dim}.")
    refuse_overwriting(out, base)
    with needs_extra("train"):
        from training.love.pretrain import LoveConfig
        from training.love.run import CharacterWidths, pretrain_character_encoder

        mimicry = pretrain_character_encoder(
            base,
            out,
            vectors=vectors,
            own="encoder" if mimic == "encoder" else "embeddings",
            max_words=max_words,
            widths=CharacterWidths(char_dim, share, embedding_dim, word_dim, wordpieces=not no_wordpieces),
            config=LoveConfig(
                epochs=epochs, batch=batch, learning_rate=learning_rate, hard_negatives=hard_negatives, seed=seed
            ),
            resume=not restart,
        )
    if as_json:
        echo_json({"character_encoder": str(out), **asdict(mimicry)})
    else:
        echo(f"{mimicry}")
