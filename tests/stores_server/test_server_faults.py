"""Requests to a server that fail or is down: what is tried again, for how long, and what is said."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from cli_runner import Run
from double_fixtures import connect
from edge_cases import wait_until
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from server_cases import ANY, NAME, ids_in, load, points_of
from store_cases import DIM, manifest_of

from pearl_qdrant.errors import CollectionExistsError, StoreError, StoreRejectedError, StoreUnavailableError
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.versions import MANIFEST_KEY

PASSING = {
    "applied, then dropped": Fault("apply_then_drop"),
    "dropped": Fault("drop"),
    "500": Fault("status", status=500),
    "503": Fault("status", status=503),
    "408": Fault("status", status=408),
    "429": Fault("status", status=429),
    "429 with seconds": Fault("status", status=429, retry_after="1"),
    "429 with a date": Fault("status", status=429, retry_after="Thu, 01 Jan 2026 00:00:09 GMT"),
    "429 with nonsense": Fault("status", status=429, retry_after="soon"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_load_survives_transient_faults(double: QdrantDouble, collection: Collection, fault: Fault) -> None:
    """If some requests of a load fail for a moment, every point is still stored once."""
    double.faults = [fault] * 3

    load(collection, 300)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(300)[0])
    assert collection.count() == 300


@pytest.mark.parametrize("fault", [Fault("delay", seconds=1.5), Fault("hang")], ids=["late answer", "no answer"])
def test_a_load_survives_a_time_out(double: QdrantDouble, collection: Collection, fault: Fault) -> None:
    """A request without an answer in time is sent again, and every point is stored once."""
    impatient = connect(double.url, timeout=1.0, tries=10, first_wait_s=0.01).open(NAME)
    double.faults = [fault]

    load(impatient, 150)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(150)[0])


def test_a_create_does_not_take_over_another_collection(double: QdrantDouble, store: Store) -> None:
    """A retried create does not take over a collection that another program created meanwhile."""
    double.faults = [Fault("drop", match="PUT /collections/toy$")]

    def somebody_else() -> None:
        other = {MANIFEST_KEY: manifest_of().model_copy(update={"kb": "other"}).model_dump(mode="json")}
        size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        double.client.create_collection(NAME, vectors_config={"dense": size}, metadata=other)
        double.schema[NAME], double.config[NAME] = {}, {}

    double.before_fault = somebody_else

    with pytest.raises(CollectionExistsError):
        store.create(manifest_of())


SHARD_AWAY = (
    "Service internal error: 1 of 1 read operations failed: Service internal error: Failed to connect to "
    "http://qdrant-2:6335/, error: tonic::transport::Error(Transport, ...)"
)
AT_ONCE = {"tries": 2, "first_wait_s": 1000.0, "max_wait_s": 1000.0, "budget_s": 10.0}
SOON = {"first_wait_s": 0.001, "max_wait_s": 0.01, "connect_budget_s": 0.0}


@pytest.mark.parametrize(
    "policy, fault, n_faults, n_requests, error, message",
    [
        pytest.param({}, Fault("status", ANY), 10, 4, StoreUnavailableError, r"4 tries .*503.*compose up", id="down"),
        pytest.param(
            *({"tries": 10, "first_wait_s": 0.4, "budget_s": 0.1}, Fault("status", ANY), 10, 1),
            *(StoreUnavailableError, "1 try"),
            id="no wait starts that would end after the budget",
        ),
        *(
            pytest.param(
                {}, Fault("status", ANY, status, error="no such luck"), 1, 1, StoreRejectedError, said, id=said
            )
            for status, said in ((one, f"{one}.*no such luck") for one in (400, 401, 403, 404, 409, 422))
        ),
        pytest.param(SOON, Fault("status", ANY), 12, 13, None, "", id="busy: fails soon only if nothing listens"),
        pytest.param(SOON, Fault("drop", ANY), 1, 2, None, "", id="one failed try"),
        pytest.param(AT_ONCE, Fault("status", ANY, 500, error=SHARD_AWAY), 1, 2, None, "", id="another has the shard"),
    ],
)
def test_a_request_is_tried_again_where_that_helps(
    double: QdrantDouble,
    collection: Collection,
    caplog: pytest.LogCaptureFixture,
    policy: dict[str, float],
    fault: Fault,
    n_faults: int,
    n_requests: int,
    error: type[StoreError] | None,
    message: str,
) -> None:
    """What is refused is sent once; what may pass is sent again within tries and time, which the error names. One
    failure is not logged.
    """
    asked = connect(double.url, **policy).open(NAME)
    double.faults, n_before = [fault] * n_faults, len(double.requests)
    with caplog.at_level(logging.WARNING), pytest.raises(error, match=message) if error else nullcontext() as caught:
        assert asked.count() == 0

    assert len(double.requests) - n_before == n_requests
    assert n_faults > 1 or not caplog.records
    if error is StoreUnavailableError:
        assert (caught.value.url, caught.value.tries) == (double.url, n_requests)


def test_retry_after_is_kept_up_to_a_limit(double: QdrantDouble, collection: Collection) -> None:
    """A wait that the server requests is kept, but not for an hour."""
    double.faults = [Fault("status", match=ANY, status=429, retry_after="3600")]
    patient = connect(double.url, tries=2, first_wait_s=0.001, max_retry_after_s=0.3)
    began = time.monotonic()

    assert patient.collections() == [NAME]
    assert 0.3 <= time.monotonic() - began < 3000


def test_waits_grow_and_are_jittered() -> None:
    """Waits double up to a limit and differ between clients; a wait that the server requests is a lower bound."""
    policy = RetryPolicy(first_wait_s=0.5, max_wait_s=4.0, max_retry_after_s=30.0)

    for failures, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (9, 4.0)):
        waits = [policy.wait_s(failures, None) for _ in range(50)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1
    assert 10.0 <= policy.wait_s(1, 10.0) <= 10.5
    assert 30.0 <= policy.wait_s(1, 3600.0) <= 30.5
    assert 0.0 <= policy.wait_s(1, -5.0) <= 0.5
    with pytest.raises(ValueError, match="tries"):
        RetryPolicy(tries=0)


def quick(wait_s: float) -> dict[str, float]:
    """The policy of a load, with waits of milliseconds."""
    return {"first_wait_s": 0.01, "max_wait_s": 0.05, "budget_s": wait_s, "connect_budget_s": wait_s}


def test_a_load_outlives_a_restart_of_the_server(double: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """If a server restarts during a load, no name is lost, and one warning is logged."""
    collection = connect(double.url, **quick(300.0)).create(manifest_of())

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


def test_ingest_waits_as_long_as_its_option_says(run: Run, tmp_path: Path, model: Path) -> None:
    """`ingest --set wait_s=0` fails at the first refusal, and its message names no wait of minutes."""
    base = tmp_path / "base.tsv"
    base.write_text("E1\tname\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody_listens = f"http://127.0.0.1:{free.getsockname()[1]}"
    outcome = run("ingest", str(base), "--model", str(model), "--store", nobody_listens, "--set", "wait_s=0")

    assert outcome.status == 1
    assert "did not answer after 1 try" in " ".join(outcome.err.split())
    assert "refused" in outcome.err


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
        store = connect(f"http://127.0.0.1:{listening.getsockname()[1]}", **quick(60.0))
        with pytest.raises(StoreRejectedError, match=r"speaks no HTTP.*6333; 6334 is that of gRPC"):
            store.collections()
        store.close()
        assert len(accepted) == 1
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_too_few_files_here_are_no_fault_of_the_server(double: QdrantDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process may open no more files, that is said at once: the server need not be started."""
    store = connect(double.url, **quick(60.0))
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
