"""Word vectors that the character encoder mimics: from a file, or from the phrase encoder that it joins.

The vectors of an encoder are centred (their mean is subtracted): embeddings of a transformer lie in a narrow cone, and
differences between cosines of 0.9 teach little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pearl_qdrant.encoder.character.config import N_MARKS
from pearl_qdrant.encoder.character.table import CharacterTable
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.errors import InputError
from training.augment.vectors import read_vectors
from training.networks.phrase_vectors import micro_batches

Array = npt.NDArray[np.float32]

_SHORTEST = 2
_MICRO_BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Words with the vectors to mimic.

    Attributes:
        words: Distinct words.
        vectors: (n, dim), any norm.
    """

    words: tuple[str, ...]
    vectors: Array

    def __post_init__(self) -> None:
        if len(self.words) != len(self.vectors):
            raise ValueError(f"{len(self.words)} words, but {len(self.vectors)} vectors")


def file_targets(path: Path, *, limit: int | None = None) -> Targets:
    """Read the vectors of words with a letter from a `.vec` file of FastText or GloVe.

    Args:
        path: The file, compressed or not.
        limit: At most this many words, the most frequent ones.

    Raises:
        FormatError: If it is not such a file.
        InputError: If it has no word with a letter.
    """
    words, vectors = read_vectors(path, limit=limit)
    kept = [i for i, word in enumerate(words) if any(map(str.isalpha, word))]
    if not kept:
        raise InputError(str(path), None, "has no word with a letter. Is it a file of word vectors?")
    return Targets(tuple(words[i] for i in kept), vectors[kept])


def embedding_targets(phrase_encoder: Any, table: CharacterTable) -> Targets:
    """Return the encoder's input embeddings of the tokens that are whole words.

    Args:
        phrase_encoder: A model of transformers.
        table: Character table of its tokenizer.
    """
    ids = whole_words(table)
    with torch.inference_mode():
        weights = phrase_encoder.get_input_embeddings().weight
        vectors = weights[torch.tensor(list(ids.values()), dtype=torch.long, device=weights.device)]
    return Targets(tuple(ids), _centred(vectors.float().cpu().numpy()))


def encoder_targets(network: PearlNetwork, tokenizer: Any, words: Sequence[str]) -> Targets:
    """Return the encoder's vectors of single words.

    Args:
        network: Has no character encoder.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        words: Repeated words count once.
    """
    distinct = tuple(dict.fromkeys(words))
    rows: list[Array] = [np.zeros(0, dtype=np.float32)] * len(distinct)
    for batch in micro_batches(tokenizer, distinct, max_tokens=16, size=_MICRO_BATCH):
        with torch.inference_mode():
            pooled = network.pool(torch.from_numpy(batch.input_ids), torch.from_numpy(batch.attention_mask))
        for row, vector in zip(batch.rows.tolist(), pooled.numpy(), strict=True):
            rows[row] = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return Targets(distinct, _centred(np.stack(rows)))


def whole_words(table: CharacterTable) -> dict[str, int]:
    """Return the words of a vocabulary with their ids: tokens that start a word and have only letters, lower-cased."""
    found: dict[str, int] = {}
    for token_id in np.flatnonzero(~table.special & ~table.continuation).tolist():
        word = "".join(table.alphabet[code - N_MARKS] for code in table.codes[token_id] if code)
        if len(word) >= _SHORTEST and word.isalpha():
            found.setdefault(word, token_id)
    return found


def _centred(vectors: Array) -> Array:
    centred: Array = vectors - vectors.mean(axis=0, keepdims=True)
    return centred
