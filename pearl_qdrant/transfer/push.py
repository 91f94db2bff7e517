"""`push_collection`: a collection to a server, or to any other store."""

from __future__ import annotations

from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.transfer.keyed_shards import keyed_placement, packer_for
from pearl_qdrant.transfer.moving import Transfer
from pearl_qdrant.transfer.records import OnProgress, TransferResult, Way, no_progress


def push_collection(
    name: str,
    *,
    to: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    way: Way = "auto",
    placement: Placement | None = None,
    shards_by_key: bool | None = None,
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection to a server. No name is encoded again.

    A finished embedded collection travels as its shard, with its graph, if the server can take it; otherwise names
    travel with their vectors, and the server builds the graph. It is built hidden, checked, and then visible at once.

    Args:
        name: The collection.
        to: URL of the server, or another store. Its key is read from the environment.
        store: The store that has it; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        way: "auto", "snapshot" or "stream"; see `TransferResult.way`.
        placement: How a cluster distributes it; then it is streamed, unless its shards have keys.
        shards_by_key: Whether each partition of the entities is a shard of its own, under a key. None: where the server
            is a cluster, and the collection was built in parts, which then are the shards. A server that is no cluster
            has no keys: the collection gets one shard, and `TransferResult.reason` says so.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If there is no such collection.
        CollectionExistsError: If the server has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        OptionError: If it must be a snapshot, and cannot be one; or if shards get keys, and it is not said how many.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed on the server.
    """
    with use_store(store, wait_s=wait_s) as source, use_store(to, wait_s=wait_s) as target:
        placement, unkeyed = keyed_placement(name, source, target, placement, by_key=shards_by_key)
        packer, reason = packer_for(source, target, placement)
        transfer = Transfer(name, source, target, "push", replace, way, placement, on_progress, packer, reason, unkeyed)
        return transfer.run()
