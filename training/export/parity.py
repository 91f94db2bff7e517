"""Measure how close two forms of a model are: fp32 and int8, torch and ONNX, before and after a conversion."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.encoder.tokens import IntArray, open_tokenizer
from pearl_qdrant.encoder.type_head import type_marginals

MIN_MEAN_COSINE = 0.995
"""A quantised model with a lower mean cosine is refused."""

_N_NAMES = 512
_LONGEST = 5


@dataclass(frozen=True, slots=True)
class Parity:
    """Agreement of two encoders over the names that both can encode.

    Attributes:
        n: Names compared.
        mean_cosine: Mean cosine of the two vectors of a name.
        min_cosine: Smallest cosine.
        worst: The name with the smallest cosine.
        type_agreement: Share of names for which both predict the same entity type; None if a head has learnt no type.
    """

    n: int
    mean_cosine: float
    min_cosine: float
    worst: str
    type_agreement: float | None

    def __str__(self) -> str:
        cosines = f"mean cosine {self.mean_cosine:.5f}, least {self.min_cosine:.5f} ({self.worst!r})"
        types = "" if self.type_agreement is None else f", types agree {self.type_agreement:.1%}"
        return f"{self.n:,} names: {cosines}{types}"


def measure_parity(reference: Encoder, other: Encoder, names: Sequence[str]) -> Parity:
    """Encode names with both encoders and compare the results.

    Args:
        reference: One form.
        other: Another form, with vectors of the same width.
        names: Names to encode.

    Raises:
        ValueError: If no name is encodable.
    """
    expected, found = reference.encode(names), other.encode(names)
    both = np.flatnonzero(expected.encodable & found.encodable)
    if not len(both):
        raise ValueError(f"none of the {len(names)} names can be encoded, so there is nothing to compare")
    cosines = np.einsum("ij,ij->i", expected.vectors[both], found.vectors[both], dtype=np.float64)
    worst = int(cosines.argmin())
    types, others = _types(expected), _types(found)
    agreement = None if types is None or others is None else float((types[both] == others[both]).mean())
    return Parity(
        n=len(both),
        mean_cosine=float(cosines.mean()),
        min_cosine=float(cosines[worst]),
        worst=names[int(both[worst])],
        type_agreement=agreement,
    )


def _types(encoded: Encoded) -> IntArray | None:
    """Return the predicted entity types, (n,)."""
    if encoded.type_probabilities is None:
        return None
    types: IntArray = type_marginals(encoded.type_probabilities).argmax(axis=1)
    return types


def sample_names(tokenizer_path: Path, *, n: int = _N_NAMES, rng: random.Random) -> list[str]:
    """Draw phrases of one to five random pieces of a vocabulary, for when no names are given.

    Args:
        tokenizer_path: A tokenizer.json.
        n: Number of phrases.
        rng: Determines the phrases.
    """
    tokenizer = open_tokenizer(tokenizer_path)
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    known = sorted(token_id for token, token_id in tokenizer.get_vocab().items() if token not in special)
    ids = [rng.choices(known, k=rng.randint(1, _LONGEST)) for _ in range(n)]
    return [text.strip() or "a" for text in tokenizer.decode_batch(ids)]
