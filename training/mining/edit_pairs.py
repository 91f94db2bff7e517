"""Find all pairs of strings within a small edit distance, without comparing every pair.

Strings are arrays, with substring hashes and character-pair signatures without a Python loop over strings.

    prefix hash   P[0] = 0,  P[i + 1] = P[i] B + value(c_i)            mod 2^64
    substring     h(a, b) = P[b] - P[a] B^(b - a)
    one deletion  h(s without i) = P[L] + (P[i] - P[i + 1]) B^(L - 1 - i)
    two           h(s without i < j) = P[L] + d_j + d_i / B     where d_k = (P[k] - P[k + 1]) B^(L - 1 - k)

B is odd, so it has an inverse modulo 2^64, and a variant with two deletions costs two additions.

    short strings   two strings within distance d share a variant with up to d characters deleted (SymSpell)
    long strings    of d + 1 segments of a string, at least one is unchanged in any string within distance d, shifted
                    by the difference of lengths at most (Pass-Join)
    both            pairs whose character pairs differ too much are dropped, rapidfuzz measures the rest

Cost: about 90 hashes per short string and 15 per long one, sorted in parts. It is linear in the number of strings: in a
block of strings that share a key, only a window around each string is searched. In larger blocks (thousands of names of
one template) some pairs are missed, but not the alphabetically nearest ones.

Source: Pass-Join (Li et al. 2011), multi-match-aware substrings; SymSpell (Garbe 2012).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Strings as one array of code points; lone surrogates are allowed."""

    def __init__(self, texts: Sequence[str]) -> None:
        points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        self._points = points
        self.lengths: IntArray = np.fromiter((len(text) for text in texts), dtype=np.int64, count=len(texts))
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)])[:-1]

    def prefix_hashes(self, rows: IntArray, length: int) -> UInt64Array:
        """Return the prefix hashes of strings (rows) that are all of one length L, (len(rows), L + 1)."""
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
    bits: npt.NDArray[np.uint8] = np.unpackbits(values.view(np.uint8)).reshape(-1, 64).sum(axis=1, dtype=np.uint8)
    return bits


MAX_DISTANCE = 2
SHORT = 14
"""Length of the longest strings that get deletion variants: 106 variants each."""
N_PARTS = 8
"""Number of parts in which the variants are sorted, which bounds the memory: 60 bytes per string at once."""
WINDOW = 256
"""Partners of a string in one block of deletion variants, at most; four times as many in a block of segments.

Of 20,000 neighbouring names with many acronyms, a window of 64 finds 82 % of the pairs and 256 all.
"""
CHUNK = 1 << 21
"""Pairs processed at once."""
_CHANGED_BITS = 4  # of a signature, per edit

Pairs = npt.NDArray[np.int64]


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

    Raises:
        ValueError: If the distance is not 1 or 2, or there are more strings than fit in 31 bits.
    """
    if max_distance not in (1, 2):
        raise ValueError(f"max_distance must be 1 or 2, not {max_distance}")
    if len(texts) >= 1 << 31:
        raise ValueError(f"{len(texts):,} strings are too many at once. Split them, for example by language")
    packed = PackedStrings(texts)
    signatures = packed.signatures()
    found: list[UInt64Array] = []
    candidates = [
        _by_deletions(packed, max_distance, window),
        _by_segments(packed, max_distance, 4 * window),
    ]
    for source in candidates:
        for first, second in source:
            kept = _plausible(first, second, packed.lengths, signatures, max_distance)
            low, high = np.minimum(first[kept], second[kept]), np.maximum(first[kept], second[kept])
            found.append(np.unique(low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)))
    keys = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.uint64)
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


def _plausible(
    first: IntArray, second: IntArray, lengths: IntArray, signatures: UInt64Array, max_distance: int
) -> npt.NDArray[np.bool_]:
    """Return whether lengths and character pairs allow the distance; never false for a pair within it."""
    close = np.abs(lengths[first] - lengths[second]) <= max_distance
    changed = count_bits(signatures[first] ^ signatures[second])
    kept: npt.NDArray[np.bool_] = close & (changed <= _CHANGED_BITS * max_distance)
    return kept


def _by_deletions(packed: PackedStrings, max_distance: int, window: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of short strings that share a variant with characters deleted."""
    id_bits = np.uint64(max(1, len(packed.lengths)).bit_length())
    groups = [(length, np.flatnonzero(packed.lengths == length)) for length in range(1, SHORT + 1 + max_distance)]
    for part in range(N_PARTS):
        keys = [np.zeros(0, dtype=np.uint64)]
        for length, rows in groups:
            for start in range(0, len(rows), 1 << 14):
                chunk = rows[start : start + (1 << 14)]
                hashes = mix(deletion_hashes(packed.prefix_hashes(chunk, length), max_distance))
                owners = np.broadcast_to(chunk[:, None].astype(np.uint64), hashes.shape)
                mine = hashes >> np.uint64(61) == part
                keys.append(((hashes[mine] << np.uint64(3)) >> id_bits << id_bits) | owners[mine])
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


def _by_segments(packed: PackedStrings, max_distance: int, window: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of long strings of which one contains a segment of the other at its position."""
    longest = int(packed.lengths.max(initial=0))
    by_length = np.argsort(packed.lengths, kind="stable")
    bounds = np.searchsorted(packed.lengths[by_length], np.arange(longest + 2))
    hashes: dict[int, tuple[IntArray, UInt64Array]] = {}
    for length in range(SHORT + 1, longest + 1):
        for other in range(length, min(length + max_distance, longest) + 1):
            if other not in hashes:
                rows = by_length[bounds[other] : bounds[other + 1]]
                hashes[other] = rows, packed.prefix_hashes(rows, other)
        for other in range(length, min(length + max_distance, longest) + 1):
            if len(hashes[length][0]) and len(hashes[other][0]):
                yield from _join(hashes[length], hashes[other], length, other - length, max_distance, window)
        del hashes[length]


def _join(
    shorter: tuple[IntArray, UInt64Array],
    longer: tuple[IntArray, UInt64Array],
    length: int,
    extra: int,
    max_distance: int,
    window: int,
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of strings of length `length` and `length + extra` by their segments.

    Of the longer string, only those substrings are compared from which both ends can be reached with the edits that are
    left (Li et al. 2011, section 4.2).
    """
    rows, prefixes = shorter
    probes, probe_prefixes = longer
    n_segments = max_distance + 1
    for segment in range(n_segments):
        start, stop = (_bound(length, i, n_segments) for i in (segment, segment + 1))
        keys = substring_hashes(prefixes, start, stop)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        before, after = segment, max_distance - segment
        low = max(start - before, start + extra - after, 0)
        high = min(start + before, start + extra + after, length + extra - (stop - start))
        for at in range(low, high + 1):
            wanted = substring_hashes(probe_prefixes, at, at + stop - start)
            yield from _matches(keys, rows[order], wanted, probes, window)


def _bound(length: int, segment: int, n_segments: int) -> int:
    """Return the start of a segment; if the length does not divide, the last segments are one character longer."""
    short = length // n_segments
    return segment * short + max(0, segment - (n_segments - length % n_segments))


def _matches(
    keys: UInt64Array, ids: IntArray, wanted: UInt64Array, probes: IntArray, window: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of an id and a probe with equal keys; for a frequent key only the ids nearest to the probe's."""
    low, high = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
    hit = np.flatnonzero(high > low)
    low, high = low[hit], high[hit]
    for i in np.flatnonzero(high - low > window).tolist():
        middle = low[i] + np.searchsorted(ids[low[i] : high[i]], probes[hit[i]])
        low[i] = max(low[i], min(middle - window // 2, high[i] - window))
        high[i] = low[i] + window
    counts = high - low
    ends = np.cumsum(counts)
    for start, stop in _cuts(ends):
        chosen = slice(start, stop)
        here = counts[chosen]
        offsets = np.arange(here.sum()) - np.repeat(np.cumsum(here) - here, here)
        yield ids[np.repeat(low[chosen], here) + offsets], np.repeat(probes[hit[chosen]], here)


def _cuts(ends: IntArray) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about `CHUNK` pairs each."""
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + CHUNK)))
        yield start, stop
        start = stop
