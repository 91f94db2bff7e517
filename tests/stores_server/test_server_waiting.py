"""A server that is down for a while: loads wait for it and log this; a single link fails soon."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cli_runner import Run
from edge_cases import wait_until
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from server_cases import points_of
from store_cases import manifest_of

from pearl_qdrant.errors import StoreError, StoreRejectedError
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    """A server that can be stopped and started."""
    with QdrantDouble() as double:
        yield double


def quick(wait_s: float = 20.0) -> RetryPolicy:
    """The policy of a load, with waits of milliseconds."""
    return RetryPolicy(first_wait_s=0.01, max_wait_s=0.05, budget_s=wait_s, connect_budget_s=wait_s)


def test_a_load_outlives_a_restart_of_the_server(double: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """If a server restarts during a load, no name is lost, and one warning is logged."""
    store, collection = create(double, quick(300.0))

    def restart() -> None:
        wait_until(lambda: any("does not answer" in record.getMessage() for record in caplog.records))
        double.start()

    with caplog.at_level(logging.WARNING), collection.writer() as writer:
        writer.write(*points_of(300))
        writer.flush()
        double.stop()
        waiting = threading.Thread(target=restart)
        waiting.start()
        writer.write(*points_of(300, start=300))
        writer.flush()
        waiting.join()

    assert collection.count() == 600
    said_lines = [record.getMessage() for record in caplog.records]
    assert sum("does not answer" in line and "waiting" in line for line in said_lines) == 1
    assert sum("answers again" in line for line in said_lines) >= 1
    store.close()


def test_a_single_link_waits_for_a_busy_server(double: QdrantDouble) -> None:
    """A link is retried after a 503; it fails soon only if nothing listens."""
    store, collection = create(double, RetryPolicy(first_wait_s=0.001, max_wait_s=0.01, connect_budget_s=0.0))
    double.faults = [Fault("status", match=".*", status=503) for _ in range(12)]

    assert collection.count() == 0
    store.close()


def create(double: QdrantDouble, policy: RetryPolicy) -> tuple[ServerStore, ServerCollection]:
    """An empty collection, opened with this policy."""
    store = ServerStore.connect(double.url, retry=policy)
    return store, store.create(manifest_of())


def test_ingest_waits_as_long_as_its_option_says(run: Run, tmp_path: Path, model: Path) -> None:
    """`ingest --wait 0` fails at the first refusal, and its message names no wait of minutes."""
    base = tmp_path / "base.tsv"
    base.write_text("E1\tname\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody_listens = f"http://127.0.0.1:{free.getsockname()[1]}"
    outcome = run("ingest", str(base), "--model", str(model), "--store", nobody_listens, "--wait", "0")

    assert outcome.status == 1
    assert "did not answer after 1 try" in " ".join(outcome.err.split())
    assert "refused" in outcome.err


def test_one_failed_try_is_not_logged(double: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """A request that succeeds at the second try logs no warning."""
    store, collection = create(double, RetryPolicy(first_wait_s=0.001))
    double.faults = [Fault("drop", match=".*")]
    with caplog.at_level(logging.WARNING):
        assert collection.count() == 0

    assert not caplog.records
    store.close()


SHARD_AWAY = (
    "Service internal error: 1 of 1 read operations failed: Service internal error: Failed to connect to "
    "http://qdrant-2:6335/, error: tonic::transport::Error(Transport, ...)"
)


def test_a_search_that_a_replica_can_answer_is_retried_at_once(double: QdrantDouble) -> None:
    """If one node is down and another has the shard, the second try does not wait."""
    store, collection = create(double, RetryPolicy(tries=2, first_wait_s=1000.0, max_wait_s=1000.0, budget_s=10.0))
    double.faults = [Fault("status", match=".*", status=500, error=SHARD_AWAY)]

    assert collection.count() == 0
    store.close()


def test_a_port_of_another_protocol_is_said_at_once() -> None:
    """What answers on the port of gRPC is no HTTP and never will be: the first try says which port to take."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[int] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                accepted.append(1)
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        store = ServerStore.connect(f"http://127.0.0.1:{listening.getsockname()[1]}", retry=quick(60.0))
        with pytest.raises(StoreRejectedError, match=r"speaks no HTTP.*6333; 6334 is that of gRPC"):
            store.collections()
        store.close()
        assert len(accepted) == 1
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_too_few_files_here_are_no_fault_of_the_server(double: QdrantDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process may open no more files, that is said at once: the server need not be started."""
    store = ServerStore.connect(double.url, retry=quick(60.0))
    tries: list[int] = []

    def refuse(*given: object, **named: object) -> None:
        tries.append(1)
        raise httpx.ConnectError("[Errno 24] Too many open files") from OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(httpx.Client, "send", refuse)
    with pytest.raises(StoreError, match="as many open files as it may have") as told:
        store.collections()
    store.close()

    assert "docker" not in str(told.value)
    assert len(tries) == 1
