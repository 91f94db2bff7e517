"""Words of an encoder's vocabulary, alone and in pairs, for phrases that stay where it has them, and their types.

They stand for the language that the base of a refresh does not speak of, and need no other file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.phrase_types import ENTITY_TYPES

WORDS, PAIRS, LEAST_LETTERS = 12_000, 8_000, 3
"""Words of the vocabulary that are distilled, at most, pairs of them, and letters of a word."""

CHUNK = 512
"""Phrases that are encoded between two looks at the clock."""

CERTAIN = 0.6
"""Probability of a type from which the start's own prediction is taken for the type of a word."""


def vocabulary_phrases(tokenizer: Path, *, seed: int) -> list[str]:
    """Words of a tokenizer (tokenizer.json), alone and in pairs, in random order."""
    vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    pieces = list(vocabulary) if isinstance(vocabulary, dict) else [piece for piece, *_ in vocabulary]
    # SentencePiece marks the start of a word, WordPiece what continues one.
    has_starts = any(piece.startswith("▁") for piece in pieces)
    words = sorted({piece.lstrip("▁") for piece in pieces if piece.startswith("▁") or not has_starts})
    words = [word for word in words if len(word) >= LEAST_LETTERS and word.isalpha()]
    rng = random.Random(seed)
    alone = rng.sample(words, min(len(words), WORDS))
    pairs = [" ".join(rng.sample(words, 2)) for _ in range(PAIRS if len(words) > 1 else 0)]
    phrases = list(dict.fromkeys([*alone, *pairs]))
    rng.shuffle(phrases)
    return phrases


def write_predicted_types(
    path: Path,
    phrases: Sequence[str],
    encoder: Encoder,
    *,
    is_over: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, int]:
    """Write the phrases whose type an encoder is sure of, as `train_head` reads typed names.

    Args:
        path: The file.
        phrases: In random order.
        encoder: Predicts the types.
        is_over: Whether the time for it is over; the other phrases are left out then.
        on_progress: Called with the phrases done, and all.

    Returns:
        How many were written; and how many were encoded.
    """
    rows: list[str] = []
    done = 0
    while done < len(phrases) and not (done and is_over()):
        some = phrases[done : done + CHUNK]
        found = encoder.encode(some)
        done += len(some)
        on_progress(done, len(phrases))
        if found.type_probabilities is None:
            continue
        marginals = type_marginals(found.type_probabilities)
        best = marginals.argmax(axis=1)
        sure = np.flatnonzero(marginals[np.arange(len(best)), best] >= CERTAIN)
        rows += [f"{some[i]}\t{ENTITY_TYPES[best[i]]}\n" for i in sure.tolist()]
    path.write_text("name\ttype\n" + "".join(rows), "utf-8")
    return len(rows), done
