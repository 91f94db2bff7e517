"""Collections of named points in Qdrant: embedded (`edge`) or on a server (`server`), behind one protocol.

`protocol.py` defines stores and collections, `search.py` and `hybrid.py` how both kinds search, `schema.py` points and
manifests. `open.py` opens a store from a folder or a URL. `administration.py` has the calls behind
`pearl-qdrant collections`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.store.administration import (
        CollectionDescription,
        CollectionSummary,
        Problem,
        Verification,
        delete_collection,
        describe_collection,
        finalize_collection,
        list_collections,
        summarize_collections,
        verify_collection,
    )
    from pearl_qdrant.store.open import open_store, use_store
    from pearl_qdrant.store.protocol import Collection, Placement, Store

__all__ = [
    "Collection",
    "CollectionDescription",
    "CollectionSummary",
    "Placement",
    "Problem",
    "Store",
    "Verification",
    "delete_collection",
    "describe_collection",
    "finalize_collection",
    "list_collections",
    "open_store",
    "summarize_collections",
    "use_store",
    "verify_collection",
]

__getattr__, __dir__ = lazy_exports(__name__)
