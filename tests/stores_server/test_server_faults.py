"""Requests to a server that fail: what is tried again, for how long, and what the error says."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from double_fixtures import connect
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from server_cases import ANY, NAME, ids_in, load, points_of
from store_cases import DIM, manifest_of

from pearl_qdrant.errors import CollectionExistsError, StoreRejectedError, StoreUnavailableError
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.errors import RetryPolicy
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
