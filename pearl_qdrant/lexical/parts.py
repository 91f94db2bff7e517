"""Parts of names that stay the same where a slip changes the rest: names with one or two wrong characters are found.

    winchester     10 winch|     10 |ester     10 win|ter     10 win||     10 |ches|     10 ||ter

A name is cut into halves, into its outer thirds, and, if it is long, into thirds; each part goes with the length of the
name. One edit leaves a half or the outer thirds as they were, two edits leave one of three thirds. A mention is cut as
names of its own length and of one or two more or fewer characters would be. So the parts of a misspelt name are few and
rare: of 75,704 names of a general base, 40 share one with a mention, and the right one is among the first 20 for 98 %
of mentions with one slip and 90 % with two (63,596 names of diseases: 150, 98 % and 94 %).

The parts share `BUCKETS` features of the sparse vector, beside n-grams and keys: an engine keeps a table of features.

Source of the idea: Li, Deng, Wang and Feng 2011, "PASS-JOIN: a partition-based method for similarity joins".
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from pearl_qdrant.lexical.ngrams import SparseRows

BUCKETS = 1 << 20
"""Different features of parts."""

FIRST = (1 << 32) - BUCKETS
"""The first of them: the highest numbers of 32 bits."""

WEIGHT = 0.25
"""Stored value: a part counts for less than an n-gram in any other search."""

MAX_LETTERS = 64
"""Letters of a spelling key that are cut; what a longer one has in common is found by n-grams."""

LEAST_LETTERS, OUTER_LETTERS, THIRDS_LETTERS = 4, 6, 9
"""Letters from which a name has halves, outer thirds, and thirds."""


def part_rows(spellings: Sequence[str]) -> SparseRows:
    """Sparse vectors of the parts of names, as they are stored.

    Args:
        spellings: n spelling keys (`keys.spelling_key`).

    Returns:
        n rows; empty ones for short and very long names.
    """
    found = [sorted(_of_name(spelling)) for spelling in spellings]
    indices = np.array([one for parts in found for one in parts], np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(parts) for parts in found], dtype=np.int64))).astype(np.int64)
    return SparseRows(indices, np.full(len(indices), WEIGHT, np.float32), offsets)


def _of_name(key: str) -> set[int]:
    n = len(key)
    if not LEAST_LETTERS <= n <= MAX_LETTERS:
        return set()
    found = {_feature(f"{n} {key[: n // 2]}|"), _feature(f"{n} |{key[n // 2 :]}")}
    third = n // 3
    if n >= OUTER_LETTERS:
        found.add(_feature(f"{n} {key[:third]}|{key[-third:]}"))
    if n >= THIRDS_LETTERS:
        found.add(_feature(f"{n} {key[:third]}||"))
        found.add(_feature(f"{n} |{key[third:-third]}|"))
        found.add(_feature(f"{n} ||{key[-third:]}"))
    return found


def mention_parts(key: str) -> set[int]:
    """Features of the parts that names have which differ from a mention by one or two edits.

    Args:
        key: Spelling key of the mention.
    """
    found: set[int] = set()
    edits = 2 if len(key) >= THIRDS_LETTERS else 1
    if not LEAST_LETTERS - 1 <= len(key) <= MAX_LETTERS + edits:
        return found
    for n in range(max(LEAST_LETTERS, len(key) - edits), min(MAX_LETTERS, len(key) + edits) + 1):
        third, last = n // 3, n - n // 2
        found.add(_feature(f"{n} {key[: n // 2]}|"))
        found.add(_feature(f"{n} |{key[-last:]}"))
        if n >= OUTER_LETTERS:
            found.add(_feature(f"{n} {key[:third]}|{key[-third:]}"))
        if n >= THIRDS_LETTERS:
            found.add(_feature(f"{n} {key[:third]}||"))
            found.add(_feature(f"{n} ||{key[-third:]}"))
            for shift in range(-edits, edits + 1):
                start, end = third + shift, n - third + shift
                if start >= 0:
                    found.add(_feature(f"{n} |{key[start:end]}|"))
    return found


def _feature(part: str) -> int:
    """The number of a part; the same in every process and release."""
    return FIRST | (crc32(part.encode("utf-8", "surrogatepass")) & (BUCKETS - 1))
