"""Counts and sets of the phrase types that examples allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pearl_qdrant.phrase_types import LEXICAL_CLASSES, PHRASE_TYPES
from training.examples.example import Example


def count_labels(examples: Iterable[Example]) -> tuple[int, ...]:
    """Count the examples that allow each phrase type, in the order of `PHRASE_TYPES`."""
    counts = Counter(label for example in examples for label in set(example.allowed))
    return tuple(counts[label] for label in range(len(PHRASE_TYPES)))


def entity_types_of(counts: Sequence[int]) -> set[str]:
    """Return the entity types, such as "ORG", of the labels whose count is over 0."""
    return {kind.partition("-")[2] for kind, count in zip(PHRASE_TYPES, counts, strict=True) if count}


def as_noun_phrase(allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Reduce labels with an open lexical class to noun phrases.

    Names are noun phrases. With all five classes allowed, nothing would decide between them.
    """
    nouns = tuple(i for i in allowed if PHRASE_TYPES[i].startswith("NP-"))
    return nouns if len(allowed) == len(nouns) * len(LEXICAL_CLASSES) else allowed
