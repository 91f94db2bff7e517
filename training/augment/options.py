"""How augmentation is computed in advance; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PARAPHRASER = "prithivida/parrot_paraphraser_on_T5"
DEFAULT_THRESHOLD = 0.7
"""Cosine above which two words count as synonyms; the paper leaves it open ("a certain threshold")."""


@dataclass(frozen=True, slots=True)
class ParaphraseOptions:
    """How paraphrases are generated.

    Attributes:
        n_variants: Paraphrases generated per phrase; those that equal the phrase or each other are dropped.
        sample: Draw tokens (top 50, 0.95 of the probability mass, as Parrot does) instead of a beam search, which is
            deterministic but varies less.
        seed: Seed of the draws.
        prefix: Text before each phrase.
        max_new_tokens: Longest paraphrase, in tokens.
        batch_size: Phrases generated at once.
    """

    n_variants: int = 5
    sample: bool = False
    seed: int = 0
    prefix: str = "paraphrase: "
    max_new_tokens: int = 32
    batch_size: int = 64


@dataclass(frozen=True, slots=True)
class SynonymOptions:
    """How neighbours of words are found.

    Attributes:
        threshold: Cosine above which two words count as synonyms, in (0, 1].
        neighbours: Neighbours per word, at most.
        max_words: Words of the corpus that are compared; those with the most frequent vectors come first.
    """

    threshold: float = DEFAULT_THRESHOLD
    neighbours: int = 10
    max_words: int = 50_000
