"""A server that answers Qdrant's REST queries from an embedded collection, and from memory when they repeat.

    python benchmarks/replay_server.py STORE COLLECTION PORT

The embedded engine answers a query body once; its answer is kept as bytes and sent again for the same body. So a second
run over the same mentions measures the client alone. If the client accepts compressed answers, this server does what
real ones were seen to do: it sends a chunked answer in two packets, the last of which waits for an acknowledgement that
the client's kernel delays by 40 ms. Writes are accepted and discarded.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.search import run_queries
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import FILTER_FIELD, LEXICAL
from pearl_qdrant.store.search import NameQuery

_PACKED = re.compile(rb"accept-encoding:[^\r]*(gzip|deflate|br|zstd)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Answers:
    """Answers to requests, with a cache for queries."""

    def __init__(self, collection: EdgeCollection) -> None:
        self._collection = collection
        self._kept: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def answer(self, request: bytes, body: bytes) -> bytes:
        """The body of the answer to a request line and its body."""
        if b"/points/query/batch" in request:
            kept = self._kept.get(body)
            if kept is None:
                with self._lock:
                    kept = self._kept[body] = _result([{"points": one} for one in self._query(json.loads(body))])
            return kept
        if b"/points/scroll" in request:
            return _result({"points": []})
        if request.startswith(b"GET"):
            return _result(self._description())
        if request.startswith(b"PATCH"):
            return _result(True)
        return _result({"operation_id": 0, "status": "completed"})

    def _query(self, asked: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Results of one request, which has several queries under one type filter."""
        searches, types = asked["searches"], ()
        for search in searches:
            for condition in (search.get("filter") or {}).get("must", ()):
                if condition.get("key") == FILTER_FIELD:
                    types = tuple(condition["match"]["any"])
        folder = self._collection._folder
        wanted = edge_shard.type_filter(types) if types else None
        points = run_queries(folder, [_name_query(search) for search in searches], query_filter=wanted)
        return [
            [
                {
                    "id": str(point.id),
                    "version": 0,
                    "score": point.score,
                    **({"payload": self._collection._read(point.payload).to_payload()} if point.payload else {}),
                }
                for point in found
            ]
            for found in points
        ]

    def _description(self) -> dict[str, Any]:
        """The collection, as `GET /collections/NAME` describes it."""
        manifest = self._collection.manifest
        metadata = {"pearl_qdrant": manifest.model_dump(mode="json", exclude={"checkpoints"})}
        return {
            "status": "green",
            "optimizer_status": "ok",
            "indexed_vectors_count": self._collection.count(),
            "points_count": self._collection.count(),
            "segments_count": 1,
            "payload_schema": {},
            "config": {
                "params": {
                    "vectors": {"dense": {"size": manifest.dim, "distance": "Cosine"}},
                    "sparse_vectors": {LEXICAL: {"modifier": "idf"}},
                },
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                    "indexing_threshold": 10000,
                },
                "metadata": metadata,
            },
        }


def _name_query(search: dict[str, Any]) -> NameQuery:
    query, ids = search["query"], None
    query = query.get("nearest", query) if isinstance(query, dict) else query
    for condition in (search.get("filter") or {}).get("must", ()):
        ids = frozenset(condition["has_id"]) if "has_id" in condition else ids
    has_payload = search.get("with_payload") not in (None, False)
    if isinstance(query, dict):
        row = np.array(query["indices"], dtype=np.uint32), np.array(query["values"], dtype=np.float32)
        return NameQuery(search["limit"], lexical=row, ids=ids, has_payload=has_payload)
    vector = np.array(query, dtype=np.float32)
    return NameQuery(search["limit"], vector=vector, ids=ids, has_payload=has_payload)


def _result(result: Any) -> bytes:
    return json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()


class Connection(socketserver.BaseRequestHandler):
    """One kept-alive connection."""

    def handle(self) -> None:
        answers: Answers = self.server.answers  # type: ignore[attr-defined]
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = self.request.recv(1 << 20)
                if not more:
                    return
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            parts, missing = [body], (int(length[1]) if length else 0) - len(body)
            while missing > 0:
                parts.append(self.request.recv(1 << 20))
                missing -= len(parts[-1])
            self._send(head, answers.answer(head.split(b"\r\n", 1)[0], b"".join(parts)))
            data = b""

    def _send(self, head: bytes, body: bytes) -> None:
        start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        is_packed = _PACKED.search(head) is not None
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not is_packed)
        if not is_packed:
            self.request.sendall(start + b"content-length: %d\r\n\r\n" % len(body) + body)
            return
        packed = gzip.compress(body, 1)
        start += b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        self.request.sendall(start + b"%x\r\n" % len(packed) + packed + b"\r\n")
        self.request.sendall(b"0\r\n\r\n")


class Server(socketserver.ThreadingTCPServer):
    """One thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True


def main(store: str, collection: str, port: str) -> None:
    """Serve until killed."""
    opened = EdgeStore(Path(store)).open(collection)
    with Server(("127.0.0.1", int(port)), Connection) as server:
        server.answers = Answers(opened)  # type: ignore[attr-defined]
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
