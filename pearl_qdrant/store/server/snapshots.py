"""A shard of a collection on a server, downloaded as the snapshot that the server makes of it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from pearl_qdrant.errors import StoreError, StoreRejectedError
from pearl_qdrant.store.server.connection import Connection

_CHUNK_BYTES = 1 << 20

_PACKING_S = 3600.0
"""How long a server may take to pack a shard."""


def only_shard(connection: Connection, physical: str) -> int:
    """Return the id of a collection's only shard; StoreRejectedError, a part of a sentence, if there are more."""
    client = connection.client
    placed = connection.call(lambda: client.collection_cluster_info(physical), collection=physical)
    if len(placed.local_shards) != 1 or placed.remote_shards:
        n_shards = len(placed.local_shards) + len(placed.remote_shards)
        raise StoreRejectedError(f"the server keeps it in {n_shards} shards or replicas, not in one on the node asked")
    return placed.local_shards[0].shard_id


def download_shard(connection: Connection, physical: str, shard: int, target: Path) -> None:
    """Let the server make a snapshot of a shard, download it, compare its checksum, and delete it there.

    StoreRejectedError if the server refuses, or if what arrived is not what it made.
    """
    path = f"/collections/{quote(physical, safe='')}/shards/{shard}/snapshots"
    slowly = partial(connection.request, timeout_s=_PACKING_S)
    made = connection.call(lambda: slowly("POST", path), collection=physical)
    try:
        result = made.json()["result"]
        name, wanted = str(result["name"]), result.get("checksum")
    except (ValueError, LookupError, TypeError) as error:
        raise StoreRejectedError("the server names no snapshot") from error
    one = f"{path}/{quote(name, safe='')}"
    try:
        found = connection.call(lambda: _download(connection, one, target), collection=physical)
        if wanted != found:
            raise StoreRejectedError(f"its snapshot has the SHA-256 {found}, and the server says {wanted}")
    finally:
        with suppress(StoreError):
            connection.call(lambda: slowly("DELETE", one), collection=physical)


def _download(connection: Connection, path: str, target: Path) -> str:
    """Download a file; returns its SHA-256 in hexadecimal digits."""
    digest = hashlib.sha256()
    with connection.stream("GET", path, timeout_s=_PACKING_S) as response, target.open("wb") as file:
        for chunk in response.iter_bytes(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()
