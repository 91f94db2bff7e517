"""A Qdrant server for tests: real HTTP in front of qdrant-client's local mode, with scripted faults.

It answers qdrant-client's REST requests from one `QdrantClient(":memory:")` under one lock. It adds what
local mode lacks: the payload schema, strict mode (no filter on a field without an index), a limit of points or bytes in
a request, and an optimizer that is busy for a few polls after indexing is switched on. The next request that matches an
entry of `faults` uses it up.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, final
from urllib.parse import unquote

from qdrant_client import QdrantClient, models
from qdrant_double_cluster import Cluster
from qdrant_double_http import Fault, Kind, Listener, Refused
from qdrant_double_limits import Gate
from qdrant_double_routes import BY_NAME_ALONE, MAY_BE_ABSENT, ROUTES
from qdrant_double_shards import SHARD_ROUTES


@final
class QdrantDouble(Listener):
    """The double; a context manager that serves on a free port of 127.0.0.1.

    Attributes:
        faults: Scripted faults, first match first.
        requests: "METHOD /path" of all requests, in order of arrival.
        upsert_sizes: Points of each upsert that was applied, in order.
        headers: Headers of the last request, with lower-case names.
        path: Path of the request that is being answered.
        n_compressed: How many answers were compressed.
        n_hung: How many requests a fault left without an answer.
        before_fault: Called, once a fault is due, before it happens.
        strict: Refuse filters on fields without an index.
        limits: Limits of strict mode by the server's names; reported with the collection, and enforced.
        n_refused: Requests refused because of `limits`.
        drop_every: Every n-th request fails: in turn before it is applied, after it, and with a 503.
        max_points, max_bytes: A larger upsert is answered with 413.
        optimizer_polls: The optimizer is busy for this many polls after indexing is switched on.
        optimizer_error: Error that the optimizer reports.
        version, read_only, replica_states: Facts that it reports about itself and replicas on another node.
        cluster_state: Nodes and shards.
        snapshots, shard_snapshots: Backups by name.
        segment_version: What the segments of its shards are said to be; None: as the engine writes them.
        gate: The key, bytes and rates that it lets through.
        prefix: Path before all others, as behind a proxy.
        spoils_snapshots: Whether what is downloaded of a shard has a wrong byte.
        created: The request that created each collection.
        schema, config: Payload indexes and optimizer settings by collection.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.client = QdrantClient(":memory:")
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        super().__init__(self, tls)
        self.reset()

    def reset(self) -> None:
        """Forget everything; starting a new client in local mode would take a fifth of a second."""
        self.stopping.set()  # ends requests that hang
        self.stopping = threading.Event()
        for collection in self.client.get_collections().collections:
            self.client.delete_collection(collection.name)
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.upsert_sizes: list[int] = []
        self.headers: dict[str, str] = {}
        self.path = ""
        self.n_compressed = 0
        self.n_hung = 0
        self.before_fault: Callable[[], None] | None = None
        self.strict = False
        self.limits: dict[str, Any] = {}
        self.n_refused = 0
        self.drop_every = 0
        self.max_points: int | None = None
        self.max_bytes: int | None = None
        self.optimizer_polls = 0
        self.optimizer_error: str | None = None
        self.snapshots: dict[str, bytes] = {}
        self.shard_snapshots: dict[str, bytes] = {}
        self.segment_version: str | None = None
        self.spoils_snapshots = False
        self.prefix = ""
        self.gate = Gate()
        self.version = "1.19.0"
        self.read_only = False
        self.cluster_state = Cluster()
        self.replica_states: list[str] = []
        self.schema: dict[str, dict[str, str]] = {}
        self.created: dict[str, dict[str, Any]] = {}
        self.config: dict[str, dict[str, Any]] = {}
        self.busy: dict[str, int] = {}

    def __enter__(self) -> QdrantDouble:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self.client.close()

    def start(self) -> None:
        """Listen; after `stop` on the same port again, with all points."""
        if self._server.is_closed:
            self.stopping = threading.Event()
        super().start()

    def stop(self) -> None:
        """Close all connections, and accept no new ones."""
        self.stopping.set()
        super().stop()

    def take_fault(self, request: str) -> Fault | None:
        """Return the fault for this request, and use it up."""
        with self.lock:
            if self.drop_every and len(self.requests) % self.drop_every == 0:
                kinds: tuple[Kind, ...] = ("drop", "apply_then_drop", "status")
                return Fault(kinds[len(self.requests) // self.drop_every % len(kinds)])
            for fault in self.faults:
                if re.match(fault.match, request):
                    self.faults.remove(fault)
                    if self.before_fault is not None:
                        self.before_fault()
                    return fault
        return None

    def check(self, headers: Mapping[str, str], n_bytes: int) -> None:
        """Refuse what the gate does not let through."""
        with self.lock:
            self.gate.check(headers, n_bytes)

    def check_exact(self, is_exact: bool | None) -> None:
        """Refuse an exact count or facet where strict mode allows none."""
        if is_exact and self.limits.get("search_allow_exact") is False:
            self.n_refused += 1
            raise Refused(400, "Bad request: Exact search disabled!. Help: Set exact=false.")

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """Return the `result` for a request; raises `Refused`."""
        for route_method, pattern, handle in (*ROUTES, *SHARD_ROUTES):
            match = re.fullmatch(pattern, path)
            if route_method == method and match:
                name = unquote(match.groupdict().get("name", ""))
                if handle not in BY_NAME_ALONE:
                    aliases = self.client.get_aliases().aliases if name else []
                    name = next((one.collection_name for one in aliases if one.alias_name == name), name)
                with self.lock:
                    if name and not self.client.collection_exists(name) and handle not in MAY_BE_ABSENT:
                        raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
                    self.path = path
                    try:
                        return handle(self, name, body)
                    except ValueError as error:
                        raise Refused(400, f"Bad request: {error}") from error
        raise Refused(404, "")

    def check_limit(self, name: str, value: float | None, called: str) -> None:
        """Refuse more than a limit of strict mode, in the server's words."""
        limit = self.limits.get(name)
        if limit is not None and value is not None and value > limit:
            self.n_refused += 1
            raise Refused(
                400,
                f'Bad request: Limit exceeded {value} > {limit} for "{called}". Help: Reduce the "{called}" parameter.',
            )

    def check_filter(self, name: str, wanted: models.Filter | None) -> None:
        """Refuse a filter on a field without an index, as strict mode does, and a condition that is too large."""
        for size in _condition_sizes(wanted):
            self.check_limit("condition_max_size", size, "condition limit")
        if not self.strict or wanted is None:
            return
        for key, kind in _filter_keys(wanted):
            if self.schema.get(name, {}).get(key) != kind:
                raise Refused(
                    400,
                    f'Bad request: Index required but not found for "{key}" of one of the following types: [{kind}]. '
                    "Help: Create an index for this key or use a different filter.",
                )


def _condition_sizes(condition: Any) -> list[int]:
    """Values of each condition in a filter."""
    if isinstance(condition, models.Filter):
        parts = [part for clause in (condition.must, condition.should, condition.must_not) for part in clause or []]
        return [size for part in parts for size in _condition_sizes(part)]
    if isinstance(condition, models.HasIdCondition):
        return [len(condition.has_id)]
    match = getattr(condition, "match", None)
    return [len(match.any)] if isinstance(match, models.MatchAny) else []


def _filter_keys(condition: Any) -> list[tuple[str, str]]:
    """(field, kind of index) of all conditions in a filter."""
    if isinstance(condition, models.Filter):
        parts = [part for clause in (condition.must, condition.should, condition.must_not) for part in clause or []]
        return [key for part in parts for key in _filter_keys(part)]
    if isinstance(condition, models.FieldCondition):
        is_bool = isinstance(condition.match, models.MatchValue) and isinstance(condition.match.value, bool)
        return [(condition.key, "bool" if is_bool else "keyword")]
    if isinstance(condition, models.IsEmptyCondition):
        return [(condition.is_empty.key, "keyword")]
    return []
