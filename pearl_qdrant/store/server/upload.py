"""Upload points to a server: check them, cut them into batches, and send these by a few threads.

qdrant-client's own upload retries without back-off, retries errors that cannot pass, and forks. Batches here have a
limit of points and bytes (a server refuses bodies over 32 MiB), are sent with wait=True, and are halved if the server
finds them too large. Ids are deterministic, so sending a batch twice changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

import msgspec

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import StoreClosedError, StoreRejectedError
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.errors import RequestTooLargeError
from pearl_qdrant.store.server.limits import Limits, at_most
from pearl_qdrant.store.server.points import CheckedPoint, check_payloads, check_points, cut_batches, join

MAX_BATCH_POINTS = 256
"""Qdrant recommends 64 to 256 points in a request."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A quarter of the server's default limit of 32 MiB."""


class _WriteAnswer(msgspec.Struct, gc=False):
    """The answer to a write."""

    result: Any


_read_answer = msgspec.json.Decoder(_WriteAnswer).decode

_IN_FLIGHT = 4
"""Requests in flight, each of at most `MAX_BATCH_BYTES`."""


class Uploader:
    """Sends batches to one collection, and halves those that the server finds too large. Thread-safe.

    Attributes:
        max_points, max_bytes: Limits of a batch; they shrink when the server refuses a batch as too large.
        cancelled: Once set, stops retries.
    """

    def __init__(self, connection: Connection, collection: str, limits: Limits) -> None:
        self.max_points = at_most(MAX_BATCH_POINTS, limits.upsert)
        self.max_bytes = MAX_BATCH_BYTES
        self.cancelled = threading.Event()
        self._connection = connection
        self._collection = collection

    def batches(self, points: Sequence[CheckedPoint]) -> Iterator[list[CheckedPoint]]:
        """Cut points into batches within the current limits."""
        return cut_batches(points, max_points=self.max_points, max_bytes=self.max_bytes)

    def send(self, batch: Sequence[CheckedPoint]) -> None:
        """Store a batch; returns when the server has applied it.

        Raises:
            StoreError: If the server refuses it, or does not answer after all retries.
        """
        self._send(batch, self._upsert)

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of points; returns when the server has applied it. Raises as `send`."""
        for batch in self.batches(check_payloads(points)):
            self._send(batch, self._overwrite)

    def _upsert(self, batch: Sequence[CheckedPoint]) -> object:
        """Send one request."""
        return self._call_rest("PUT", "/collections/{name}/points?wait=true", join(batch, "points"))

    def _overwrite(self, batch: Sequence[CheckedPoint]) -> object:
        """Send one request."""
        return self._call_rest("POST", "/collections/{name}/points/batch?wait=true", join(batch, "operations"))

    def _call_rest(self, method: str, path: str, body: bytes) -> object:
        return self._connection.call_rest(
            method,
            path,
            body,
            collection=self._collection,
            read=_read_answer,
            cancelled=self.cancelled,
        )

    def _send(self, batch: Sequence[CheckedPoint], write: Callable[[Sequence[CheckedPoint]], object]) -> None:
        """Send a batch in one request, or in several if the server finds it too large."""
        # The limits may have shrunk after this batch was cut, when the server refused another one.
        parts = list(cut_batches(batch, max_points=self.max_points, max_bytes=self.max_bytes))
        if len(parts) > 1:
            for part in parts:
                self._send(part, write)
            return
        try:
            write(batch)
        except RequestTooLargeError as error:
            n_bytes = sum(len(point.data) for point in batch)
            if len(batch) == 1:
                raise StoreRejectedError(
                    f"The point of {batch[0].label} alone is too large for the server ({n_bytes:,} bytes): "
                    f"{error} Shorten its payload, or raise the server's request limit."
                ) from error
            if error.limits_points:
                self.max_points = min(self.max_points, (len(batch) + 1) // 2)
            else:
                self.max_bytes = min(self.max_bytes, (n_bytes + 1) // 2)
            half = (len(batch) + 1) // 2
            self._send(batch[:half], write)
            self._send(batch[half:], write)


@final
class ServerWriter:
    """A bulk load by a few threads.

    The threads send a batch while the caller makes the next one. If a batch fails, the next `write` or `flush` raises
    the error, and so does every later one: nothing more is written.
    """

    def __init__(
        self,
        connection: Connection,
        collection: str,
        limits: Limits,
        *,
        dim: int,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self._confirm = confirm
        self._uploader = Uploader(connection, collection, limits)
        self._guard = connection.guard
        self._name = collection
        self._dim = dim
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[None], frozenset[str]]] = deque()
        self._failure: BaseException | None = None

    def __enter__(self) -> ServerWriter:
        self._pool = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="pearl-qdrant-upload")
        return self

    def __exit__(self, *exc_info: object) -> None:
        pool, failed = self._pool, exc_info[0] is not None
        if pool is None or not self._guard.is_owner:  # a forked process has none of the threads
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
        """Submit points; see `protocol.Writer.write`."""
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
        """Return when all points so far are stored; see `protocol.Writer.flush`."""
        self._open_pool()
        self._collect(block_above=0)
        self._confirm()

    def _open_pool(self) -> ThreadPoolExecutor:
        self._guard.check()
        if self._pool is None:
            raise StoreClosedError(f"The writer of collection '{self._name}' is not open: use it in a with statement.")
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
