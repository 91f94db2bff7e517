"""What others do with the names of a graph, for `measure.py`; each returns the cluster of every name.

exact         equal folded names (`lexical.ngrams.fold_name`); LightRAG and GraphRAG compare keys that are less folded
token sort    rapidfuzz's token_sort_ratio at a cutoff, pairs joined by union-find
HippoRAG      an edge at a cosine of 0.8 between the vectors of two names, connected components
KAG           each name is joined with its nearest name by vector, if that has the same type
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process

from pearl_qdrant.lexical.ngrams import fold_name

FloatArray = npt.NDArray[np.float32]
_BLOCK = 1000


def components(n: int, pairs: npt.NDArray[np.int64]) -> list[int]:
    """The connected component of each of n names.

    Args:
        n: Number of names.
        pairs: (p, 2), numbers of names that are joined.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    found: list[int] = connected_components(graph, directed=False)[1].tolist()
    return found


def _pairs_above(blocks: Iterator[npt.NDArray[Any]], cutoffs: Sequence[float]) -> dict[float, npt.NDArray[np.int64]]:
    """Pairs of names with at least a score, for each cutoff, from blocks of rows of their matrix of scores."""
    rows, columns, scores, start = [], [], [], 0
    for block in blocks:
        i, j = np.nonzero(block >= min(cutoffs))
        is_above = start + i < j
        rows.append(start + i[is_above])
        columns.append(j[is_above])
        scores.append(block[i, j][is_above])
        start += len(block)
    pairs = np.stack((np.concatenate(rows), np.concatenate(columns)), axis=1)
    every = np.concatenate(scores)
    return {cutoff: pairs[every >= cutoff] for cutoff in cutoffs}


def exact(names: Sequence[str]) -> list[str]:
    """Clusters of equal folded names; a name without letters and digits is alone."""
    return [fold_name(name) or f"\0{name}" for name in names]


def token_sort(names: Sequence[str], cutoffs: Sequence[float]) -> dict[float, list[int]]:
    """Clusters for each cutoff in [0, 100], by union-find over all pairs."""
    folded = exact(names)
    distinct = list(dict.fromkeys(folded))
    number = {name: i for i, name in enumerate(distinct)}
    sorted_words = [" ".join(sorted(name.split())) for name in distinct]
    blocks = (
        process.cdist(
            sorted_words[start : start + _BLOCK],
            sorted_words,
            scorer=fuzz.ratio,
            score_cutoff=min(cutoffs),
            dtype=np.uint8,
            workers=2,
        )
        for start in range(0, len(distinct), _BLOCK)
    )
    found = {}
    for cutoff, pairs in _pairs_above(blocks, cutoffs).items():
        sets = components(len(distinct), pairs)
        found[cutoff] = [sets[number[name]] for name in folded]
    return found


def cosine(vectors: FloatArray, cutoffs: Sequence[float]) -> dict[float, list[int]]:
    """Connected components of the graph of pairs with at least that cosine, for each cutoff."""
    blocks = (vectors[start : start + _BLOCK] @ vectors.T for start in range(0, len(vectors), _BLOCK))
    return {cutoff: components(len(vectors), pairs) for cutoff, pairs in _pairs_above(blocks, cutoffs).items()}


def nearest_of_label(vectors: FloatArray, types: Sequence[str]) -> list[int]:
    """Each name joined with the nearest one of its type."""
    codes = np.unique(np.array(types), return_inverse=True)[1]
    pairs = []
    for start in range(0, len(vectors), _BLOCK):
        scores = vectors[start : start + _BLOCK] @ vectors.T
        rows = np.arange(len(scores))
        scores[rows, start + rows] = -2.0
        scores[codes[start : start + _BLOCK, None] != codes[None, :]] = -2.0
        best = scores.argmax(axis=1)
        is_found = scores[rows, best] > -2.0
        pairs.append(np.stack((start + rows[is_found], best[is_found]), axis=1))
    return components(len(vectors), np.concatenate(pairs))
