"""The LOVE character encoder in torch: builds the words of a phrase from characters and wordpieces.

    x_i     embeddings of: a mark, the word's characters, a mark, its wordpieces            (s, e)
    P       softmax(p p^T / e^(1/4)) x W_p          p: sinusoidal encodings of positions    (s, e)
    C       softmax(q k^T / a^(1/4)) x              q, k = ReLU(x W_q), ReLU(x W_k)         (s, a)
    word    sum_i ReLU([P_i, C_i] W_o + b), L2-normalised                                   (w,)
    v       (mean over the words of the phrase) W_v                                         (char_dim,)

A constant table maps token ids to characters (`table.py`). Attention stays within a word, and only the first 32
characters and 8 wordpieces of a word are read. So the cost grows linearly with the number of words. All words of a
batch form one (words, positions, e) tensor.

Source: LOVE (Chen et al. 2022), section 4; PEARL (Chen et al. 2024), section 3.2. `training/export/graph_builder.py`
builds the same network in ONNX.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.character.table import (
    BEGIN,
    END,
    N_MARKS,
    PAD,
    CharacterConfig,
    CharacterTable,
    tensor_shapes,
)

MASKED = -1e4  # added to the scores of masked positions. Minus infinity would give NaN in a row of padding only.


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a batch: rows of the embeddings, (words, positions), `PAD` after the end of a word, and the phrase
    of each word, (words,). An extra last word belongs to no phrase.
    """

    codes: Tensor
    rows: Tensor


class CharacterEncoder(nn.Module):
    """Maps token ids to the character part v of the embedding. Table and config have the same alphabet.

    `char_dim` is the width of v; the generator draws the initial weights.
    """

    def __init__(
        self, table: CharacterTable, config: CharacterConfig, char_dim: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.char_dim = char_dim
        n_rows, width = tensor_shapes(config, char_dim=char_dim, n_tokens=len(table.special))["embeddings.weight"]
        self.embeddings = nn.Embedding(n_rows, width)
        self.position = nn.Linear(config.embedding_dim, config.embedding_dim, bias=False)
        self.query = nn.Linear(config.embedding_dim, config.attention_dim, bias=False)
        self.key = nn.Linear(config.embedding_dim, config.attention_dim, bias=False)
        self.output = nn.Linear(2 * config.embedding_dim, config.word_dim)
        self.projection = nn.Linear(config.word_dim, char_dim, bias=False)
        with torch.no_grad():
            nn.init.normal_(self.embeddings.weight, std=config.embedding_dim**-0.5, generator=generator)
            for layer in (self.position, self.query, self.key, self.output, self.projection):
                nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(self.output.bias)
        # Constants of the tokenizer, which are not saved with the weights.
        self.register_buffer("codes", torch.from_numpy(table.codes), persistent=False)
        self.register_buffer("continuation", torch.from_numpy(table.continuation), persistent=False)
        self.register_buffer("special", torch.from_numpy(table.special), persistent=False)
        positions = torch.from_numpy(sinusoids(config.max_places, config.embedding_dim))
        self.register_buffer("nearness", positions @ positions.T / config.embedding_dim**0.25, persistent=False)
        self.codes: Tensor
        self.continuation: Tensor
        self.special: Tensor
        self.nearness: Tensor

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The character part v of each phrase before normalisation, (b, char_dim); zero for a phrase without a word.

        Ids and mask, 1 for a real token, are (b, t).
        """
        vector: Tensor = self.projection(self.phrase_vectors(input_ids, attention_mask))
        return vector

    def phrase_vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Mean over the word vectors of each phrase: (b, word_dim); zero for a phrase without a word."""
        found = self.words(input_ids, attention_mask)
        vectors = self.word_vectors(found.codes)
        n = len(input_ids)
        sums = vectors.new_zeros(n + 1, vectors.shape[1]).index_add(0, found.rows, vectors)
        counts = vectors.new_zeros(n + 1).index_add(0, found.rows, torch.ones_like(found.rows, dtype=vectors.dtype))
        return sums[:n] / counts[:n, None].clamp(min=1.0)

    def word_vectors(self, codes: Tensor) -> Tensor:
        """Vectors of words, (words, word_dim), L2-normalised, by their codes, as in `Words`."""
        n_places = codes.shape[1]
        real = codes != PAD
        mask = torch.where(real, 0.0, MASKED)[:, None, :]  # (words, 1, positions)
        x = self.embeddings(codes)
        near = torch.softmax(self.nearness[:n_places, :n_places] + mask, dim=-1)
        positional = self.position(near.to(x.dtype) @ x)
        query, key = torch.relu(self.query(x)), torch.relu(self.key(x))
        alike = torch.softmax(query @ key.transpose(1, 2) / self.config.attention_dim**0.25 + mask, dim=-1)
        content = alike.to(x.dtype) @ x
        mixed = torch.relu(self.output(torch.cat([positional, content], dim=-1)))
        summed = (mixed * real.unsqueeze(-1)).sum(1)
        return nn.functional.normalize(summed.float(), dim=-1)

    def words(self, input_ids: Tensor, attention_mask: Tensor) -> Words:
        """Split a batch, (b, t), into words."""
        n, width = input_ids.shape
        real = (attention_mask != 0) & ~self.special[input_ids]
        # The first token of a phrase always starts a word, even if it is marked as a continuation.
        start = real & (~self.continuation[input_ids] | (real.cumsum(1) == 1))
        at = real.flatten().nonzero()[:, 0]
        # An extra word after the last one, so that no tensor is ever empty (ONNX needs that too).
        ids = torch.cat([input_ids.flatten()[at], input_ids.new_zeros(1)])
        rows = torch.cat([at // width, at.new_full((1,), n)])
        starts = torch.cat([start.flatten()[at], start.new_ones(1)])
        last = torch.cat([starts[1:], starts.new_ones(1)])
        # All characters of the batch in one flat array. A word is the stretch between the cumulative counts at the
        # ends of the previous word and of this one; no loop over words is needed.
        of_token = self.codes[ids]
        is_character = of_token != PAD
        characters = torch.cat([of_token.new_zeros(1), of_token[is_character]]).to(torch.int64)
        ends = is_character.sum(1).cumsum(0)[last]
        codes = self._codes(characters, ids, character_ends=ends, piece_ends=last.nonzero()[:, 0] + 1)
        return Words(codes, rows[last])

    def _codes(self, characters: Tensor, ids: Tensor, *, character_ends: Tensor, piece_ends: Tensor) -> Tensor:
        """Row of each word: mark, characters, mark, wordpieces, padding. `characters` has the codes of all after a
        leading 0; the ends are the numbers of characters and of tokens up to the end of each word, (words,).
        """
        first_character, n_characters = _spans(character_ends, self.config.max_characters)
        first_piece, n_pieces = _spans(piece_ends, self.config.max_pieces)
        n_places = int((n_characters + n_pieces).max()) + 2
        place = torch.arange(n_places, device=ids.device)[None, :]
        piece = place - n_characters - 2
        character = (first_character + place).clamp(max=len(characters) - 1)
        codes = torch.where(place <= n_characters, characters[character], PAD)
        codes = torch.where(place == 0, BEGIN, torch.where(place == n_characters + 1, END, codes))
        rows = ids[(first_piece + piece).clamp(min=0, max=len(ids) - 1)] + (N_MARKS + len(self.config.alphabet))
        return torch.where((piece >= 0) & (piece < n_pieces), rows, codes)


def _spans(ends: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Start of each word and number of its items that are read, both (words, 1)."""
    firsts = torch.cat([ends.new_zeros(1), ends[:-1]])
    return firsts[:, None], (ends - firsts).clamp(max=most)[:, None]


def sinusoids(n_places: int, width: int) -> npt.NDArray[np.float32]:
    """Positional encodings, (n_places, width): sines and cosines of geometrically spaced wavelengths.

    Source: Vaswani et al. 2017, section 3.5.
    """
    angles = np.arange(n_places)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves: npt.NDArray[np.float32] = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return waves
