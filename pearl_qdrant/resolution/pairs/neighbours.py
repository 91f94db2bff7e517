"""Pairs of names that may mean the same: near by vector, or with rare n-grams in common.

Both searches are near-linear in the number of names. Vectors are compared in blocks: of all names up to `EXACT_NAMES`,
beyond it within cells around random names, where each name is compared with the names of its `PROBES` nearest cells.
N-grams are looked up in lists of the names that have them; lists longer than `LONGEST_LIST` say too little and are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.idf import IdfTable, top_weighted_features
from pearl_qdrant.lexical.ngrams import SparseRows, folded_rows, join_rows

EXACT_NAMES = 30_000
"""Names up to which each is compared with all others: 2 s for each core."""

CELL_NAMES = 500
"""Names in a cell, on average."""

PROBES = 12
"""Cells that each name is compared with. Of the ten nearest names of 100,000 they have 94 % (docs/experiments)."""

LONGEST_LIST = 300
"""Names with an n-gram, at most, for it to be looked up."""

_BLOCK = 2048

_FOLDED = 20_000
"""Names whose n-grams are made at once."""

_CELLS = 8_000_000
"""Cosines that are compared at once: 32 MB."""

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest names of each name by vector, the nearest first.

    Attributes:
        names: (n, k), numbers of names; -1 where there are fewer.
        cosines: (n, k); -1 where there are fewer.
    """

    names: npt.NDArray[np.int32]
    cosines: FloatArray


def nearest_names(vectors: npt.NDArray[np.float16] | FloatArray, k: int, rng: np.random.Generator) -> Nearest:
    """Find the nearest names by cosine.

    Args:
        vectors: (n, dim), of unit length or zero; may be mapped from a file.
        k: Neighbours of each name, without itself.
        rng: Chooses the centres of cells.
    """
    n = len(vectors)
    found = Nearest(np.full((n, k), -1, np.int32), np.full((n, k), -1, np.float32))
    if n <= EXACT_NAMES:
        rows = np.arange(n)
        every = np.asarray(vectors, np.float32)
        block = max(1, min(_BLOCK, _CELLS // max(n, 1)))
        for start in range(0, n, block):
            _keep_best(found, rows[start : start + block], rows, every[start : start + block] @ every.T)
        return found
    centres, cells = _cells(vectors, rng)
    of_cell = np.argsort(cells[:, 0], kind="stable")
    starts = np.searchsorted(cells[of_cell, 0], np.arange(len(centres) + 1))
    askers = np.argsort(cells, axis=None, kind="stable")
    ask_starts = np.searchsorted(cells.ravel()[askers], np.arange(len(centres) + 1))
    for cell in range(len(centres)):
        members = of_cell[starts[cell] : starts[cell + 1]]
        if not len(members):
            continue
        own = np.asarray(vectors[members], np.float32)
        asking = askers[ask_starts[cell] : ask_starts[cell + 1]] // cells.shape[1]
        for start in range(0, len(asking), _BLOCK):
            rows = asking[start : start + _BLOCK]
            _keep_best(found, rows, members, np.asarray(vectors[rows], np.float32) @ own.T)
    return found


def _cells(vectors: npt.NDArray[np.float16] | FloatArray, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Centres of cells, and the nearest `PROBES` cells of each name, the nearest first."""
    n = len(vectors)
    n_cells = n // CELL_NAMES
    sample = np.asarray(vectors[np.sort(rng.choice(n, min(n, 32 * n_cells), replace=False))], np.float32)
    centres = sample[rng.choice(len(sample), n_cells, replace=False)]
    for _ in range(3):  # of k-means; centres that are random names are half as even
        nearest = np.concatenate(
            [(sample[i : i + _BLOCK] @ centres.T).argmax(axis=1) for i in range(0, len(sample), _BLOCK)]
        )
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, sample)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-9), centres).astype(np.float32)
    probes = min(PROBES, n_cells)
    cells = np.empty((n, probes), np.int64)
    for start in range(0, n, _BLOCK):
        scores = np.asarray(vectors[start : start + _BLOCK], np.float32) @ centres.T
        best = np.argpartition(-scores, probes - 1, axis=1)[:, :probes]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        cells[start : start + _BLOCK] = np.take_along_axis(best, order, axis=1)
    return centres, cells


def _keep_best(found: Nearest, rows: IntArray, columns: IntArray, cosines: FloatArray) -> None:
    """Put the best columns into the rows of `found`, beside what is there."""
    k = found.names.shape[1]
    cosines[rows[:, None] == columns[None, :]] = -1
    if len(columns) > k:
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        names, values = columns[best], np.take_along_axis(cosines, best, axis=1)
    else:
        names, values = np.broadcast_to(columns, cosines.shape), cosines
    names = np.concatenate((found.names[rows], names), axis=1)
    values = np.concatenate((found.cosines[rows], values), axis=1)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(values, order, axis=1)
    found.names[rows] = np.where(values > -1, np.take_along_axis(names, order, axis=1), -1)
    found.cosines[rows] = values


def weighted_rows(folded: Sequence[str], idf: IdfTable) -> SparseRows:
    """Weighted n-grams of folded names, n rows; made block by block, as they take ten times the memory meanwhile."""
    return join_rows([idf.weighted(folded_rows(folded[i : i + _FOLDED])) for i in range(0, len(folded), _FOLDED)])


def ngram_pairs(weighted: SparseRows, *, features: int, k: int) -> Iterator[IntArray]:
    """Pairs of names that share rare n-grams: of each name the `k` with the highest sum of shared weights.

    Args:
        weighted: N-grams of n names by their rarity (`weighted_rows`).
        features: N-grams of each name that are looked up, the rarest.
        k: Pairs of each name, at most.

    Yields:
        (p, 2), numbers of names, block by block; a pair may come twice, in either order.
    """
    n = len(weighted)
    blocks = [range(i, min(i + _FOLDED, n)) for i in range(0, n, _FOLDED)]
    top = join_rows([top_weighted_features(weighted.take(block), features) for block in blocks])
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(top.offsets))
    order = np.argsort(top.indices, kind="stable")
    lists, starts, lengths = np.unique(top.indices[order], return_index=True, return_counts=True)
    listed = owner[order]
    for first in range(0, n, _BLOCK):
        part = slice(int(top.offsets[first]), int(top.offsets[min(first + _BLOCK, n)]))
        at = np.searchsorted(lists, top.indices[part])
        is_short = lengths[at] <= LONGEST_LIST
        at, asking, weight = at[is_short], owner[part][is_short], top.values[part][is_short] ** 2
        counts = lengths[at]
        if not counts.sum():
            continue
        position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        other = listed[np.repeat(starts[at], counts) + position].astype(np.int64)
        key = np.repeat(asking.astype(np.int64), counts) << 32 | other
        unique, inverse = np.unique(key, return_inverse=True)
        shared = np.bincount(inverse, weights=np.repeat(weight, counts))
        a, b = unique >> 32, unique & 0xFFFFFFFF
        is_other = a != b
        a, b, shared = a[is_other], b[is_other], shared[is_other]
        best = np.lexsort((-shared, a))
        a, b = a[best], b[best]
        rank = np.arange(len(a)) - np.searchsorted(a, a)
        yield np.stack((a, b), axis=1)[rank < k]
