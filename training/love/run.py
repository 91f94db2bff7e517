"""Pre-training of a character encoder from folder to folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer

from pearl_qdrant.encoder.character.config import CharacterConfig
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterTable, read_character_table
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.plain import read_plain_model
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.encoder.tokens import open_tokenizer
from pearl_qdrant.settings import DEFAULT_CHARACTER_DIM, DEFAULT_CHARACTER_SHARE
from training.love.pretrain import LoveConfig, Mimicry, pretrain
from training.love.targets import Targets, embedding_targets, encoder_targets, file_targets, whole_words
from training.networks.character_files import write_character_encoder

Own = Literal["embeddings", "encoder"]


@dataclass(frozen=True, slots=True)
class CharacterWidths:
    """The size of a character encoder; see `CharacterConfig`."""

    char_dim: int = DEFAULT_CHARACTER_DIM
    share: float = DEFAULT_CHARACTER_SHARE
    embedding_dim: int = 64
    word_dim: int = 128
    wordpieces: bool = True

    def config(self, table: CharacterTable) -> CharacterConfig:
        """The encoder's config over a vocabulary."""
        sizes: dict[str, Any] = {"embedding_dim": self.embedding_dim, "word_dim": self.word_dim, "share": self.share}
        if not self.wordpieces:
            sizes["max_pieces"] = 0
        return CharacterConfig(alphabet=table.alphabet, **sizes)


def pretrain_character_encoder(
    base: Path,
    out: Path,
    *,
    vectors: Path | None = None,
    own: Own = "embeddings",
    max_words: int | None = None,
    widths: CharacterWidths,
    config: LoveConfig,
    resume: bool = True,
    progress: bool = True,
) -> Mimicry:
    """Make a character encoder for the phrase encoder of a folder, pre-train it, and write it.

    Args:
        base: A folder of transformers or sentence-transformers, or a checkpoint.
        out: The folder to write: the encoder as `training.networks.character_files` has it, the state of the run and
        its log. vectors: A `.vec` file to mimic; None for what `base` itself gives.
        own: Without `vectors`: the input embeddings of whole words, or the encoder's vectors of them.
        max_words: So many at most.
        widths: The encoder's size.
        config: How to train.
        resume: Go on from what `out` holds.
        progress: Show a bar on stderr.

    Raises:
        CheckpointError: If `base` is no model, or its tokenizer does not mark words.
        FormatError: If `vectors` is no file of word vectors.
        TrainingError: If there are too few words, or `out` holds another run.
    """
    folder = base if is_checkpoint(base) else read_plain_model(base).folder
    table = read_character_table(folder / "tokenizer.json")
    generator = torch.Generator().manual_seed(config.seed)
    encoder = CharacterEncoder(table, widths.config(table), widths.char_dim, generator=generator)
    tokenizer = open_tokenizer(folder / "tokenizer.json")
    targets = _targets(folder, table, tokenizer, vectors=vectors, own=own, max_words=max_words)
    mimicry = pretrain(encoder, tokenizer, targets, config, out, resume=resume, progress=progress)
    source = vectors.name if vectors is not None else f"{own} of {base.name}"
    record = {**asdict(config), "targets": source, "words": len(targets.words), **asdict(mimicry)}
    write_character_encoder(out, encoder, training=record)
    return mimicry


def _targets(
    folder: Path, table: CharacterTable, tokenizer: Tokenizer, *, vectors: Path | None, own: Own, max_words: int | None
) -> Targets:
    """The words to mimic, with their vectors."""
    if vectors is not None:
        return file_targets(vectors, limit=max_words)
    phrase_encoder = load_transformer(folder)
    if own == "embeddings":
        found = embedding_targets(phrase_encoder, table)
        return Targets(found.words[:max_words], found.vectors[:max_words])
    return encoder_targets(PearlNetwork(phrase_encoder, None), tokenizer, list(whole_words(table))[:max_words])
