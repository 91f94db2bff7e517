"""The second stage of the shipped model: names with slips, and sentences kept where the start has them.

It goes on from the finished encoder of the first stage, in short runs of several seeds whose weights are averaged:

    pairs           those of the first stage, and names without an alias as a further source; half of the variants
                    have one edited character
    plain phrases   keep the vectors of the first stage, two in five of them seen with an edited character
    sentences       keep the vectors of the start (all-MiniLM-L6-v2), which has seen questions and texts

Cost: 520 steps of 160 pairs take 18 minutes of two cores with bf16.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pearl_qdrant.encoder.protocol import FloatArray
from training.augment import abbreviate, respell, swap_words
from training.data.batches import ExampleSource
from training.evaluation.tasks.typos import one_edit
from training.examples.example import Example, sort_examples

N_PLAIN, N_SENTENCES = 60_000, 16_000
"""Phrases and sentences whose vectors are kept."""

SENTENCE_WORDS = (9, 28)
"""Fewest and most words of a sentence that is kept."""

MISSPELT_NAMES = 0.4
"""Share of names without an alias, relative to the shares of the first stage (1.4 in all)."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Misspell:
    """Makes variants, most of which have one edited character.

    Attributes:
        share: Share of the variants with an edited character; the rest are short forms and spellings.
    """

    share: float = 0.55

    def __call__(self, phrase: str, rng: random.Random) -> str:
        if rng.random() < self.share:
            return one_edit(phrase, rng) if len(phrase) >= 4 else phrase
        draw = rng.random()
        if draw < 0.4:
            return abbreviate(phrase, rng)
        if draw < 0.5:
            return swap_words(phrase, rng)
        return respell(phrase, rng) if draw < 0.9 else phrase


class KeptVectors:
    """A teacher that looks vectors up.

    Args:
        phrases: Every phrase that is ever asked for.
        vectors: Their vectors, (n, dim), L2-normalised.
    """

    def __init__(self, phrases: Sequence[str], vectors: FloatArray) -> None:
        self._place = {phrase: i for i, phrase in enumerate(phrases)}
        self._vectors = vectors.astype(np.float16)

    def __call__(self, names: Sequence[str]) -> Tensor:
        """See `Teacher`."""
        return torch.from_numpy(self._vectors[[self._place[name] for name in names]].astype(np.float32))


def misspelt_names(sources: Iterable[ExampleSource]) -> ExampleSource:
    """Return capitalised names of 8 to 60 characters without an alias, as a source of their own."""
    names = (e for source in sources for e in source.examples if not e.others and 8 <= len(e.name) <= 60)
    return ExampleSource(sort_examples(_capitalised(names)), MISSPELT_NAMES)


def _capitalised(examples: Iterable[Example]) -> Iterable[Example]:
    return (example for example in examples if example.name[0].isupper())


def sentences(path: Path, rng: random.Random) -> list[str]:
    """Draw sentences of plain text, two of an article at most; a third are lower-cased, without their full stop."""
    fewest, most = SENTENCE_WORDS
    found: set[str] = set()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            parts = (part for row in json.loads(line)["text"][:8000].split("\n") for part in _SENTENCE_END.split(row))
            fitting = [part for part in parts if fewest <= len(part.split()) <= most and len(part) <= 200]
            for sentence in rng.sample(fitting, min(len(fitting), 2)):
                found.add(sentence.lower().rstrip(".") if rng.random() < 0.35 else sentence)
    kept = sorted(found)
    return rng.sample(kept, min(N_SENTENCES, len(kept)))
