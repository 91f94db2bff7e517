"""One training example: a name, other names of its entity, and the phrase types that are right for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES, phrase_type

_LABEL = {name: i for i, name in enumerate(PHRASE_TYPES)}


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        name: The anchor.
        others: Other names of the same entity; if empty, only an augmented `name` can be the positive.
        entity: Key of the entity. Examples with the same key are never each other's negatives.
        allowed: Indices into `PHRASE_TYPES`, each of which counts as right; empty if the type is unknown.
    """

    name: str
    others: tuple[str, ...]
    entity: str
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
