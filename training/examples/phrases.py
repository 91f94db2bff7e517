"""Phrases with what is known about them, and the folding under which two phrases count as equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that hard negatives are mined for, and that can be a hard negative itself.

    Attributes:
        text: As it is used in training.
        entities: Ids of the entities that it names; empty if unknown.
        types: Indices into `PHRASE_TYPES` that are right; empty if unknown.
    """

    text: str
    entities: tuple[str, ...] = ()
    types: tuple[int, ...] = ()


def fold_phrase(text: str) -> str:
    """Return the text without case and punctuation; a text that has nothing else comes back unchanged."""
    return "".join(c for c in text.casefold() if c.isalnum()) or text
