"""Parameters of the HNSW graph in both stores: links and candidates while it is built, candidates of a search.

How often the nearest name is missed, in percent, compared with exact search; 600 mentions of each kind, 571,074 names
of a general base, candidates by int8 vectors. Columns: links (m), candidates while building, of a search (ef).

                                    m 16, 100                       m 24, 200
                                    ef 32   64     128    256       ef 128  256    384
    as they stand                   0.4     0.2    0.0    0.0       0.0     0.0    0.0
    one slip                        7.2     4.4    1.2    0.2       0.8     0.3    0.3
    two slips                       16.0    7.2    4.4    1.8       1.7     0.7    0.2
    NAME in children ...            28.8    20.8   8.4    4.4       5.2     2.3    1.7
    us a query                      150     200    330    550       450     720    1,070
"""

from __future__ import annotations

from dataclasses import dataclass

from pearl_qdrant.store.search import NameQuery

M = 24  # links of a name in the graph
EF_CONSTRUCT = 200  # candidates while the graph is built
QUICK_EF = 64  # candidates of a search for a mention's own name: if it is found, no other search is needed
THOROUGH_EF = 384  # candidates of a search that also finds names that are only near

FILTER_EF = 64
"""Candidates of a search under a filter. Measured with 571,000 names and the filter ORG (8 %), as recall@15 of mentions
that are ORG and of any mentions: ef 64 0.992 and 0.940 in 0.8 ms, ef 128 0.994 and 0.970 in 1.4, ef 256 0.997 and 0.988
in 3.2."""

FULL_SCAN_KB = 40_000
"""A filter that passes fewer KB of vectors than this (27,000 vectors of 384 dimensions) is searched exactly. With int8
vectors that takes 2 ms, as long as the graph under a filter."""

OVERSAMPLING = 2.0  # times the wanted points that quantised vectors find; these are scored by the full vectors


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """Counts, graph and indexes of a collection.

    Attributes:
        points, segments: Exact numbers.
        vectors: Points with a dense vector; the others are unencodable names.
        indexed_vectors: Dense vectors in an HNSW graph; the others are searched exactly.
        is_finalized: Whether the graph is built, or the collection is too small to need one.
        payload_indexes: Indexed payload fields.
    """

    points: int
    vectors: int
    indexed_vectors: int
    segments: int
    is_finalized: bool
    payload_indexes: tuple[str, ...]


def candidates(query: NameQuery, *, is_filtered: bool) -> int:
    """Return the candidates of a search in the graph; at least as many as are wanted."""
    ef = THOROUGH_EF if query.is_thorough else QUICK_EF
    return max(FILTER_EF if is_filtered else ef, query.limit)


def share_indexed(indexed: int, n_vectors: int, n_sparse: int) -> int:
    """Estimate how many of `n_vectors` dense ones are in a graph, from Qdrant's count, which has sparse ones too."""
    return min(n_vectors, round(indexed * n_vectors / max(1, n_vectors + n_sparse)))
