"""Collections moved between stores, or encoded again with another model, without downtime.

    from pearl_qdrant.transfer import push_collection, reencode_collection

    push_collection("umls", to="http://localhost:6333")
    reencode_collection("umls", model="models/mine")

What is built is hidden until it is complete and checked; then one change makes it current (`store/versions.py`).
`moving.py` and `pull.py` copy: what `inventory.py` finds missing is streamed, and a pull from a server takes its
finished shard where it can. `reencoding.py` encodes again, `catching_up.py` follows what writers do meanwhile, and
`everyday.py` compares models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.transfer.everyday import EverydayChange, EverydayKind
    from pearl_qdrant.transfer.moving import TransferResult, push_collection
    from pearl_qdrant.transfer.pull import pull_collection
    from pearl_qdrant.transfer.reencoding import (
        EVERYDAY_MENTIONS,
        ReencodeResult,
        reencode_collection,
        rollback_collection,
    )
    from pearl_qdrant.transfer.versions import prune_collection

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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "EVERYDAY_MENTIONS": "pearl_qdrant.transfer.reencoding",
        "EverydayChange": "pearl_qdrant.transfer.everyday",
        "EverydayKind": "pearl_qdrant.transfer.everyday",
        "ReencodeResult": "pearl_qdrant.transfer.reencoding",
        "TransferResult": "pearl_qdrant.transfer.moving",
        "prune_collection": "pearl_qdrant.transfer.versions",
        "pull_collection": "pearl_qdrant.transfer.pull",
        "push_collection": "pearl_qdrant.transfer.moving",
        "reencode_collection": "pearl_qdrant.transfer.reencoding",
        "rollback_collection": "pearl_qdrant.transfer.reencoding",
    },
)
