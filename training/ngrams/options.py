"""How n-grams are found; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.paths import Paths

DEFAULT_FIELD = "text"

MAX_NGRAM_WORDS = 15
"""The longest n-gram that can be asked for, and the longest entity mention that is marked."""

_LARGEST = 1 << 24  # tokens of a block; their ids fit into 32 bits many times


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """How n-grams are found.

    Attributes:
        field: Field of JSON Lines that holds the text.
        max_words: Words of the longest n-gram. ULR, section 4: 6.
        min_count: N-grams that occur less often are skipped; in a document for `scope` "document".
        threshold: Only n-grams with a higher PMI are kept, in nats.
        max_per_document: Distinct n-grams that a document keeps, those of the highest PMI. ULR, section 4: 3,000.
        factor: "length" divides the PMI by the number of words, as in ULR, section 3.1; "none" does not, as in the
            published code.
        scope: "corpus" counts over all documents, as in ULR, section 3.1; "document" counts within each document, as
            in the published code.
        punctuation: "skip" joins words over punctuation marks, as ULR does when it removes them; "break" does not.
        keep_case: Words that differ only in case are different words.
        entities: Files of names, one a line, plain or compressed, whose mentions are marked as n-grams whatever their
            PMI.
        max_sequence_words: Longer sentences are cut. ULR reads 128 tokens.
        limit: At most this many documents.
        max_errors: Bad rows that each input may have; None for any number.
        block_words: Words held in memory at a time.
    """

    field: str = DEFAULT_FIELD
    max_words: int = 6
    min_count: int = 5
    threshold: float = 3.0
    max_per_document: int = 3000
    factor: Literal["length", "none"] = "length"
    scope: Literal["corpus", "document"] = "corpus"
    punctuation: Literal["skip", "break"] = "skip"
    keep_case: bool = False
    entities: Paths = ()
    max_sequence_words: int = 128
    limit: int | None = None
    max_errors: int | None = DEFAULT_MAX_ERRORS
    block_words: int = 1 << 19

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            OptionError: If a value is out of range.
        """
        ranges = {
            "max_words": (2, MAX_NGRAM_WORDS),
            "min_count": (1, (1 << 32) - 1),
            "max_per_document": (1, 1 << 32),
            "max_sequence_words": (2, 1 << 16),
            "block_words": (1, _LARGEST),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise OptionError(name, f"'{name}' is {value}, but must be from {least:,} to {most:,}.")
        if self.limit is not None and self.limit < 1:
            raise OptionError("limit", f"'limit' is {self.limit}, but must be at least 1.")
        if self.threshold != self.threshold:
            raise OptionError("threshold", "'threshold' is not a number. Give one, in nats.")
        choices = {"factor": ("length", "none"), "scope": ("corpus", "document"), "punctuation": ("skip", "break")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise OptionError(name, f"'{name}' is '{getattr(self, name)}'. Give one of: {', '.join(allowed)}.")
