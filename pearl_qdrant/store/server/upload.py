"""Upload points to a server: check them, cut them into batches, and send these by a few threads.

qdrant-client's own upload retries without back-off, retries errors that cannot pass, and forks. Batches here are sent
with wait=True, and halved if the server finds them too large. Sending one twice changes nothing: ids are deterministic.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import msgspec
import orjson

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import StoreClosedError, StoreRejectedError
from pearl_qdrant.lexical.keys import stored_rows
from pearl_qdrant.store.schema import DENSE, LEXICAL, NamePoint, check_vectors, invalid_payload, label_point
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.errors import RequestTooLargeError
from pearl_qdrant.store.server.queries import Answer, Limits, at_most
from pearl_qdrant.store.server.sizes import Learned, Sizes

_IN_FLIGHT = 4  # requests, each of at most `sizes.MAX_BYTES`

MAX_BATCH_POINTS = 256  # Qdrant recommends 64 to 256 points in a request


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A point that may be stored, with its name in errors: as JSON, or the operation that updates its payload."""

    id: str
    label: str
    data: bytes


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> list[CheckedPoint]:
    """Check n points before any of them is sent, with vectors (n, dim) and `encodable` (n,). Of points with one id the
    last is kept, as a server would do. Raises as `protocol.Writer.write`.
    """
    rows, flags = check_vectors(points, vectors, encodable, dim=dim)
    if not len(points):
        return []
    lexical = stored_rows([point.name for point in points])
    checked: dict[str, CheckedPoint] = {}
    for i, (point, has_vector) in enumerate(zip(points, flags.tolist(), strict=True)):
        named: dict[str, Any] = {DENSE: rows[i]} if has_vector else {}
        if lexical.offsets[i] < lexical.offsets[i + 1]:
            indices, values = lexical.row(i)
            named[LEXICAL] = {"indices": indices, "values": values}
        one = _checked(point, named)
        checked.pop(one.id, None)
        checked[one.id] = one
    return list(checked.values())


def join(points: Sequence[CheckedPoint], field: str) -> bytes:
    """Make the body of a request that holds these points in one field."""
    return b'{"%s":[' % field.encode() + b",".join(point.data for point in points) + b"]}"


def _checked(point: NamePoint, vectors: dict[str, Any] | None) -> CheckedPoint:
    """Write a point as JSON, or without vectors the operation that replaces its payload."""
    try:
        point_id, payload = point.id, point.to_payload()
        content: dict[str, Any] = {"id": point_id, "payload": payload, "vector": vectors}
        if vectors is None:
            content = {"overwrite_payload": {"payload": payload, "points": [point_id]}}
        if point.type_probability is not None and not math.isfinite(point.type_probability):
            raise ValueError("type_probability is not finite")
        # orjson writes float32 with the digits that they have, half of a double's.
        return CheckedPoint(point_id, label_point(point), orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))
    except (ValueError, TypeError) as error:
        raise invalid_payload(point, error) from error


_read_answer = msgspec.json.Decoder(Answer[Any]).decode


class Uploader:
    """Sends batches to one collection, in halves where the server finds them too large. Thread-safe."""

    def __init__(self, connection: Connection, collection: str, limits: Limits, learned: Learned) -> None:
        most = at_most(MAX_BATCH_POINTS, limits.upsert)
        self._points = learned.of("points", at_most(most, limits.writes))
        # The server applies operations one by one, and refuses the rest of them where too few writes are left.
        few = None if limits.writes is None else max(1, limits.writes // 2)
        self._operations = learned.of("operations", at_most(most, few))
        self.cancelled = threading.Event()  # once set, stops retries
        self.guard = connection.guard
        self.collection = collection
        self._connection = connection

    def batches(self, points: Sequence[CheckedPoint]) -> Iterator[list[CheckedPoint]]:
        return self._points.cut(points, _size)

    def send(self, batch: Sequence[CheckedPoint]) -> None:
        """Store a batch; returns when the server has applied it. Raises StoreError."""
        self._send(self._points, batch, partial(self._request, "PUT", "/collections/{name}/points?wait=true", "points"))

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of points; returns when the server has applied it. Raises as `send`."""
        path = "/collections/{name}/points/batch?wait=true"
        checked = [_checked(point, None) for point in points]
        self._send(self._operations, checked, partial(self._request, "POST", path, "operations"))

    def _send(
        self, sizes: Sizes, batch: Sequence[CheckedPoint], request: Callable[[Sequence[CheckedPoint]], object]
    ) -> None:
        for _ in sizes.send(batch, _size, request, wait=self.cancelled.wait):
            pass

    def _request(self, method: str, path: str, field: str, batch: Sequence[CheckedPoint]) -> object:
        """Send a batch as one field of a request."""
        body = join(batch, field)
        try:
            return self._connection.call_rest(
                method,
                path,
                body,
                collection=self.collection,
                read=_read_answer,
                cancelled=self.cancelled,
                is_series=field == "operations" and len(batch) > 1,
            )
        except RequestTooLargeError as error:
            if len(batch) > 1:
                raise
            raise StoreRejectedError(
                f"The point of {batch[0].label} alone is too large for the server ({len(body):,} bytes): "
                f"{error} Shorten its payload, or raise the server's request limit."
            ) from error


def _size(point: CheckedPoint) -> int:
    return len(point.data)


@final
class ServerWriter:
    """A bulk load by a few threads, which send while the caller makes the next batch. If a batch fails, every later
    `write` or `flush` raises the error: nothing more is written.
    """

    def __init__(self, uploader: Uploader, *, dim: int, confirm: Callable[[], None]) -> None:
        self._uploader = uploader
        self._confirm = confirm
        self._dim = dim
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[None], frozenset[str]]] = deque()
        self._failure: BaseException | None = None

    def __enter__(self) -> ServerWriter:
        self._pool = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="pearl-qdrant-upload")
        return self

    def __exit__(self, *exc_info: object) -> None:
        pool, failed = self._pool, exc_info[0] is not None
        if pool is None or not self._uploader.guard.is_owner:  # a forked process has none of the threads
            return
        try:
            if not failed:
                self.flush()
        finally:
            self._pool = None
            self._uploader.cancelled.set()  # after a flush without errors there is nothing left to stop
            pool.shutdown(wait=True, cancel_futures=True)
            self._pending.clear()

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        pool = self._open_pool()
        self._collect(block_above=_IN_FLIGHT)
        checked = check_points(points, vectors, encodable, dim=self._dim)
        for batch in self._uploader.batches(checked):
            ids = frozenset(point.id for point in batch)
            # The later write of a point must win: wait if a batch with the same point is still on its way.
            if any(not ids.isdisjoint(others) for _, others in self._pending):
                self._collect(block_above=0)
            self._collect(block_above=_IN_FLIGHT - 1)
            self._pending.append((pool.submit(self._uploader.send, batch), ids))

    def flush(self) -> None:
        self._open_pool()
        self._collect(block_above=0)
        self._confirm()

    def _open_pool(self) -> ThreadPoolExecutor:
        self._uploader.guard.check()
        if self._pool is None:
            name = self._uploader.collection
            raise StoreClosedError(f"The writer of collection '{name}' is not open: use it in a with statement.")
        return self._pool

    def _collect(self, *, block_above: int) -> None:
        """Remove finished batches from the queue; wait until at most `block_above` are left. Raises the first error."""
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
