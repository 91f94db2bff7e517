"""Shard snapshots of a collection on a server: downloaded, and uploaded in the place of its content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from pearl_qdrant.errors import StoreError, StoreRejectedError, StoreUnavailableError
from pearl_qdrant.store.server.connection import PATIENT, Connection

PROBE_FIELD = "pearl_qdrant_probe"
"""Payload field that is set and removed once, to see that a collection takes changes."""

_CHUNK_BYTES = 1 << 20


def only_shard(connection: Connection, physical: str) -> int:
    """Return the id of a collection's only shard.

    Raises:
        StoreRejectedError: If it has several, or replicas on other nodes; the message is a part of a sentence.
    """
    client = connection.client
    placed = connection.call(lambda: client.collection_cluster_info(physical), collection=physical)
    if len(placed.local_shards) != 1 or placed.remote_shards:
        n_shards = len(placed.local_shards) + len(placed.remote_shards)
        raise StoreRejectedError(f"the server keeps it in {n_shards} shards or replicas, not in one on the node asked")
    return placed.local_shards[0].shard_id


@contextmanager
def _rejected_if_alive(connection: Connection, physical: str) -> Iterator[None]:
    """Make an error of the block that all retries met a rejection, if the server answers other requests.

    A server that fails at every snapshot, by a full disk or a bug, can still take streamed names.
    """
    try:
        yield
    except StoreUnavailableError as error:
        is_alive = False
        with suppress(Exception):
            is_alive = connection.client.collection_exists(physical)
        if not is_alive:
            raise
        raise StoreRejectedError(f"the server fails at snapshots, and at nothing else ({error.last})") from error


def download_shard(connection: Connection, physical: str, shard: int, target: Path) -> None:
    """Let the server make a snapshot of a shard, download it, and delete it there.

    Raises:
        StoreRejectedError: If the server refuses, or fails at this alone.
        StoreError: If it does not answer after all retries.
        OSError: If the file cannot be written.
    """
    path = f"/collections/{quote(physical, safe='')}/shards/{shard}/snapshots"
    with _rejected_if_alive(connection, physical):
        made = connection.call(lambda: _send(connection, "POST", path), collection=physical)
    try:
        name = str(made.json()["result"]["name"])
    except (ValueError, LookupError, TypeError) as error:
        raise StoreRejectedError("the server names no snapshot") from error
    one = f"{path}/{quote(name, safe='')}"
    try:
        with _rejected_if_alive(connection, physical):
            connection.call(lambda: _download(connection, one, target), collection=physical)
    finally:
        with suppress(StoreError):
            connection.call(lambda: _send(connection, "DELETE", one), collection=physical)


def upload_shard(connection: Connection, physical: str, shard: int, snapshot: Path) -> None:
    """Replace the content of a shard by a snapshot; returns when the server has it.

    Raises:
        StoreRejectedError: If the server refuses it, or fails at this alone.
        StoreError: If it does not answer after all retries.
        OSError: If the file cannot be read.
    """
    path = f"/collections/{quote(physical, safe='')}/shards/{shard}/snapshots/upload?priority=snapshot&wait=true"

    def upload() -> None:
        with snapshot.open("rb") as file:
            _send(connection, "POST", path, files={"snapshot": (snapshot.name, file, "application/octet-stream")})

    with _rejected_if_alive(connection, physical):
        connection.call(upload, collection=physical)


def takes_changes(connection: Connection, physical: str, point: str, key: str | None = None) -> bool:
    """Whether a change of a stored point is seen afterwards; the point is left as it was.

    A server ignores operations that are older than what a segment has seen. After a snapshot from elsewhere this shows
    whether its log goes on after the segments.

    Args:
        connection: To the server.
        physical: The server's name of the collection.
        point: Id of the point.
        key: The key of its shard, if the shards have keys.

    Raises:
        StoreError: If the server refuses a request, or does not answer after all retries.
    """
    client = connection.client
    token = os.urandom(6).hex()
    change: dict[str, Any] = {"points": [point], "wait": True, "shard_key_selector": key}

    def call(request: Any) -> Any:
        return connection.call(request, collection=physical)

    call(lambda: client.set_payload(physical, {PROBE_FIELD: token}, **change))
    records = call(lambda: client.retrieve(physical, [point], with_payload=[PROBE_FIELD]))
    if not records or (records[0].payload or {}).get(PROBE_FIELD) != token:
        return False
    call(lambda: client.delete_payload(physical, [PROBE_FIELD], **change))
    records = call(lambda: client.retrieve(physical, [point], with_payload=[PROBE_FIELD]))
    return bool(records) and PROBE_FIELD not in (records[0].payload or {})


def _send(connection: Connection, method: str, path: str, **body: Any) -> httpx.Response:
    """Send a request that may take long."""
    api = connection.client.http.client
    request = api._client.build_request(method, api.host.rstrip("/") + path, extensions={PATIENT: True}, **body)
    response = api.middleware(request, api.send_inner)
    if not response.is_success:
        raise UnexpectedResponse.for_response(response)
    return response


def _download(connection: Connection, path: str, target: Path) -> None:
    api = connection.client.http.client
    request = api._client.build_request("GET", api.host.rstrip("/") + path, extensions={PATIENT: True})
    try:
        response = api._client.send(request, stream=True)
        try:
            if not response.is_success:
                response.read()
                raise UnexpectedResponse.for_response(response)
            with target.open("wb") as file:
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    file.write(chunk)
        finally:
            response.close()
    except httpx.HTTPError as error:
        raise ResponseHandlingException(error) from error
