"""Many strings as arrays: substring hashes and character-pair signatures without a Python loop over strings.

    prefix hash   P[0] = 0,  P[i + 1] = P[i] B + value(c_i)            mod 2^64
    substring     h(a, b) = P[b] - P[a] B^(b - a)
    one deletion  h(s without i) = P[L] + (P[i] - P[i + 1]) B^(L - 1 - i)
    two           h(s without i < j) = P[L] + d_j + d_i / B     where d_k = (P[k] - P[k + 1]) B^(L - 1 - k)

B is odd, so it has an inverse modulo 2^64, and a variant with two deletions costs two additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]

_MODULUS = 1 << 64
_BASE = 0x9E3779B97F4A7C15  # odd; 2^64 over the golden ratio
_INVERSE = pow(_BASE, -1, _MODULUS)


def mix(values: UInt64Array) -> UInt64Array:
    """Spread the entropy of 64-bit values over all their bits (the finaliser of SplitMix64)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: UInt64Array = mixed ^ (mixed >> np.uint64(31))
    return spread


class PackedStrings:
    """Strings as one array of code points.

    Args:
        texts: The strings; lone surrogates are allowed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        self._points = points
        self.lengths: IntArray = np.fromiter((len(text) for text in texts), dtype=np.int64, count=len(texts))
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)])[:-1]

    def prefix_hashes(self, rows: IntArray, length: int) -> UInt64Array:
        """Return the prefix hashes of strings of one length.

        Args:
            rows: Indices of strings that are all `length` long.
            length: Characters, L.

        Returns:
            (len(rows), L + 1).
        """
        characters = self._points[self._starts[rows, None] + np.arange(length)]
        values = mix(characters.astype(np.uint64))
        hashes = np.zeros((len(rows), length + 1), dtype=np.uint64)
        for i in range(length):
            hashes[:, i + 1] = hashes[:, i] * np.uint64(_BASE) + values[:, i]
        return hashes

    def signatures(self) -> UInt64Array:
        """Return a bit per pair of adjacent characters, ends included, (n,); one edit changes at most four bits."""
        n, points = len(self.lengths), self._points
        signatures = np.zeros(n, dtype=np.uint64)
        owners = np.repeat(np.arange(n), self.lengths)
        is_first = np.zeros(len(points), dtype=bool)
        is_first[self._starts[self.lengths > 0]] = True
        before = np.where(is_first, 0, np.roll(points, 1)).astype(np.uint64)
        bits = np.uint64(1) << (mix(before << np.uint64(32) | points) >> np.uint64(58))
        np.bitwise_or.at(signatures, owners, bits)
        last = self._starts + self.lengths - 1
        some = self.lengths > 0
        ends = mix(points[last[some]].astype(np.uint64) << np.uint64(32)) >> np.uint64(58)
        signatures[some] |= np.uint64(1) << ends
        return signatures


def substring_hashes(prefixes: UInt64Array, start: int, stop: int) -> UInt64Array:
    """Return the hash of characters `start` to `stop` of each row, from its prefix hashes."""
    power = np.uint64(pow(_BASE, stop - start, _MODULUS))
    hashes: UInt64Array = prefixes[:, stop] - prefixes[:, start] * power
    return hashes


def deletion_hashes(prefixes: UInt64Array, deletions: int) -> UInt64Array:
    """Return the hashes of all variants of each row with up to this many characters deleted.

    Args:
        prefixes: Prefix hashes of strings of one length L, (n, L + 1).
        deletions: 1 or 2.

    Returns:
        (n, 1 + L) or (n, 1 + L + L (L - 1) / 2); a string with a repeated character has some hashes twice.
    """
    length = prefixes.shape[1] - 1
    powers = np.array([pow(_BASE, length - 1 - k, _MODULUS) for k in range(length)], dtype=np.uint64)
    whole = prefixes[:, -1:]
    changes = (prefixes[:, :-1] - prefixes[:, 1:]) * powers
    parts = [whole, whole + changes]
    if deletions > 1 and length > 1:
        first, second = np.array(list(combinations(range(length), 2))).T
        parts.append(whole + changes[:, second] + changes[:, first] * np.uint64(_INVERSE))
    return np.concatenate(parts, axis=1)


def count_bits(values: UInt64Array) -> npt.NDArray[np.uint8]:
    """Count the set bits of each value; numpy has a function for this since 2.0."""
    if hasattr(np, "bitwise_count"):
        counted: npt.NDArray[np.uint8] = np.bitwise_count(values)
        return counted
    pairs = values - ((values >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + ((pairs >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bytewise = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    total: npt.NDArray[np.uint8] = ((bytewise * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)
    return total
