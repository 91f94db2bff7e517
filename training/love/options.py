"""How a character encoder is pre-trained; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_CHARACTER_DIM, DEFAULT_CHARACTER_SHARE

Mimic = Literal["embeddings", "encoder"]
"""What is mimicked without a file of vectors: the input embeddings of whole words, or the encoder's vectors of them."""


@dataclass(frozen=True, slots=True)
class CharacterWidths:
    """The size of a character encoder.

    Attributes:
        char_dim: Width of its part of the vector.
        share: Share of the cosine of two names that comes from their characters.
        continuation_share: Their share in a phrase all of whose tokens continue a word; None for `share`. See
            `CharacterConfig`.
        embedding_dim: Width of the character embeddings; even.
        word_dim: Width of a word's vector.
        wordpieces: Whether wordpieces are embedded beside the characters.
    """

    char_dim: int = DEFAULT_CHARACTER_DIM
    share: float = DEFAULT_CHARACTER_SHARE
    embedding_dim: int = 64
    word_dim: int = 128
    wordpieces: bool = True
    continuation_share: float | None = None

    def __post_init__(self) -> None:
        if self.embedding_dim % 2:
            raise OptionError("embedding_dim", f"'embedding_dim' must be even, not {self.embedding_dim}.")


@dataclass(frozen=True, slots=True)
class LoveConfig:
    """How to pre-train.

    Attributes:
        epochs: How often each word is drawn.
        batch: Words per step.
        learning_rate: Learning rate of Adam at the start.
        decay: Factor of the learning rate per epoch.
        temperature: Temperature of the contrastive loss.
        typo_share: Share of the words of a batch that get one edit.
        hard_negatives: Look-alikes drawn for each word, at most; 0 for none.
        seed: Determines batches, edits and negatives.
    """

    epochs: int = 20
    batch: int = 128
    learning_rate: float = 2e-3
    decay: float = 0.97
    temperature: float = 0.07
    typo_share: float = 0.5
    hard_negatives: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or self.hard_negatives < 0:
            raise ValueError(
                f"epochs must be at least 1, batch at least 2 and hard_negatives at least 0, not {self.epochs}, "
                f"{self.batch}, {self.hard_negatives}"
            )
        if not (self.learning_rate > 0 and self.temperature > 0 and 0 < self.decay <= 1):
            raise ValueError(
                f"learning_rate and temperature must be positive and decay in (0, 1], not {self.learning_rate}, "
                f"{self.temperature}, {self.decay}"
            )
        if not 0 <= self.typo_share <= 1:
            raise ValueError(f"typo_share must be in [0, 1], not {self.typo_share}")
