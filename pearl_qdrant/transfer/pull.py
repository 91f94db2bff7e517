"""`pull_collection`: a collection from a server, or from any other store."""

from __future__ import annotations

from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.transfer.moving import Transfer
from pearl_qdrant.transfer.records import OnProgress, TransferResult, Way, no_progress
from pearl_qdrant.transfer.shards import packer_between


def pull_collection(
    name: str,
    *,
    source: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    way: Way = "auto",
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection from a server. No name is encoded again.

    A collection of one shard travels as the server's snapshot of it, with its graph, which the embedded engine opens;
    otherwise names travel with their vectors. It is built hidden, checked, and then visible at once.

    Args:
        name: The collection.
        source: URL of the server, or another store. Its key is read from the environment.
        store: Where to; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        way: "auto", "snapshot" or "stream"; see `TransferResult.way`.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If the server has no such collection.
        CollectionExistsError: If the store has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        OptionError: If it must be a snapshot, and cannot be one.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed in the store.
    """
    with use_store(source, wait_s=wait_s) as server, use_store(store, wait_s=wait_s) as target:
        packer, reason = packer_between(server, target, None)
        return Transfer(name, server, target, "pull", replace, way, None, on_progress, packer, reason).run()
