"""Collections moved between stores, or encoded again with another model, without downtime.

    from pearl_qdrant.transfer import push_collection, reencode_collection

    push_collection("umls", to="http://localhost:6333")
    reencode_collection("umls", model="models/mine")

What is built is hidden until it is complete and checked; then one change makes it current (`store/protocol.py`).
`names.py` brings what lacks; `moving.py` copies, by the finished shard of a server where that can be taken;
`reencoding.py` encodes again, and compares models.
"""

from __future__ import annotations

from pearl_qdrant.transfer.moving import TransferResult, prune_collection, pull_collection, push_collection
from pearl_qdrant.transfer.reencoding import (
    EVERYDAY_MENTIONS,
    EverydayChange,
    EverydayKind,
    ReencodeResult,
    reencode_collection,
    rollback_collection,
)

__all__ = [
    "EVERYDAY_MENTIONS",
    "EverydayChange",
    "EverydayKind",
    "ReencodeResult",
    "TransferResult",
    "prune_collection",
    "pull_collection",
    "push_collection",
    "reencode_collection",
    "rollback_collection",
]
