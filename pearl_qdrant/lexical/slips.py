"""Features of the names that a mention may be a slip of, for a search: names one or two edits away.

    parts    parts that are the same in a misspelt name (`lexical.parts`): some names share one, most of them by chance
    keys     spelling keys (`lexical.keys`) of strings one edit away: only names that are one edit away have one

Parts miss a swap in the middle of a word, which changes both halves, and parts of short names are too frequent. So all
mentions are searched by the keys of their swaps, and short ones by those of all edits.
"""

from __future__ import annotations

from string import ascii_lowercase

import numpy as np

from pearl_qdrant.lexical.keys import spelling_features
from pearl_qdrant.lexical.ngrams import FloatArray, UInt32Array
from pearl_qdrant.lexical.parts import MAX_LETTERS, WEIGHT, mention_parts

LEAST_LETTERS = 3
"""Letters from which a mention is searched by edits."""

SHORT_LETTERS = 8
"""Letters up to which all edits are searched; they have about 54 for each letter."""

KEY_WEIGHT = 1.0
"""A name that is one edit away comes before those that only share parts."""


def slip_features(spelling: str) -> tuple[UInt32Array, FloatArray]:
    """Indices, ascending, and values of the features of names that are one or two edits away; both empty for long ones.

    Args:
        spelling: Spelling key of the mention (`keys.spelling_key`).
    """
    is_cut = LEAST_LETTERS <= len(spelling) <= MAX_LETTERS
    keys = spelling_features(_one_edit_away(spelling) if is_cut else ())
    # Keys come first: where one is also the feature of a part, its value counts.
    indices, first = np.unique(np.append(keys, np.array([*mention_parts(spelling)], np.uint32)), return_index=True)
    return indices, np.where(first < len(keys), KEY_WEIGHT, WEIGHT).astype(np.float32)


def _one_edit_away(spelling: str) -> set[str]:
    """The strings with two neighbours swapped; of a short one also those with a letter less, more or replaced."""
    n = len(spelling)
    found = {spelling[:i] + spelling[i + 1] + spelling[i] + spelling[i + 2 :] for i in range(n - 1)}
    if n <= SHORT_LETTERS:
        cuts = [(spelling[:i], spelling[i:]) for i in range(n + 1)]
        found.update(start + end[1:] for start, end in cuts[:-1])
        found.update(start + letter + end[1:] for start, end in cuts[:-1] for letter in ascii_lowercase)
        found.update(start + letter + end for start, end in cuts for letter in ascii_lowercase)
    found.discard(spelling)
    return found
