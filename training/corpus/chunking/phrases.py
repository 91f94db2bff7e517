"""Interfaces of the corpus stage: a phrase, a parser that finds phrases, a typer that assigns types to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol


class Phrase(NamedTuple):
    """A phrase of a text with white space normalised, and its lexical class (NP, VP, PP, ADVP or ADJP)."""

    text: str
    lexical_class: str


class PhraseParser(Protocol):
    """Finds phrases in texts."""

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """Yield the phrases of each text, in the order of the texts; nested and repeated phrases are included."""
        ...


class PhraseTyper(Protocol):
    """Assigns entity types to phrases without context."""

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """Return one of `ENTITY_TYPES` for each phrase; None (which is not OTHER) if the type is unknown."""
        ...
