"""Find all pairs of strings within a small edit distance, without comparing every pair.

Two strings within distance d share a variant with up to d characters deleted (SymSpell). The variants are hashes, from
prefix hashes, without a Python loop over strings:

    prefix hash   P[0] = 0,  P[i + 1] = P[i] B + value(c_i)            mod 2^64
    one deletion  h(s without i) = P[L] + (P[i] - P[i + 1]) B^(L - 1 - i)
    two           h(s without i < j) = P[L] + d_j + d_i / B     where d_k = (P[k] - P[k + 1]) B^(L - 1 - k)

B is odd, so it has an inverse modulo 2^64, and a variant with two deletions costs two additions. rapidfuzz measures the
pairs that share a variant.

Cost: about L^2 / 2 hashes for a string of L characters, sorted in parts. It is linear in the number of strings: in a
block of strings that share a key, only a window around each string is searched. In larger blocks (thousands of names of
one template) some pairs are missed, but not the alphabetically nearest ones. Strings of more than `LONGEST` characters
have variants with one deletion only.

Source: SymSpell (Garbe 2012).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int64]

_MODULUS = 1 << 64
_BASE = 0x9E3779B97F4A7C15  # odd; 2^64 over the golden ratio
_INVERSE = pow(_BASE, -1, _MODULUS)

MAX_DISTANCE = 2
LONGEST = 40
"""Length of the longest strings that get variants with two deletions: 821 variants each."""
WINDOW = 256
"""Partners of a string in one block, at most.

Of 20,000 neighbouring names with many acronyms, a window of 64 finds 82 % of the pairs and 256 all.
"""
CHUNK = 1 << 21
"""Pairs, or hashes, processed at once."""
_AT_ONCE = 1 << 26  # hashes that are sorted together: half a gigabyte


def _mix(values: UInt64Array) -> UInt64Array:
    """Spread the entropy of 64-bit values over all their bits (the finaliser of SplitMix64)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: UInt64Array = mixed ^ (mixed >> np.uint64(31))
    return spread


def _variant_hashes(texts: Sequence[str], deletions: int) -> UInt64Array:
    """Return the hashes of all variants of strings with up to this many characters deleted.

    Args:
        texts: n strings of one length L > 0; lone surrogates are allowed.
        deletions: 1 or 2.

    Returns:
        (n, 1 + L) or (n, 1 + L + L (L - 1) / 2); a string with a repeated character has some hashes twice.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    values = _mix(points.astype(np.uint64)).reshape(len(texts), -1)
    length = values.shape[1]
    prefixes = np.zeros((len(texts), length + 1), dtype=np.uint64)
    for i in range(length):
        prefixes[:, i + 1] = prefixes[:, i] * np.uint64(_BASE) + values[:, i]
    powers = np.array([pow(_BASE, length - 1 - k, _MODULUS) for k in range(length)], dtype=np.uint64)
    whole = prefixes[:, -1:]
    changes = (prefixes[:, :-1] - prefixes[:, 1:]) * powers
    parts = [whole, whole + changes]
    if deletions > 1 and length > 1:
        first, second = np.array(list(combinations(range(length), 2))).T
        parts.append(whole + changes[:, second] + changes[:, first] * np.uint64(_INVERSE))
    return _mix(np.concatenate(parts, axis=1))


def edit_pairs(
    texts: Sequence[str], *, max_distance: int = MAX_DISTANCE, window: int = WINDOW, threads: int = 1
) -> tuple[Pairs, npt.NDArray[np.uint8]]:
    """Return pairs of different strings within an edit distance (Levenshtein: insert, delete, substitute).

    Args:
        texts: The strings, best in alphabetical order, so that the partners taken from a large block are near.
        max_distance: 1 or 2.
        window: See `WINDOW`; a larger window finds more pairs in large blocks, and takes longer.
        threads: Threads of rapidfuzz.

    Returns:
        Pairs of indices, (m, 2), the smaller one first, each pair once and sorted; and their distances, (m,), at
        least 1: equal strings are not a pair.
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    found = [np.zeros(0, dtype=np.uint64)]
    for first, second in _sharing_a_variant(texts, lengths, max_distance, window):
        close = np.abs(lengths[first] - lengths[second]) <= max_distance
        low, high = np.minimum(first[close], second[close]), np.maximum(first[close], second[close])
        found.append(np.unique(low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)))
    keys = np.unique(np.concatenate(found))
    pairs = np.stack([keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)], axis=1).astype(np.int64)
    distances = edit_distances(texts, pairs, limit=max_distance, threads=threads)
    near = (distances <= max_distance) & (distances > 0)
    return pairs[near], distances[near]


def edit_distances(texts: Sequence[str], pairs: Pairs, *, limit: int = 254, threads: int = 1) -> npt.NDArray[np.uint8]:
    """Return the edit distance of each pair, (m,); `limit` + 1, at most 255, for every distance over the limit."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cpdist

    parts = [np.zeros(0, dtype=np.uint8)]
    for start in range(0, len(pairs), CHUNK // 4):
        chunk = pairs[start : start + CHUNK // 4]
        left, right = ([texts[i] for i in column] for column in chunk.T.tolist())
        distances = cpdist(
            left, right, scorer=Levenshtein.distance, score_cutoff=limit, dtype=np.uint8, workers=threads
        )
        parts.append(distances)
    return np.concatenate(parts)


def _sharing_a_variant(
    texts: Sequence[str], lengths: IntArray, max_distance: int, window: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of strings that share a variant, some of them several times."""
    groups = []  # rows of one length with the deletions of their variants, which are few enough for a pass
    n_hashes = 0
    for length in np.unique(lengths[lengths > 0]).tolist():
        deletions = max_distance if length <= LONGEST else 1
        each = 1 + length + (length * (length - 1) // 2 if deletions > 1 else 0)
        rows = np.flatnonzero(lengths == length)
        n_hashes += each * len(rows)
        step = max(1, CHUNK // each)
        groups += [(rows[start : start + step], deletions) for start in range(0, len(rows), step)]
    id_bits = np.uint64(max(1, len(texts)).bit_length())
    part_bits = np.uint64(max(0, n_hashes // _AT_ONCE).bit_length())
    for part in range(1 << int(part_bits)):
        keys = [np.zeros(0, dtype=np.uint64)]
        for rows, deletions in groups:
            hashes = _variant_hashes([texts[i] for i in rows.tolist()], deletions)
            owners = np.broadcast_to(rows[:, None].astype(np.uint64), hashes.shape)
            mine = hashes & ((np.uint64(1) << part_bits) - np.uint64(1)) == part
            keys.append(hashes[mine] >> id_bits << id_bits | owners[mine])
        ordered = np.concatenate(keys)
        ordered.sort()
        yield from _neighbours_of_one_key(ordered, id_bits, window)


def _neighbours_of_one_key(
    ordered: UInt64Array, id_bits: np.uint64, window: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of ids within `window` of each other under one key."""
    ids = (ordered & ((np.uint64(1) << id_bits) - np.uint64(1))).astype(np.int64)
    hashes = ordered >> id_bits
    at = np.arange(len(ordered) - 1)
    for step in range(1, window + 1):
        at = at[at + step < len(ordered)]
        at = at[hashes[at] == hashes[at + step]]
        if not len(at):
            return
        for start in range(0, len(at), CHUNK):
            chunk = at[start : start + CHUNK]
            yield ids[chunk], ids[chunk + step]
