"""The graph of both stores: how densely it is linked when it is built, and how far a search looks into it.

Measured by how often the nearest name is missed, against exact search, with int8 vectors and the whole ones rescored:
30,256 names of the Disease Ontology (1,000 to 1,500 mentions a kind) and 571,074 of a general base (600), by
`benchmarks/graph_recall.py`. In percent, by links, candidates while building, and candidates of a search:

                                    m 16, 100                       m 24, 200
    mentions                        ef 32   64     128    256       ef 128  256    384
    30,256   as they stand          0.0     0.0    0.0    0.0       0.0     0.0
             one slip               1.1     0.3    0.1    0.1       0.3     0.2
             spaces left out        2.9     1.4    0.5    0.1       0.1     0.0
             x NAME                 6.4     2.7    0.7    0.0       0.2     0.0
             NAME in children ...   19.5    13.8   4.6    0.7       1.8     0.3
    571,074  as they stand          0.4     0.2    0.0    0.0       0.0     0.0    0.0
             one slip               7.2     4.4    1.2    0.2       0.8     0.3    0.3
             two slips              16.0    7.2    4.4    1.8       1.7     0.7    0.2
             spaces left out        5.2     3.2    1.6    1.0       0.5     0.3    0.2
             x NAME                 8.0     5.4    2.2    0.6       2.3     0.7    0.0
             NAME in children ...   28.8    20.8   8.4    4.4       5.2     2.3    1.7
    us a query, 571,074 names       150     200    330    550       450     720    1,070

The denser graph takes as much processor time to build as one of m 16 with 200 candidates. Oversampling more than twice
changes nothing: what is missed is missed by the graph.
"""

from __future__ import annotations

from pearl_qdrant.store.search import NameQuery

M = 24
"""Links of a name in the graph."""

EF_CONSTRUCT = 200
"""Candidates while it is built."""

QUICK_EF = 64
"""Candidates of a search for a mention's own name; where it is found, nothing else is searched for."""

THOROUGH_EF = 384
"""Candidates of a search for names that are merely near."""

FILTER_EF = 64
"""The same under a filter. 571,000 names, ORG (8 %), recall@15 of mentions that are ORG and of any mentions: ef 64
0.992 and 0.940 in 0.8 ms, ef 128 0.994 and 0.970 in 1.4, ef 256 0.997 and 0.988 in 3.2."""

FULL_SCAN_KB = 40_000
"""A filter that passes fewer vectors than this, 27,000 of 384 dimensions, is answered exactly: in 2 ms where int8
vectors are scanned, which the graph takes under a filter too."""


OLD_M, OLD_EF_CONSTRUCT = 16, 100
"""Of collections made before there was a choice."""


def candidates(query: NameQuery, *, is_filtered: bool) -> int:
    """Candidates of a search in the graph; at least as many as are wanted."""
    ef = THOROUGH_EF if query.is_thorough else QUICK_EF
    return max(FILTER_EF if is_filtered else ef, query.limit)
