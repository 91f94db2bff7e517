"""The name that a node is called by: frequent and whole, and never the misspelt one.

A name is misspelt if it has a word that is a slip of a word of another name of its node, and that word is unknown where
the other is known: by English text, or by more names of the list.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.keys import SMALL_WORDS
from pearl_qdrant.lexical.spelling_variants import IGNORED, variant_word
from pearl_qdrant.lexical.word_rarity import word_rarity
from pearl_qdrant.resolution.names import Forms, is_acronym_like

_LONGEST = 40
_MISSPELT = -1.0


class CanonicalNames:
    """Weighs the names of a cluster.

    Args:
        forms: All names.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    @cached_property
    def _counts(self) -> Counter[str]:
        """How often each word is given; counted when a slip is looked at first."""
        counts: Counter[str] = Counter()
        for form, folded in enumerate(self._forms.folded):
            count = self._forms.counts[self._forms.first[form]]
            for word in folded.split():
                counts[word] += count
        return counts

    def weights(self, members: Sequence[int]) -> dict[int, float]:
        """How good each form of a cluster is to call it by; less than 0 for a misspelt one."""
        words = {form: self._forms.folded[form].split() for form in members}
        return {
            form: _MISSPELT
            if any(self._is_misspelt(words[form], words[other]) for other in members if other != form)
            else self._weight(form)
            for form in members
        }

    def _weight(self, form: int) -> float:
        name, words = self._forms.name(form), self._forms.folded[form].split()
        extra = sum(word in SMALL_WORDS or word in IGNORED for word in words[:1] + words[1:][-1:])
        short = 0.5 * is_acronym_like(name) + 0.3 * ("," in name) + 0.2 * ("(" in name) + 0.2 * extra
        frequency = math.log2(1 + self._forms.counts[self._forms.first[form]])
        return max(0.0, frequency + 0.7 * min(len(name), _LONGEST) / _LONGEST - short)

    def _is_misspelt(self, words: Sequence[str], others: Sequence[str]) -> bool:
        """Whether a word is a slip of one of the other name that is known better."""
        ours, theirs = set(words) - set(others), set(others) - set(words)
        return any(
            _is_slip(word, other) and self._known(word) < self._known(other) for word in ours for other in theirs
        )

    def _known(self, word: str) -> tuple[bool, int]:
        """Whether English text has the word, and how often the list does."""
        return word_rarity(variant_word(word)) < 1.0, self._counts[word]


def _is_slip(word: str, other: str) -> bool:
    if min(len(word), len(other)) < 4 or variant_word(word) == variant_word(other):
        return False
    distance: int = OSA.distance(word, other, score_cutoff=2)
    return distance == 1 or (distance == 2 and min(len(word), len(other)) > 8)
