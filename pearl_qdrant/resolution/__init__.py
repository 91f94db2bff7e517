"""Names of a graph or table to nodes: one node for the names of one entity, with a probability on every merge.

    from pearl_qdrant.resolution import resolve

    resolution = resolve(["NYTimes", "The New York Times", "New York Times"])
    resolution.write("nodes.tsv", review="review.tsv")

`names.py` groups equal spellings, `pairs/` scores what is alike, `clusters.py` merges, `assignment.py` does it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.resolution.files import read_decisions, read_names
    from pearl_qdrant.resolution.records import Decision, NameRecord, ResolvedName, ReviewPair
    from pearl_qdrant.resolution.resolution import Resolution
    from pearl_qdrant.resolution.resolving import resolve

__all__ = [
    "Decision",
    "NameRecord",
    "Resolution",
    "ResolvedName",
    "ReviewPair",
    "read_decisions",
    "read_names",
    "resolve",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Decision": "pearl_qdrant.resolution.records",
        "NameRecord": "pearl_qdrant.resolution.records",
        "Resolution": "pearl_qdrant.resolution.resolution",
        "ResolvedName": "pearl_qdrant.resolution.records",
        "ReviewPair": "pearl_qdrant.resolution.records",
        "read_decisions": "pearl_qdrant.resolution.files",
        "read_names": "pearl_qdrant.resolution.files",
        "resolve": "pearl_qdrant.resolution.resolving",
    },
)
