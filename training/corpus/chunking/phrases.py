"""What the parts of the corpus stage agree on: a phrase, a parser that finds phrases, a typer that types them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

DEFAULT_MAX_WORDS = 10
"""A longer constituent is hardly ever seen twice, and no name of a base is as long."""


class Phrase(NamedTuple):
    """A phrase as it stands in a text, white space folded, with its lexical class (NP, VP, PP, ADVP or ADJP)."""

    text: str
    lexical_class: str


class PhraseParser(Protocol):
    """Finds phrases in texts."""

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """The phrases of each text, nested ones too, in the order of the texts; repeats are kept."""
        ...


class PhraseTyper(Protocol):
    """Says of phrases without context what entity type they are of."""

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """One of `ENTITY_TYPES` for each phrase; None where it cannot tell, which is not OTHER."""
        ...
