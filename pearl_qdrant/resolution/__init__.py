"""Names of a graph or table to nodes: one node for the names of one entity, with a probability on every merge.

    from pearl_qdrant.resolution import resolve

    resolution = resolve(["NYTimes", "The New York Times", "New York Times"])
    resolution.write("nodes.tsv", review="review.tsv")

`names.py` groups equal spellings, `pairs/` scores what is alike, `clusters.py` merges, `resolving.py` does it all;
`graphs/` merges whole graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.resolution.graphs import MergedGraph, resolve_graph
    from pearl_qdrant.resolution.names import NameRecord, read_names
    from pearl_qdrant.resolution.resolution import (
        Decision,
        Judge,
        Question,
        Resolution,
        ResolvedName,
        ReviewPair,
        read_decisions,
    )
    from pearl_qdrant.resolution.resolving import resolve

__all__ = [
    "Decision",
    "Judge",
    "MergedGraph",
    "NameRecord",
    "Question",
    "Resolution",
    "ResolvedName",
    "ReviewPair",
    "read_decisions",
    "read_names",
    "resolve",
    "resolve_graph",
]

__getattr__, __dir__ = lazy_exports(__name__)
