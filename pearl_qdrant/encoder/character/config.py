"""The configuration of a character encoder, as stored in pearl.json."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from pearl_qdrant.settings import DEFAULT_CHARACTER_SHARE

PAD, BEGIN, END = 0, 1, 2
"""Rows of the embeddings that are not characters: padding, and the marks around a word."""

N_MARKS = 3


class CharacterConfig(BaseModel):
    """Widths and limits of a character encoder; the defaults cost about a tenth of a 6 x 384 phrase encoder.

    With BERT's 30,522 wordpieces and 64-wide embeddings it has 2.1 million parameters, nearly all of them in
    the wordpieces.

    Attributes:
        alphabet: The characters, in the order of their embeddings.
        share: Share of the character parts in the cosine of two embeddings, in (0, 1):
            cos(h, h') = (1 - share) cos(u, u') + share cos(v, v').
        continuation_share: The share of a phrase all of whose tokens continue a word; None for `share`. Between the two
            it grows with the part of the tokens that do. A misspelt or rare word is split into many wordpieces, which
            say less of it than its characters do.
        embedding_dim: Width of the embeddings of characters and wordpieces; even.
        attention_dim: Width of queries and keys of the content attention; 32 in LOVE.
        word_dim: Width of a word's vector.
        max_characters: Characters of a word that are read; the rest is ignored.
        max_pieces: Wordpieces of a word that are read; 0 to use characters only.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    alphabet: tuple[str, ...] = Field(min_length=1)
    share: float = Field(default=DEFAULT_CHARACTER_SHARE, gt=0, lt=1)
    continuation_share: float | None = Field(default=None, gt=0, lt=1)
    embedding_dim: int = Field(default=64, gt=0, multiple_of=2)
    attention_dim: int = Field(default=32, gt=0)
    word_dim: int = Field(default=128, gt=0)
    max_characters: int = Field(default=32, gt=0, le=1000)
    max_pieces: int = Field(default=8, ge=0, le=1000)

    @property
    def max_places(self) -> int:
        """Maximum number of positions of a word: characters, two marks and wordpieces."""
        return self.max_characters + 2 + self.max_pieces


def tensor_shapes(config: CharacterConfig, *, char_dim: int, n_tokens: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a character encoder, by name in torch.

    Args:
        config: Widths of the encoder.
        char_dim: Width of its part of the embedding.
        n_tokens: Size of the vocabulary.
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
