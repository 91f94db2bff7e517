"""How many names of a list have something else in the place where two of them differ.

    Berg's hand, Berg's voice, Berg's hat                three fillers of "Berg's ...": they are parts of one thing
    Acme Cloud, Acme Cloud License, ...                  many names begin with the first one

Names that many others vary are siblings or parts; two spellings of one thing mostly stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from zlib import crc32

import numpy as np

LONGEST_FILLER = 4
"""Words that a place has at most."""

MOST_WORDS = 8
"""Words of a name beyond which it has no places."""

_CELLS = 1 << 25
_FULL = 255
_MANY = math.log(33)


class Slots:
    """Counts the names that have a place, by the words before and after it; 32 MB, whatever the number of names.

    Args:
        names: Distinct names as words in their normal spelling.
    """

    def __init__(self, names: Iterable[Sequence[str]]) -> None:
        self._counts = np.zeros(_CELLS, np.uint8)
        block: list[int] = []
        for words in names:
            n = len(words)
            if n > MOST_WORDS:
                continue
            block += [
                _cell(words[:i], words[j:])
                for i in range(n)
                for j in range(i + 1, min(n, i + LONGEST_FILLER) + 1)
                if j - i < n
            ]
            if len(block) > 1_000_000:
                self._add(block)
                block = []
        self._add(block)

    def _add(self, cells: list[int]) -> None:
        found, counts = np.unique(np.array(cells, np.int64), return_counts=True)
        self._counts[found] = np.minimum(self._counts[found] + counts, _FULL)

    def others(self, a: Sequence[str], b: Sequence[str]) -> int:
        """Names beside a and b that have words where these differ, up to 255; 0 if the two share no end."""
        n = min(len(a), len(b))
        first = next((i for i in range(n) if a[i] != b[i]), n)
        last = next((i for i in range(n - first) if a[-1 - i] != b[-1 - i]), n - first)
        if not first + last:
            return 0
        n_own = (len(a) > first + last) + (len(b) > first + last)
        return max(0, int(self._counts[_cell(a[:first], a[len(a) - last :])]) - n_own)

    def share(self, a: Sequence[str], b: Sequence[str]) -> float:
        """`others` as a feature: its logarithm, in [0, 1], 1 from 32 on."""
        return min(1.0, math.log1p(self.others(a, b)) / _MANY)


def _cell(before: Sequence[str], after: Sequence[str]) -> int:
    return crc32(f"{' '.join(before)}|{' '.join(after)}".encode("utf-8", "surrogatepass")) & (_CELLS - 1)
