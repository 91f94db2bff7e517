"""`push_collection`: a collection to a server, or to any other store."""

from __future__ import annotations

from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.transfer.moving import Transfer
from pearl_qdrant.transfer.records import OnProgress, TransferResult, no_progress


def push_collection(
    name: str,
    *,
    to: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    placement: Placement | None = None,
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection to a server. No name is encoded again.

    Names travel with their vectors, several requests at a time, and the server builds the graph once, at the end. It is
    built hidden, checked, and then visible at once. If the call is killed, or the server goes away, the same call goes
    on: what is there is not sent again.

    Args:
        name: The collection.
        to: URL of the server, or another store. Its key is read from the environment.
        store: The store that has it; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        placement: How a cluster distributes it.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If there is no such collection.
        CollectionExistsError: If the server has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed on the server.
    """
    with use_store(store, wait_s=wait_s) as source, use_store(to, wait_s=wait_s) as target:
        return Transfer(name, source, target, "push", replace, placement, on_progress).run()
