"""Where the n-grams of a sequence are, and random spans in their place.

Random spans: a run of l words, l from a geometric distribution with p = 0.2, at most 6; longer lengths are left out,
so that the others share their probability. Source: ULR (Li & Zhao 2021), section 7.2, after SpanBERT.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Span = tuple[int, int]
"""Start and end of an n-gram, in characters of its sequence; the end is not part of it."""

FindSpans = Callable[[str], Sequence[Span]]
"""Returns the n-grams of a sequence; the same ones each time."""

GEOMETRIC_P = 0.2
LONGEST_SPAN = 6

_LENGTHS = range(1, LONGEST_SPAN + 1)
_WEIGHTS = [GEOMETRIC_P * (1 - GEOMETRIC_P) ** (length - 1) for length in _LENGTHS]
_WORD = re.compile(r"\S+")


def random_span(text: str, rng: random.Random) -> Span | None:
    """Draw a run of words; None if the text has fewer than two, so that nothing would be left beside it."""
    words = [match.span() for match in _WORD.finditer(text)]
    if len(words) < 2:
        return None
    length = min(rng.choices(_LENGTHS, _WEIGHTS)[0], len(words) - 1)
    first = rng.randrange(len(words) - length + 1)
    return words[first][0], words[first + length - 1][1]
