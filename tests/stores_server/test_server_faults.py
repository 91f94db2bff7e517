"""Requests to a server that fail: what is tried again, for how long, and what the error says."""

from __future__ import annotations

import contextlib
import email.utils
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest
from double_fixtures import QUICK, connect
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault
from server_cases import ANY, NAME, ids_in, load, points_of
from store_cases import DIM, manifest_of

from pearl_qdrant.errors import CollectionExistsError, StoreRejectedError, StoreUnavailableError
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.errors import GaveUpError, RetryPolicy, retry_after_s
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.store.server.versions import MANIFEST_KEY


def http_date(seconds_ahead: float) -> str:
    """A Retry-After date."""
    return email.utils.format_datetime(datetime.now(timezone.utc) + timedelta(seconds=seconds_ahead), usegmt=True)


PASSING: dict[str, Callable[[], Fault]] = {
    "applied, then dropped": lambda: Fault("apply_then_drop"),
    "dropped": lambda: Fault("drop"),
    "500": lambda: Fault("status", status=500),
    "503": lambda: Fault("status", status=503),
    "408": lambda: Fault("status", status=408),
    "429": lambda: Fault("status", status=429),
    "429 with seconds": lambda: Fault("status", status=429, retry_after="1"),
    "429 with a date": lambda: Fault("status", status=429, retry_after=http_date(1)),
    "429 with nonsense": lambda: Fault("status", status=429, retry_after="soon"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_load_survives_transient_faults(double: QdrantDouble, collection: ServerCollection, fault: Any) -> None:
    """If some requests of a load fail for a moment, every point is still stored once."""
    double.faults = [fault(), fault(), fault()]

    load(collection, 300)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(300)[0])
    assert collection.count() == 300


@pytest.mark.parametrize("fault", [Fault("delay", seconds=1.5), Fault("hang")], ids=["late answer", "no answer"])
def test_a_load_survives_a_time_out(double: QdrantDouble, collection: ServerCollection, fault: Fault) -> None:
    """A request without an answer in time is sent again, and every point is stored once."""
    impatient = connect(double.url, timeout=1.0, retry=RetryPolicy(tries=10, first_wait_s=0.01)).open(NAME)
    double.faults = [fault]

    load(impatient, 150)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(150)[0])


@pytest.mark.parametrize("kind", ["apply_then_drop", "drop"])
def test_every_request_may_be_dropped(double: QdrantDouble, store: ServerStore, kind: Any) -> None:
    """Creating, writing, searching, counting and deleting work even if each first try loses its answer."""
    for method in (r"PUT /collections/toy$", r"PUT .*/index", r"PATCH", POINTS, r"POST .*/delete", r"DELETE", r"GET"):
        double.faults += [Fault(kind, match=method)] * 2
    double.faults += [Fault(kind, match=f".*/{what}$") for what in ("query/batch", "count", "scroll", "facet")]

    collection = store.create(manifest_of())
    load(collection, 30)
    collection.finalize()
    hits = collection.search(points_of(30)[1][:1], limit=1, types=())

    assert hits[0][0].point.name == "n0"
    assert [p.name for p in collection.find(names=["n3"], limit=5)] == ["n3"]
    assert sum(collection.type_counts()["types"].values()) == 0
    assert collection.delete_entities(["E1", "E2"]) == 2
    assert collection.count() == collection.count_entities() == 28
    store.delete(NAME)
    assert store.collections() == []
    assert double.faults == []


def test_a_create_does_not_take_over_another_collection(double: QdrantDouble, store: ServerStore) -> None:
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


def test_a_server_that_stays_down_is_named_with_tries_and_time(
    double: QdrantDouble, collection: ServerCollection
) -> None:
    """After the last try the error has the URL, the number of tries, the time and the last failure."""
    double.faults = [Fault("status", match=ANY, status=503)] * 10

    with pytest.raises(StoreUnavailableError, match=r"4 tries .*503.*docker compose up") as caught:
        collection.count()

    assert caught.value.url == double.url
    assert caught.value.tries == 4
    assert len(double.requests) == 4


def test_nobody_listening(double: QdrantDouble) -> None:
    """A port where nothing listens gives the same error, with "connection refused"."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = ServerStore.connect(f"http://127.0.0.1:{port}", retry=QUICK)

    with pytest.raises(StoreUnavailableError, match="refused"):
        store.collections()
    store.close()


def test_a_server_that_hangs_is_given_up(double: QdrantDouble, collection: ServerCollection) -> None:
    """A server that accepts and never answers is an error after the time-outs of all tries."""
    double.faults = [Fault("hang", match=ANY)] * 10
    double.requests.clear()

    with pytest.raises(StoreUnavailableError, match="timeout"):
        connect(double.url, timeout=0.1, retry=RetryPolicy(tries=3, first_wait_s=0.01)).collections()

    assert len(double.requests) == 3


def test_the_budget_ends_the_tries(double: QdrantDouble, store: ServerStore) -> None:
    """No wait starts that would end after the budget."""
    double.faults = [Fault("status", match=ANY)] * 10
    double.requests.clear()

    with pytest.raises(StoreUnavailableError):
        connect(double.url, retry=RetryPolicy(tries=10, first_wait_s=0.4, budget_s=0.1)).collections()

    assert len(double.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_permanent_error_is_not_retried(double: QdrantDouble, collection: ServerCollection, status: int) -> None:
    """A refused request is sent once, and the error has the server's message."""
    double.faults = [Fault("status", match=ANY, status=status, error="no such luck")]

    with pytest.raises(StoreRejectedError, match=rf"{status}.*no such luck"):
        collection.count()

    assert len(double.requests) == 1


def test_retry_after_is_kept_up_to_a_limit(double: QdrantDouble, collection: ServerCollection) -> None:
    """A wait that the server requests is kept, but not for an hour."""
    double.faults = [Fault("status", match=ANY, status=429, retry_after="3600")]
    patient = connect(double.url, retry=RetryPolicy(tries=2, first_wait_s=0.001, max_retry_after_s=0.3))
    began = time.monotonic()

    assert patient.collections() == [NAME]
    assert 0.3 <= time.monotonic() - began < 3000


def test_retry_after_is_read_in_all_its_forms(double: QdrantDouble) -> None:
    """The header may have seconds; a date or another text is no wait."""
    client = QdrantClient(url=double.url, check_compatibility=False)
    read = []
    for value in ("7", "Thu, 01 Jan 2026 00:00:09 GMT", "soon", None):
        double.faults = [Fault("status", match=ANY, status=429, retry_after=value)]
        with pytest.raises(Exception) as caught:  # noqa: PT011  the client's errors have no common base
            client.get_collections()
        read.append(retry_after_s(caught.value))
    client.close()

    assert read == [7.0, None, None, None]


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


def test_a_cancelled_wait_ends_at_once() -> None:
    """If I stop a load, it neither waits for the next try nor makes it."""
    cancelled = threading.Event()
    waits_for_ever = RetryPolicy(first_wait_s=1e6, max_wait_s=1e6, budget_s=1e9)
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise ResponseHandlingException(httpx.ReadTimeout("down"))

    with pytest.raises(GaveUpError, match=r"gave up after 1 tries.*down"):
        waits_for_ever.call(fail, on_wait=lambda *_: cancelled.set(), cancelled=cancelled)
    assert len(tries) == 1


@pytest.mark.parametrize("cancels", [False, True])
def test_a_failure_that_was_tried_again_keeps_nothing_alive(cancels: bool) -> None:
    """An error holds the frames that it passed, and so the connection: both are freed with the last reference."""

    class Held:
        pass

    def call() -> weakref.ref[Held]:
        held, failed, cancelled = Held(), [], threading.Event()

        def request() -> None:
            if not failed:
                failed.append(True)
                raise ResponseHandlingException(httpx.ReadTimeout(repr(held)))

        def stop(*_: object) -> None:
            if cancels:
                cancelled.set()

        with contextlib.suppress(GaveUpError):
            RetryPolicy(first_wait_s=0.001).call(request, on_wait=stop, cancelled=cancelled)
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()
