"""`pearl-qdrant train love`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, RATE, option_of, taken
from pearl_qdrant.cli.train.output import training_stage
from training.options import CharacterWidths, LoveConfig

_width = option_of(CharacterWidths)
_option = option_of(LoveConfig)


@click.command()
@click.argument("base_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=FOLDER)
@click.option(
    "--vectors",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Word vectors to mimic: a .vec file of FastText, compressed or not.",
)
@click.option(
    "--mimic",
    type=click.Choice(["embeddings", "encoder"]),
    default="embeddings",
    show_default=True,
    help="Without --vectors: the input embeddings of BASE_MODEL, or its vectors of single words.",
)
@click.option("--max-words", type=click.IntRange(2), help="Use at most this many words, the first ones.")
@_width("--char-dim", "char_dim", type=click.IntRange(1), help="Width of its part of the vector.")
@_width("--share", "share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Share of the cosine of two names that comes from their characters.")  # fmt: skip
@click.option("--continuation-share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Their share in a name whose tokens all continue a word, as many do where it is misspelt. Between "
              "the two it grows with the part of such tokens. By default the same as --share.")  # fmt: skip
@_width("--embedding-dim", "embedding_dim", type=click.IntRange(2), help="Width of the character embeddings; even.")
@_width("--word-dim", "word_dim", type=click.IntRange(1), help="Width of a word's vector.")
@click.option("--no-wordpieces", is_flag=True, help="Embed characters only.")
@_option("--epochs", "epochs", type=click.IntRange(1), help="How often each word is drawn.")
@_option("--batch", "batch", type=click.IntRange(2), help="Words per step.")
@_option("--learning-rate", "learning_rate", type=RATE, help="Learning rate at the start.")
@_option("--hard-negatives", "hard_negatives", type=click.IntRange(0), help="Look-alikes drawn for each word.")
@_option("--seed", "seed", type=int, help="Determines everything.")
@click.option("--restart", is_flag=True, help="Start over, even if OUT holds the state of a run.")
@json_option
def love(base_model: Path, out: Path, no_wordpieces: bool, restart: bool, as_json: bool, **others: Any) -> None:
    """Pre-train a character encoder for the encoder in folder BASE_MODEL, by mimicry of word vectors (LOVE).

    The same command resumes a run that was interrupted. Give OUT to `pearl-qdrant train fit` as --character-encoder.

    \b
    pearl-qdrant train love all-MiniLM-L6-v2/ love/
    pearl-qdrant train love e5-small/ love/ --vectors wiki-news-300d-1M.vec --max-words 200000
    """
    with training_stage():
        from pearl_qdrant import pretrain_character_encoder

        widths = taken(CharacterWidths, others, wordpieces=not no_wordpieces)
        config = taken(LoveConfig, others)
        mimicry = pretrain_character_encoder(
            base_model, out, widths=widths, config=config, resume=not restart, **others
        )
    if as_json:
        echo_json({"character_encoder": str(out), **asdict(mimicry)})
    else:
        echo(f"{mimicry}")
