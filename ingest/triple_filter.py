"""Passing over rows whose predicate is not wanted, a block at a time.

A row is told by its second word: where the first two separators of each line are is found for all lines at once, and
then the word's length and last two bytes decide whether it may be wanted. What is left over is cut out and read; so
is every line that does not look like a row. Three times as fast as looking at each line, where most are not wanted.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_NEWLINE, _SPACE, _DOT = ord("\n"), ord(" "), ord(".")


class RowFilter:
    """Finds the lines of a block that have to be looked at."""

    def __init__(self, words: Iterable[bytes]) -> None:
        """Look for rows whose second word is one of these; each has at least one byte."""
        keys = [len(word) << 16 | word[-1] << 8 | (word[-2] if len(word) > 1 else _SPACE) for word in words]
        self._keys = np.array(sorted(set(keys)), dtype=np.int64)

    def select(self, block: bytes) -> list[tuple[int, bytes]]:
        """Lines that may be wanted rows, or are no rows, with their number from 0.

        Args:
            block: Lines joined by newlines, the last one without.
        """
        characters = np.frombuffer(block + b"\n", dtype=np.uint8)
        ends = np.flatnonzero(characters == _NEWLINE)
        starts = np.append(0, ends[:-1] + 1)
        separators = np.flatnonzero(characters <= _SPACE)
        first = np.searchsorted(separators, starts)
        second = np.minimum(first + 1, len(separators) - 1)
        word_start, word_end = separators[first] + 1, separators[second]
        keys = (word_end - word_start) << 16 | _at(characters, word_end - 1) << 8 | _at(characters, word_end - 2)
        # Unlike a row: an empty first or second word, no third one, no dot at the end.
        is_row = (word_start - 1 > starts) & (word_end > word_start) & (word_end + 2 < ends)
        is_row &= characters[ends - 1] == _DOT
        wanted = np.flatnonzero(~is_row | np.isin(keys, self._keys))
        places = zip(wanted.tolist(), starts[wanted].tolist(), ends[wanted].tolist(), strict=True)
        return [(number, block[start:end]) for number, start, end in places]


def _at(characters: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bytes at some places; of a place before the first, the first."""
    return characters[np.maximum(places, 0)].astype(np.int64)
