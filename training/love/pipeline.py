"""Pre-training of a character encoder in one call: what `pearl-qdrant train love` does.

from pearl_qdrant import pretrain_character_encoder

pretrain_character_encoder("all-MiniLM-L6-v2/", "love/")
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from pearl_qdrant.encoder.character.config import CharacterConfig
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterTable, read_character_table
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.encoder.tokens import open_tokenizer
from training.love.options import CharacterWidths, LoveConfig, Mimic
from training.love.pretrain import Mimicry, pretrain
from training.love.targets import Targets, embedding_targets, encoder_targets, file_targets, whole_words
from training.networks.character_files import write_character_encoder
from training.paths import StrPath, refuse_overwriting


def pretrain_character_encoder(
    base_model: StrPath,
    out: StrPath,
    *,
    vectors: StrPath | None = None,
    mimic: Mimic = "embeddings",
    max_words: int | None = None,
    widths: CharacterWidths | None = None,
    config: LoveConfig | None = None,
    resume: bool = True,
    progress: bool = True,
) -> Mimicry:
    """Make a character encoder for the phrase encoder of a folder, pre-train it, and write it.

    The same call resumes a run that was interrupted.

    Args:
        base_model: A folder of transformers or sentence-transformers, or a checkpoint.
        out: The folder to write: the encoder (see `training.networks.character_files`), the state of the run, its log.
        vectors: A `.vec` file to mimic; None for the vectors of `base_model` itself.
        mimic: Without `vectors`: the input embeddings of whole words, or the encoder's vectors of them.
        max_words: At most this many words, the first ones.
        widths: The encoder's size.
        config: How to train.
        resume: Resume from the state in `out`; otherwise it is removed.
        progress: Show a progress bar on stderr.

    Raises:
        OptionError: If `out` is an input.
        CheckpointError: If `base_model` is not a model, or its tokenizer does not mark words.
        FormatError: If `vectors` is not a file of word vectors.
        TrainingError: If there are too few words, or `out` holds another run.
    """
    refuse_overwriting(out, base_model, vectors)
    base, target, config, widths = Path(base_model), Path(out), config or LoveConfig(), widths or CharacterWidths()
    folder = base if is_checkpoint(base) else read_plain_model(base).folder
    table = read_character_table(folder / "tokenizer.json")
    generator = torch.Generator().manual_seed(config.seed)
    encoder = CharacterEncoder(table, _character_config(widths, table), widths.char_dim, generator=generator)
    tokenizer = open_tokenizer(folder / "tokenizer.json")
    word_vectors = None if vectors is None else Path(vectors)
    targets = _read_targets(folder, table, tokenizer, vectors=word_vectors, mimic=mimic, max_words=max_words)
    mimicry = pretrain(encoder, tokenizer, targets, config, target, resume=resume, progress=progress)
    source = f"{mimic} of {base.name}" if word_vectors is None else word_vectors.name
    record = {**asdict(config), "targets": source, "words": len(targets.words), **asdict(mimicry)}
    write_character_encoder(target, encoder, training=record)
    return mimicry


def _character_config(widths: CharacterWidths, table: CharacterTable) -> CharacterConfig:
    """The encoder's config over a vocabulary."""
    sizes: dict[str, Any] = {
        "embedding_dim": widths.embedding_dim,
        "word_dim": widths.word_dim,
        "share": widths.share,
        "continuation_share": widths.continuation_share,
    }
    if not widths.wordpieces:
        sizes["max_pieces"] = 0
    return CharacterConfig(alphabet=table.alphabet, **sizes)


def _read_targets(
    folder: Path,
    table: CharacterTable,
    tokenizer: Tokenizer,
    *,
    vectors: Path | None,
    mimic: Mimic,
    max_words: int | None,
) -> Targets:
    """The words to mimic, with their vectors."""
    if vectors is not None:
        return file_targets(vectors, limit=max_words)
    phrase_encoder = load_transformer(folder)
    if mimic == "embeddings":
        found = embedding_targets(phrase_encoder, table)
        return Targets(found.words[:max_words], found.vectors[:max_words])
    return encoder_targets(PearlNetwork(phrase_encoder, None), tokenizer, list(whole_words(table))[:max_words])
