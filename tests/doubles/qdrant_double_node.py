"""A further address of a Qdrant double, as a node of a cluster has it: it has the same points, and can stop."""

from __future__ import annotations

import threading

from qdrant_double import QdrantDouble
from qdrant_double_http import DoubleServer, handler_of


class Node:
    """One address.

    Attributes:
        n_connections: Connections that clients have made, before and after a stop.
    """

    def __init__(self, double: QdrantDouble) -> None:
        self._double = double
        self._server = DoubleServer(("127.0.0.1", 0), handler_of(double))
        self._address = self._server.server_address
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._address[1]}"

    @property
    def n_connections(self) -> int:
        """Connections since it was started last."""
        return self._server.n_connections

    def start(self) -> None:
        """Listen; after `stop` on the same port again."""
        if self._server.is_closed:
            self._server = DoubleServer(self._address, handler_of(self._double))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, and accept no new ones."""
        if self._thread is not None:
            self._server.shutdown()
            self._server.close_connections()
            self._server.server_close()
            self._thread.join()
            self._thread = None
