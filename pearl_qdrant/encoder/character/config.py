"""What pearl.json says of a character encoder."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from pearl_qdrant.settings import DEFAULT_CHARACTER_SHARE

PAD, BEGIN, END = 0, 1, 2
"""Rows of the encoder's embeddings that are no characters: nothing, and the marks around a word."""

N_MARKS = 3


class CharacterConfig(BaseModel):
    """Widths and bounds of a character encoder; the defaults cost about a tenth of a 6 x 384 phrase encoder.

    With BERT's 30,522 wordpieces and 64-wide embeddings it has 2.1 million parameters, nearly all of them the
    wordpieces'.

    Attributes:
        alphabet: The characters, in the order of their embeddings.
        share: Of the cosine of two embeddings, how much comes from their character parts, in (0, 1):
            cos(h, h') = (1 - share) cos(u, u') + share cos(v, v').
        embedding_dim: Width of the embeddings of characters and wordpieces; even.
        attention_dim: Width of the queries and keys of the content attention. LOVE has 32.
        word_dim: Width of a word's vector.
        max_characters: Of a word; the rest is not looked at.
        max_pieces: Wordpieces of a word, likewise; 0 for an encoder of characters alone.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    alphabet: tuple[str, ...] = Field(min_length=1)
    share: float = Field(default=DEFAULT_CHARACTER_SHARE, gt=0, lt=1)
    embedding_dim: int = Field(default=64, gt=0, multiple_of=2)
    attention_dim: int = Field(default=32, gt=0)
    word_dim: int = Field(default=128, gt=0)
    max_characters: int = Field(default=32, gt=0, le=1000)
    max_pieces: int = Field(default=8, ge=0, le=1000)

    @property
    def max_places(self) -> int:
        """Places of a word: characters, two marks and wordpieces."""
        return self.max_characters + 2 + self.max_pieces


def tensor_shapes(config: CharacterConfig, *, char_dim: int, n_tokens: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a character encoder's tensors, by their names in torch.

    Args:
        config: Its widths.
        char_dim: Width of its part of the embedding.
        n_tokens: Tokens of the vocabulary.
    """
    e, a, w = config.embedding_dim, config.attention_dim, config.word_dim
    n_rows = N_MARKS + len(config.alphabet) + (n_tokens if config.max_pieces else 0)
    return {
        "embeddings.weight": (n_rows, e),
        "position.weight": (e, e),
        "query.weight": (a, e),
        "key.weight": (a, e),
        "output.weight": (w, 2 * e),
        "output.bias": (w,),
        "projection.weight": (char_dim, w),
    }
