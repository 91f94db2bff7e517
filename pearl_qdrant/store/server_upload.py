"""Points on their way to a server: checked, cut into batches, and sent by a few threads.

Our own loop, because qdrant-client's retries without back-off, retries what cannot heal, and forks. Batches are
bounded by points and bytes (a server refuses bodies over 32 MiB), sent with wait=True, and halved where the server
finds them too large. Ids are deterministic, so a batch that is sent twice changes nothing.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from qdrant_client import models

from pearl_qdrant.encoder.ngrams import UInt32Array, ngram_rows
from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import InvalidPointError, StoreRejectedError
from pearl_qdrant.store.schema import DENSE, LEXICAL, Manifest, NamePoint
from pearl_qdrant.store.server_connection import Connection
from pearl_qdrant.store.server_errors import RequestTooLargeError

MAX_BATCH_POINTS = 256
"""Qdrant advises 64 to 256 points a request."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A quarter of the server's default limit of 32 MiB."""

_UPLOAD_THREADS = 2
_MAX_PENDING = 4  # batches handed over and not yet stored: what bounds the memory
_FLOAT_BYTES = 22  # a float32 as JSON text, at most, with its comma
_INDEX_BYTES = 11  # 32 bits as JSON text
_POINT_BYTES = 128  # id, keys and brackets of a point


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A point that may be stored.

    Attributes:
        id: UUID5.
        payload: As Qdrant stores it.
        vector: (dim,), or None for an unencodable name.
        lexical: Indices and values, or None for a name without letters and digits.
        n_bytes: Its size in a JSON request, rather over than under.
    """

    id: str
    payload: dict[str, Any]
    vector: FloatArray | None
    lexical: tuple[UInt32Array, FloatArray] | None
    n_bytes: int

    def vectors(self) -> dict[str, Any]:
        """Its named vectors, as Qdrant takes them."""
        named: dict[str, Any] = {}
        if self.vector is not None:
            named[DENSE] = self.vector.tolist()
        if self.lexical is not None:
            indices, values = self.lexical
            named[LEXICAL] = models.SparseVector(indices=indices.tolist(), values=values.tolist())
        return named

    def label(self) -> str:
        """What to call it in an error."""
        return _label(str(self.payload["name"]), str(self.payload["entity_id"]))


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, manifest: Manifest
) -> list[CheckedPoint]:
    """Check points before any of them is sent; of points with one id the last stays, as a server would have it.

    Args:
        points: n points.
        vectors: (n, dim).
        encodable: (n,).
        manifest: Of the collection: the width of its vectors, and whether it has sparse ones, made here of the names.

    Raises:
        InvalidPointError: If a vector is NaN, zero or of another width, or a text no valid Unicode.
        ValueError: If the three do not pair up.
    """
    if vectors.ndim != 2 or not len(points) == len(vectors) == len(encodable):
        raise ValueError(
            f"{len(points)} points, vectors {vectors.shape} and encodable {encodable.shape} do not pair up"
        )
    if not len(points):
        return []
    if vectors.shape[1] != manifest.dim:
        raise InvalidPointError(
            f"The vector of {_label(points[0].name, points[0].entity_id)} has {vectors.shape[1]} dimensions, "
            f"but the collection holds vectors of {manifest.dim}. Use the model that made the collection."
        )
    rows = np.array(vectors, dtype=np.float32)  # a copy: the caller may reuse the array while we still send
    bad = encodable & ~(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        what = "is zero" if np.isfinite(rows[first]).all() else "holds NaN or infinity"
        raise InvalidPointError(
            f"The vector of {_label(points[first].name, points[first].entity_id)} {what}. "
            f"A name without a vector must be marked as not encodable."
        )
    lexical = ngram_rows([point.name for point in points]) if manifest.has_lexical else None
    checked: dict[str, CheckedPoint] = {}
    for i, (point, row, has_vector) in enumerate(zip(points, rows, encodable.tolist(), strict=True)):
        sparse = lexical.row(i) if lexical is not None else None
        one = _check_point(point, row if has_vector else None, sparse if sparse and len(sparse[0]) else None)
        checked.pop(one.id, None)
        checked[one.id] = one
    return list(checked.values())


def _check_point(
    point: NamePoint, row: FloatArray | None, lexical: tuple[UInt32Array, FloatArray] | None
) -> CheckedPoint:
    """Build the payload and measure it."""
    payload = point.to_payload()
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode("utf-8")
        identifier = point.id
    except (ValueError, TypeError) as error:
        reason = "holds a lone surrogate" if isinstance(error, UnicodeEncodeError) else f"is no JSON ({error})"
        raise InvalidPointError(
            f"The payload of {_label(point.name, point.entity_id)} {reason}. Repair it where it was read."
        ) from error
    size = len(text) + _POINT_BYTES + (_FLOAT_BYTES * len(row) if row is not None else 0)
    size += (_FLOAT_BYTES + _INDEX_BYTES) * len(lexical[0]) if lexical is not None else 0
    return CheckedPoint(id=identifier, payload=payload, vector=row, lexical=lexical, n_bytes=size)


def _label(name: str, entity_id: str) -> str:
    """Name a point in an error; ascii() shows what cannot be printed, long names are cut."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f"'{shown}' (entity {entity_id if entity_id.isprintable() else ascii(entity_id)})"


def cut_batches(points: Sequence[CheckedPoint], *, max_points: int, max_bytes: int) -> Iterator[list[CheckedPoint]]:
    """Cut points into batches within both bounds; a point over `max_bytes` goes alone."""
    batch: list[CheckedPoint] = []
    size = 0
    for point in points:
        if batch and (len(batch) == max_points or size + point.n_bytes > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(point)
        size += point.n_bytes
    if batch:
        yield batch


class Uploader:
    """Sends batches to one collection, halving those that the server finds too large. Thread-safe over HTTP.

    Attributes:
        max_points, max_bytes: Bounds of a batch; shrink when the server refuses one as too large.
        cancelled: Once set, ends retries.
    """

    def __init__(self, connection: Connection, collection: str) -> None:
        self.max_points = MAX_BATCH_POINTS
        self.max_bytes = MAX_BATCH_BYTES
        self.cancelled = threading.Event()
        self._connection = connection
        self._collection = collection

    def batches(self, points: Sequence[CheckedPoint]) -> Iterator[list[CheckedPoint]]:
        """Cut points into batches within the bounds of the moment."""
        return cut_batches(points, max_points=self.max_points, max_bytes=self.max_bytes)

    def send(self, batch: Sequence[CheckedPoint]) -> None:
        """Store a batch; returns when the server has applied it.

        Raises:
            StoreError: If the store failed for good.
        """

        def upsert(points: Sequence[CheckedPoint]) -> object:
            structs = [
                models.PointStruct(id=point.id, payload=point.payload, vector=point.vectors()) for point in points
            ]
            return self._connection.client.upsert(self._collection, structs, wait=True)

        self._send(batch, upsert)

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace all but the vectors of points; returns when the server has applied it. Raises as `send`."""

        def overwrite(batch: Sequence[CheckedPoint]) -> object:
            operations: list[models.UpdateOperation] = [
                models.OverwritePayloadOperation(
                    overwrite_payload=models.SetPayload(payload=point.payload, points=[point.id])
                )
                for point in batch
            ]
            return self._connection.client.batch_update_points(self._collection, operations, wait=True)

        for batch in self.batches([_check_point(point, None, None) for point in points]):
            self._send(batch, overwrite)

    def _send(self, batch: Sequence[CheckedPoint], write: Callable[[Sequence[CheckedPoint]], object]) -> None:
        """One request, or several where the server finds it too large."""
        if len(batch) > self.max_points:  # was cut before the server refused another one of its size
            self._send_halves(batch, write)
            return
        try:
            self._connection.call(lambda: write(batch), collection=self._collection, cancelled=self.cancelled)
        except RequestTooLargeError as error:
            if len(batch) == 1:
                raise StoreRejectedError(
                    f"The point of {batch[0].label()} alone is too large for the server ({batch[0].n_bytes:,} bytes): "
                    f"{error} Shorten its payload, or raise the server's request limit."
                ) from error
            self.max_points = min(self.max_points, (len(batch) + 1) // 2)
            self._send_halves(batch, write)

    def _send_halves(self, batch: Sequence[CheckedPoint], write: Callable[[Sequence[CheckedPoint]], object]) -> None:
        half = (len(batch) + 1) // 2
        self._send(batch[:half], write)
        self._send(batch[half:], write)


@final
class ServerWriter:
    """A bulk load over a few threads (one in local mode, where parallel upserts race).

    A batch is handed to the threads while the caller prepares the next one; an error of a batch surfaces in the next
    `write` or `flush`, and stays: after it nothing more is written.
    """

    def __init__(self, connection: Connection, collection: str, manifest: Manifest) -> None:
        self._uploader = Uploader(connection, collection)
        self._manifest = manifest
        self._threads = 1 if connection.is_local else _UPLOAD_THREADS
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[None], frozenset[str]]] = deque()
        self._failure: BaseException | None = None

    def __enter__(self) -> ServerWriter:
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="pearl-qdrant-upload")
        return self

    def __exit__(self, *exc_info: object) -> None:
        pool, failed = self._pool, exc_info[0] is not None
        if pool is None:
            return
        try:
            if not failed:
                self.flush()
        finally:
            self._pool = None
            self._uploader.cancelled.set()  # after a clean flush nothing is left that it could stop
            pool.shutdown(wait=True, cancel_futures=True)
            self._pending.clear()

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Hand points over; as in `protocol.Writer.write`."""
        pool = self._open_pool()
        self._collect(block_above=_MAX_PENDING)
        for batch in self._uploader.batches(check_points(points, vectors, encodable, self._manifest)):
            ids = frozenset(point.id for point in batch)
            # Two writes of one point must not overtake each other: the later one counts.
            if any(not ids.isdisjoint(others) for _, others in self._pending):
                self._collect(block_above=0)
            self._collect(block_above=_MAX_PENDING - 1)
            self._pending.append((pool.submit(self._uploader.send, batch), ids))

    def flush(self) -> None:
        """Return when all that was written is stored; as in `protocol.Writer.flush`."""
        self._open_pool()
        self._collect(block_above=0)

    def _open_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            raise ValueError("the writer is not open: use it in a with statement")
        return self._pool

    def _collect(self, *, block_above: int) -> None:
        """Take finished batches off the queue, waiting until at most so many are left; raise what failed."""
        if self._failure is not None:
            raise self._failure
        while self._pending and (len(self._pending) > block_above or self._pending[0][0].done()):
            future, _ = self._pending[0]
            try:
                future.result()
            except Exception as error:
                self._failure = error
                self._uploader.cancelled.set()
                raise
            self._pending.popleft()
