"""A training example: a name, other names of its entity, and the phrase types that are right for it; and its split.

Entities and names belong to a split by a hash, never by row number. There are ten splits: 0 to 6 train, 7 and 8 are
development data, 9 is the test.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES, phrase_type

TRAIN_SPLITS = range(7)
DEVELOPMENT_SPLITS = range(7, 9)
TEST_SPLITS = range(9, 10)


def split_of(key: str) -> int:
    """Return the split of an entity id or of a `name_key`: 0 to 9, from its SHA-1."""
    return int(hashlib.sha1(key.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(), 16) % 10


def name_key(name: str) -> str:
    """Return a key shared by names that must be in the same split: case-folded, every digit replaced by 0."""
    return re.sub(r"\d", "0", name.casefold().strip())


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that hard negatives are mined for, and that can be a hard negative itself."""

    text: str  # as it is used in training
    entities: tuple[str, ...] = ()  # ids of the entities that it names; empty if unknown


def fold_phrase(text: str) -> str:
    """Return the text without case and punctuation; a text that has nothing else comes back unchanged."""
    return "".join(c for c in text.casefold() if c.isalnum()) or text


_LABEL = {name: i for i, name in enumerate(PHRASE_TYPES)}


@dataclass(frozen=True, slots=True)
class Example:
    """One training example."""

    name: str  # the anchor
    others: tuple[str, ...]  # other names of the same entity; if empty, only an augmented `name` can be the positive
    entity: str  # key of the entity. Examples with the same key are never each other's negatives
    # indices into `PHRASE_TYPES`, each of which counts as right; empty if the type is unknown
    allowed: tuple[int, ...] = ()


def any_class(entity_types: Iterable[str]) -> tuple[int, ...]:
    """Label indices of these entity types in every lexical class."""
    wanted = sorted(set(entity_types), key=ENTITY_TYPES.index)
    return tuple(_LABEL[phrase_type(lexical_class, t)] for t in wanted for lexical_class in LEXICAL_CLASSES)


def one_class(lexical_class: str, entity_types: Iterable[str]) -> tuple[int, ...]:
    """Label indices of these entity types in one lexical class."""
    return tuple(_LABEL[phrase_type(lexical_class, t)] for t in entity_types)


def sort_examples(examples: Iterable[Example]) -> list[Example]:
    """Examples in alphabetical order of their names, so that neighbours in the list are spelled alike."""
    return sorted(examples, key=lambda example: (example.name.casefold(), example.entity))


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
