"""The server adapter when things go wrong: nothing lost, nothing doubled, and an error that says what to do."""

from __future__ import annotations

import contextlib
import email.utils
import gc
import json
import logging
import re
import socket
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import numpy as np
import pytest
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    InvalidPointError,
    ManifestError,
    SettingsError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.lexical import ngrams
from pearl_qdrant.store.retry import GaveUpError, RetryPolicy
from pearl_qdrant.store.schema import Manifest, NamePoint
from pearl_qdrant.store.server.collection import MANIFEST_KEY, ServerCollection
from pearl_qdrant.store.server.errors import retry_after_s
from pearl_qdrant.store.server.indexing import LOAD_KEY, Indexing
from pearl_qdrant.store.server.points import check_points, cut_batches, join
from pearl_qdrant.store.server.store import ServerStore

DIM = 4
NAME = "umls"
KEY = "s3cret-k3y"
QUICK = RetryPolicy(tries=4, first_wait_s=0.002, max_wait_s=0.01, max_retry_after_s=0.02)
ANY = r".*"


@pytest.fixture(scope="module")
def running() -> Iterator[QdrantDouble]:
    """One server for all tests of this file."""
    with QdrantDouble() as started:
        yield started


@pytest.fixture(scope="module")
def shared(running: QdrantDouble) -> Iterator[ServerStore]:
    """One store on it: a client takes a fifth of a second to make."""
    opened = connect(running)
    yield opened
    opened.close()


@pytest.fixture
def double(running: QdrantDouble) -> QdrantDouble:
    """An empty server that does what it is told, strict as a managed one."""
    running.reset()
    running.strict = True
    return running


@pytest.fixture
def store(double: QdrantDouble, shared: ServerStore) -> ServerStore:
    """A store on the empty server."""
    return shared


def connect(double: QdrantDouble, *, timeout: float = 5.0, retry: RetryPolicy = QUICK, **settings: Any) -> ServerStore:
    """A store that does not wait long."""
    indexing = Indexing(poll_s=0.005, stall_s=settings.pop("stall_s", 5.0))
    return ServerStore.connect(double.url, timeout=timeout, retry=retry, indexing=indexing, **settings)


def manifest_of(name: str = NAME, *, dim: int = DIM) -> Manifest:
    """A manifest for tests."""
    return Manifest(collection=name, kb="test", model="toy", weights_hash="sha256:aa", dim=dim, has_head=False)


@pytest.fixture
def collection(double: QdrantDouble, store: ServerStore) -> ServerCollection:
    """An empty collection; the requests that made it are forgotten."""
    created = store.create(manifest_of())
    double.requests.clear()
    return created


def points_of(n: int, *, description: str | None = None) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """Points of one name an entity, with random unit vectors."""
    vectors = np.random.default_rng(0).normal(size=(n, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    made = [
        NamePoint(
            kb="test",
            entity_id=f"E{i}",
            name=f"n{i}",
            canonical_name=f"n{i}",
            is_canonical=True,
            description=description,
        )
        for i in range(n)
    ]
    return made, vectors, np.ones(n, dtype=np.bool_)


def load(collection: ServerCollection, n: int, *, step: int = 100) -> None:
    """Write n points through a writer, in pieces."""
    points, vectors, encodable = points_of(n)
    with collection.writer() as writer:
        for start in range(0, n, step):
            piece = slice(start, start + step)
            writer.write(points[piece], vectors[piece], encodable[piece])


def ids_in(double: QdrantDouble) -> list[str]:
    """Ids of all points that the double holds."""
    return [str(record.id) for record in double.client.scroll(NAME, limit=10_000)[0]]


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
def test_a_load_survives_what_passes(double: QdrantDouble, collection: ServerCollection, fault: Any) -> None:
    """Whatever happens to some requests of a load, every point is stored once."""
    double.faults = [fault(), fault(), fault()]

    load(collection, 300)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(300)[0])
    assert collection.count() == 300


@pytest.mark.parametrize("fault", [Fault("delay", seconds=1.5), Fault("hang")], ids=["late answer", "no answer"])
def test_a_load_survives_a_time_out(double: QdrantDouble, collection: ServerCollection, fault: Fault) -> None:
    """A request that was not answered in time is sent again, done or not, and every point is stored once."""
    impatient = connect(double, timeout=1.0, retry=RetryPolicy(tries=10, first_wait_s=0.01)).open(NAME)
    double.faults = [fault]

    load(impatient, 150)

    assert double.faults == []
    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(150)[0])


@pytest.mark.parametrize("kind", ["apply_then_drop", "drop"])
def test_every_request_may_be_dropped(double: QdrantDouble, store: ServerStore, kind: Any) -> None:
    """Creating, writing, searching, counting and deleting all end well when each first try loses its answer."""
    for method in (r"PUT /collections/umls$", r"PUT .*/index", r"PATCH", POINTS, r"POST .*/delete", r"DELETE", r"GET"):
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


def test_a_create_that_another_won_is_refused(double: QdrantDouble, store: ServerStore) -> None:
    """A retried create does not take over a collection that somebody else made in between."""
    double.faults = [Fault("drop", match="PUT /collections/umls$")]

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
    """After the last try the error says where, how often, how long and what came last."""
    double.faults = [Fault("status", match=ANY, status=503)] * 10

    with pytest.raises(StoreUnavailableError, match=r"4 tries .*503.*docker compose up") as caught:
        collection.count()

    assert caught.value.url == double.url
    assert caught.value.tries == 4
    assert len(double.requests) == 4


def test_nobody_listening(double: QdrantDouble) -> None:
    """A port where nothing listens gives the same error, with the connection refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = ServerStore.connect(f"http://127.0.0.1:{port}", retry=QUICK)

    with pytest.raises(StoreUnavailableError, match="refused"):
        store.collections()
    store.close()


def test_a_server_that_hangs_is_given_up(double: QdrantDouble, collection: ServerCollection) -> None:
    """A server that accepts and never answers costs the time-out a try, and then an error."""
    double.faults = [Fault("hang", match=ANY)] * 10
    double.requests.clear()

    with pytest.raises(StoreUnavailableError, match="timeout"):
        connect(double, timeout=0.1, retry=RetryPolicy(tries=3, first_wait_s=0.01)).collections()

    assert len(double.requests) == 3


def test_the_budget_ends_the_tries(double: QdrantDouble, store: ServerStore) -> None:
    """No wait begins that would end after the budget."""
    double.faults = [Fault("status", match=ANY)] * 10
    double.requests.clear()

    with pytest.raises(StoreUnavailableError):
        connect(double, retry=RetryPolicy(tries=10, first_wait_s=0.4, budget_s=0.1)).collections()

    assert len(double.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_what_cannot_heal_is_not_tried_again(double: QdrantDouble, collection: ServerCollection, status: int) -> None:
    """A refused request is sent once, and the server's words are passed on."""
    double.faults = [Fault("status", match=ANY, status=status, error="no such luck")]

    with pytest.raises(StoreRejectedError, match=rf"{status}.*no such luck"):
        collection.count()

    assert len(double.requests) == 1


def test_retry_after_is_honoured_up_to_a_cap(double: QdrantDouble, collection: ServerCollection) -> None:
    """A wait that the server asks for is kept, but not for an hour."""
    double.faults = [Fault("status", match=ANY, status=429, retry_after="3600")]
    patient = connect(double, retry=RetryPolicy(tries=2, first_wait_s=0.001, max_retry_after_s=0.3))
    began = time.monotonic()

    assert patient.collections() == [NAME]
    assert 0.3 <= time.monotonic() - began < 3000


def test_retry_after_is_read_in_all_its_forms(double: QdrantDouble) -> None:
    """Seconds, a date, or neither."""
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    client = QdrantClient(url=double.url, check_compatibility=False)
    read = []
    for value in ("7", "Thu, 01 Jan 2026 00:00:09 GMT", "soon", None):
        double.faults = [Fault("status", match=ANY, status=429, retry_after=value)]
        with pytest.raises(Exception) as caught:  # noqa: PT011  the client's errors have no common base
            client.get_collections()
        read.append(retry_after_s(caught.value, now))
    client.close()

    assert read == [7.0, 9.0, None, None]


def test_waits_grow_and_are_jittered() -> None:
    """Waits double up to a cap and differ from client to client; a server's wish is a lower bound."""
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
    """Whoever breaks off a load neither waits for the next try nor makes it."""
    cancelled = threading.Event()
    waits_for_ever = RetryPolicy(first_wait_s=1e6, max_wait_s=1e6, budget_s=1e9)
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise ConnectionError("down")

    with pytest.raises(GaveUpError, match=r"gave up after 1 tries.*down"):
        waits_for_ever.call(fail, lambda error: True, on_wait=lambda *_: cancelled.set(), cancelled=cancelled)
    assert len(tries) == 1


@pytest.mark.parametrize("cancels", [False, True])
def test_a_failure_that_was_tried_again_keeps_nothing_alive(cancels: bool) -> None:
    """An error knows the frames that it went through, a connection's too: they go with the last reference."""

    class Held:
        pass

    def call() -> weakref.ref[Held]:
        held, failed, cancelled = Held(), [], threading.Event()

        def request() -> None:
            if not failed:
                failed.append(True)
                raise ConnectionError(held)

        def stop(*_: object) -> None:
            if cancels:
                cancelled.set()

        with contextlib.suppress(GaveUpError):
            RetryPolicy(first_wait_s=0.001).call(request, lambda error: True, on_wait=stop, cancelled=cancelled)
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


def test_a_batch_too_large_is_halved_until_it_passes(double: QdrantDouble, collection: ServerCollection) -> None:
    """A server that takes few points a request gets them all, and is not asked again with too many."""
    double.max_points = 40

    load(collection, 600, step=300)

    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(600)[0])
    assert max(double.upsert_sizes) <= 40
    n_upserts = sum(request.startswith("PUT") and request.endswith("/points") for request in double.requests)
    assert n_upserts - len(double.upsert_sizes) <= 2 * 3  # refused: 256, 128 and 64, by either thread


def test_a_server_that_takes_few_bytes_is_not_asked_again_with_too_many(
    double: QdrantDouble, collection: ServerCollection
) -> None:
    """A limit of bytes bounds the bytes of later batches, and not their points: short names still go many at once."""
    double.max_bytes = 20_000
    points, vectors, encodable = points_of(400)
    large = points_of(200, description="x" * 500)[0]
    with collection.writer() as writer:
        writer.write(large, vectors[:200], encodable[:200])
        writer.write(points[200:], vectors[200:], encodable[200:])
    n_upserts = sum(request.startswith("PUT") and request.endswith("/points") for request in double.requests)
    refused = n_upserts - len(double.upsert_sizes)

    assert sorted(ids_in(double)) == sorted(p.id for p in points)
    assert refused <= 2 * 4  # 200 points of 140 KB in all: halved four times, by either thread
    assert max(double.upsert_sizes) > 2 * min(double.upsert_sizes)


def test_a_batch_limit_of_strict_mode_halves_too(double: QdrantDouble, collection: ServerCollection) -> None:
    """Strict mode's own limit of points a request is no reason to fail."""
    error = 'Bad request: Limit exceeded 100 > 60 for "upsert limit". Help: Reduce the "upsert limit" parameter.'
    double.faults = [Fault("status", status=400, error=error)]

    load(collection, 100)

    assert double.upsert_sizes == [50, 50]


def test_a_point_too_large_on_its_own_is_named(double: QdrantDouble, collection: ServerCollection) -> None:
    """Where one point alone is too large, the error names it, and its neighbours are stored."""
    double.max_bytes = 2000
    points, vectors, encodable = points_of(3)
    points[1] = points_of(2, description="x" * 3000)[0][1]

    with pytest.raises(StoreRejectedError, match=r"'n1' \(entity E1\) alone is too large"):
        collection.upsert(points, vectors, encodable)

    assert collection.find(entity_ids=["E0"], limit=1) != []


def test_an_error_of_a_load_surfaces_and_stays(double: QdrantDouble, collection: ServerCollection) -> None:
    """A batch that failed for good is reported by the next write or flush, and by each one after it."""
    points, vectors, encodable = points_of(10)
    double.faults = [Fault("status", status=422, error="poison")]

    def load_on() -> None:
        with collection.writer() as writer:
            writer.write(points, vectors, encodable)
            with pytest.raises(StoreRejectedError, match="poison"):
                writer.flush()
            with pytest.raises(StoreRejectedError, match="poison"):
                writer.write(points, vectors, encodable)

    with pytest.raises(StoreRejectedError, match="poison"):
        load_on()

    assert collection.count() == 0


def test_leaving_a_load_normally_reports_its_last_error(double: QdrantDouble, collection: ServerCollection) -> None:
    """An error of the very last batch does not go unnoticed."""

    def load_last() -> None:
        with collection.writer() as writer:
            writer.write(*points_of(10))

    double.faults = [Fault("status", status=422, error="poison")]
    with pytest.raises(StoreRejectedError, match="poison"):
        load_last()


def test_breaking_off_a_load_does_not_wait_for_a_dead_server(
    double: QdrantDouble, collection: ServerCollection
) -> None:
    """Ctrl-C while the server is down ends the program, not the tries."""
    double.faults = [Fault("status")] * 100
    waits_for_ever = RetryPolicy(tries=50, first_wait_s=1e6, max_wait_s=1e6, budget_s=1e9)
    stubborn = connect(double, retry=waits_for_ever).open(NAME)

    def broken_off() -> None:
        with stubborn.writer() as writer:
            writer.write(*points_of(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()


def test_two_writes_of_one_point_do_not_overtake_each_other(double: QdrantDouble, collection: ServerCollection) -> None:
    """Though two threads upload, the later write of a name counts, even if the earlier one is retried."""
    slow = connect(double, retry=RetryPolicy(tries=3, first_wait_s=0.4)).open(NAME)
    double.faults = [Fault("drop")]
    old, vectors, encodable = points_of(5, description="old")
    new, _, _ = points_of(5, description="new")

    with slow.writer() as writer:
        writer.write(old, vectors, encodable)
        writer.write(new, vectors, encodable)

    assert {p.description for p in slow.scroll()} == {"new"}


def test_a_write_returns_while_the_server_works(
    double: QdrantDouble, store: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch can be encoded while the last one is stored."""
    store.create(manifest_of())
    collection = connect(double, timeout=300.0).open(NAME)
    may_store, answer = threading.Event(), double.answer

    def answer_later(command: str, path: str, body: bytes) -> Any:
        if re.search(POINTS, f"{command} {path}"):
            may_store.wait(300)
        return answer(command, path, body)

    monkeypatch.setattr(double, "answer", answer_later)
    with collection.writer() as writer:
        writer.write(*points_of(10))
        before = ids_in(double)
        may_store.set()
        writer.flush()

    assert before == []
    assert len(ids_in(double)) == 10


def test_batches_are_bounded_by_points_and_bytes() -> None:
    """No request holds more than either bound, unless one point alone is over it."""
    points, vectors, encodable = points_of(100)
    points[50] = points_of(51, description="x" * 5000)[0][50]
    checked = check_points(points, vectors, encodable, manifest_of())

    batches = list(cut_batches(checked, max_points=30, max_bytes=4000))

    assert [p.id for batch in batches for p in batch] == [p.id for p in points]
    assert all(len(batch) <= 30 for batch in batches)
    assert all(len(batch) == 1 or sum(len(p.data) for p in batch) <= 4000 for batch in batches)
    body = json.loads(join(checked, "points"))
    assert [one["id"] for one in body["points"]] == [p.id for p in points]
    assert np.float32(body["points"][0]["vector"]["dense"]).tolist() == vectors[0].tolist()


def test_a_load_that_died_is_seen_and_repaired(double: QdrantDouble, collection: ServerCollection) -> None:
    """After a crash between load and finalize, a new process sees it and finalize repairs it, setting and all."""
    double.config[NAME]["indexing_threshold"] = 12_345
    double.client.update_collection(NAME, metadata={"theirs": 1})
    for _ in range(2):  # a second load over the first one's remains must not forget the setting
        load(collection, 10)
    assert double.config[NAME]["indexing_threshold"] == 0

    reopened = connect(double).open(NAME)
    assert not reopened.status().is_finalized
    assert reopened.search(points_of(1)[1], limit=1)[0][0].point.name == "n0"
    reopened.finalize()

    assert reopened.status().is_finalized
    assert double.config[NAME]["indexing_threshold"] == 12_345
    metadata = double.client.get_collection(NAME).config.metadata or {}
    assert metadata["theirs"] == 1
    assert LOAD_KEY not in metadata
    assert reopened.manifest == manifest_of().as_created()


def test_a_collection_from_before_there_were_n_grams_goes_on(double: QdrantDouble, store: ServerStore) -> None:
    """It opens, is written and searched as ever, by vector alone; one that lost its sparse vectors is refused."""
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    for name, version in ((NAME, None), ("broken", ngrams.VERSION)):
        manifest = manifest_of().model_copy(update={"collection": name, "lexical_version": version})
        metadata = {MANIFEST_KEY: manifest.model_dump(mode="json")}
        double.client.create_collection(name, vectors_config={"dense": size}, metadata=metadata)
        double.schema[name], double.config[name] = {}, {}
    points, vectors, encodable = points_of(20)

    collection = store.open(NAME)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
    collection.finalize()

    rows = ngrams.ngram_rows([point.name for point in points])
    hits = collection.search_hybrid(vectors, rows, limit=1, lexical_limit=5)
    assert [len(row) for row in hits] == [1] * 20
    assert collection.status().indexed_vectors == 20
    with pytest.raises(ManifestError, match="sparse vectors 'lexical'"):
        store.open("broken")


def test_finalize_waits_for_the_optimizer(double: QdrantDouble, collection: ServerCollection) -> None:
    """Finalize returns when the graph is there, and tells how far it is."""
    double.optimizer_polls = 6
    progress: list[tuple[int, int]] = []
    load(collection, 20)

    collection.finalize(lambda done, total: progress.append((done, total)))

    assert progress[0] == (0, 20)
    assert progress[-1] == (20, 20)
    assert collection.status().indexed_vectors == 20


def test_finalize_gives_up_only_without_progress(double: QdrantDouble, collection: ServerCollection) -> None:
    """An optimizer that stands still for long is an error that says how to go on."""
    load(collection, 20)
    stuck = connect(double, stall_s=0.1).open(NAME)
    double.faults = [Fault("status", match="GET .*/optimizations", status=404)] * 10_000
    double.optimizer_polls = 10_000

    with pytest.raises(StoreError, match=r"0 of 20 vectors.*collections finalize umls"):
        stuck.finalize()


def test_an_optimizer_that_failed_is_reported(double: QdrantDouble, collection: ServerCollection) -> None:
    """What the server's optimizer failed with is passed on."""
    double.optimizer_error = "segment is corrupt"
    with pytest.raises(StoreRejectedError, match="segment is corrupt"):
        collection.finalize()
    double.optimizer_error = "No space left on device"
    with pytest.raises(StoreFullError):
        collection.finalize()


def test_a_full_disk_is_told_at_once(double: QdrantDouble, collection: ServerCollection) -> None:
    """A full disk comes as a 500, but is not tried again."""
    double.faults = [Fault("status", status=500, error="Service internal error: No space left on device")]

    with pytest.raises(StoreFullError, match=double.url):
        collection.upsert(*points_of(1))

    assert len(double.requests) == 1


def test_missing_payload_indexes_are_explained_and_repaired(double: QdrantDouble, collection: ServerCollection) -> None:
    """Strict mode's refusal says which command makes the indexes, and that command does."""
    collection.upsert(*points_of(3))
    double.schema[NAME].pop("filter_types")

    with pytest.raises(StoreRejectedError, match="collections finalize umls"):
        collection.search(points_of(1)[1], limit=1, types=("ORG",))
    collection.finalize()

    assert collection.search(points_of(1)[1], limit=1, types=("ORG",)) == [[]]


def test_a_server_without_metadata_is_refused_and_left_clean(double: QdrantDouble, store: ServerStore) -> None:
    """A server too old to keep the manifest gets no half-made collection."""
    double.keeps_metadata = False

    with pytest.raises(StoreRejectedError, match=r"1\.16"):
        store.create(manifest_of())

    assert store.collections() == []


def test_something_else_than_qdrant(double: QdrantDouble, store: ServerStore) -> None:
    """A web server that is no Qdrant is recognised as such, at the first try."""
    double.faults = [Fault("status", match=ANY, status=200), Fault("status", match=ANY, status=404, error="nope")]

    for _ in range(2):
        with pytest.raises(StoreRejectedError, match="Is this the URL of a Qdrant server"):
            store.collections()
    assert len(double.requests) == 2


def on_both(double: QdrantDouble) -> list[tuple[ServerStore, QdrantClient]]:
    """The same store in local mode and over HTTP."""
    local = QdrantClient(":memory:")
    return [(ServerStore.from_client(local), local), (connect(double), double.client)]


def test_errors_are_the_same_in_local_mode_and_over_http(double: QdrantDouble) -> None:
    """A collection that vanished or changed its width gives one kind of error, whatever the client raises."""
    for store, behind in on_both(double):
        collection = store.create(manifest_of())
        store.delete(NAME)
        for act in (collection.count, collection.status, lambda c=collection: c.upsert(*points_of(1))):
            with pytest.raises(CollectionNotFoundError, match=NAME):
                act()
        store.create(manifest_of("other"))
        with pytest.raises(CollectionNotFoundError, match="there are: other"):
            collection.search(points_of(1)[1], limit=1)

        wide = {"dense": models.VectorParams(size=DIM + 1, distance=models.Distance.COSINE)}
        behind.create_collection(NAME, vectors_config=wide, metadata={MANIFEST_KEY: manifest_of().model_dump()})
        double.schema[NAME], double.config[NAME] = {}, {}
        with pytest.raises(StoreRejectedError):
            collection.upsert(*points_of(1))
        with pytest.raises(StoreRejectedError):
            collection.search(points_of(1)[1], limit=1)
        with pytest.raises(ManifestError, match="should be 4 dim"):
            store.open(NAME)
        with pytest.raises(StoreRejectedError):
            store.create(manifest_of("no/slash"))
        store.close()
        with pytest.raises(StoreClosedError, match="was closed"):
            store.collections()


def test_a_collection_without_a_manifest_is_refused_but_can_be_deleted(double: QdrantDouble) -> None:
    """What was not made by pearl-qdrant is listed and not opened; deleting it works."""
    for store, behind in on_both(double):
        behind.create_collection(NAME, vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT))
        double.schema[NAME], double.config[NAME] = {}, {}

        with pytest.raises(ManifestError, match=r"umls.*collections delete umls"):
            store.open(NAME)
        assert store.collections() == [NAME]
        store.delete(NAME)
        assert store.collections() == []
        store.close()


def test_bad_points_reach_no_server(double: QdrantDouble, collection: ServerCollection) -> None:
    """What must not be stored is found before anything is sent."""
    points, vectors, encodable = points_of(3)
    vectors[2] = np.inf

    with pytest.raises(InvalidPointError, match=r"'n2' \(entity E2\) holds NaN or infinity"):
        collection.upsert(points, vectors, encodable)

    assert double.requests == []


def test_many_queries_go_in_few_requests(double: QdrantDouble, collection: ServerCollection) -> None:
    """A batch of queries is one request a 64, and one without a vector is not sent."""
    collection.upsert(*points_of(5))
    double.requests.clear()

    collection.search(np.zeros((3, DIM), dtype=np.float32), limit=2)
    assert double.requests == []
    collection.search(points_of(64)[1], limit=2)
    assert len(double.requests) == 1
    collection.search(points_of(65)[1], limit=2)
    assert len(double.requests) == 3


def test_connections_are_kept(double: QdrantDouble, collection: ServerCollection) -> None:
    """Requests one after the other share a connection, on this machine too."""
    collection.count()
    before = double.n_connections

    for _ in range(20):
        collection.count()

    assert double.n_connections == before


def test_the_key_is_sent_and_never_shown(double: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """A key reaches the server, and no error, traceback, representation or log, even where the server echoes it."""
    caplog.set_level(logging.DEBUG)
    store = connect(double, api_key=f"{KEY}\n")
    collection = store.create(manifest_of())
    assert double.headers["api-key"] == KEY
    shown = [repr(store), repr(collection), store.location]

    def fail(fault: Fault) -> None:
        double.faults = [fault] * 9
        with pytest.raises(StoreError) as caught:
            collection.count()
        shown.extend([str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value))])

    fail(Fault("status", match=ANY, status=403, error=f"key {KEY} is not welcome"))
    fail(Fault("status", match=ANY, status=503, error=f"key {KEY} is not welcome"))
    fail(Fault("drop", match=ANY))
    store.close()

    assert not [text for text in [*shown, caplog.text] if KEY in text]
    assert "QDRANT_API_KEY" in shown[3]


@pytest.mark.parametrize(
    "url",
    [
        "http://qdrant.example.org:6333",
        "http://10.0.0.5:6333",
        "http://localhost.example.org:6333",
        "http://127.0.0.1.example.org",
        "http://0.0.0.0:6333",
    ],
)
def test_a_key_is_not_sent_in_plain_text_to_another_host(url: str) -> None:
    """Plain HTTP with a key is refused, except on this machine."""
    with pytest.raises(SettingsError, match="plain HTTP") as caught:
        ServerStore.connect(url, api_key=KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", ["https://qdrant.example.org", "http://localhost:6333", "http://[::1]:6333/"])
def test_a_key_may_go_over_tls_or_loopback(url: str) -> None:
    """TLS, or this machine, may carry a key; so may no key anything."""
    store = ServerStore.connect(url, api_key=KEY)
    assert store.location == url.rstrip("/")
    store.close()
    ServerStore.connect("http://qdrant.example.org:6333", api_key="").close()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6333",
        "ftp://localhost",
        "http://",
        f"http://user:{KEY}@localhost",
        f"http://localhost?api-key={KEY}",
        "http://localhost:port",
    ],
)
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    """A URL without scheme or host, or with a secret in it, is a settings error that does not repeat the secret."""
    with pytest.raises(SettingsError) as caught:
        ServerStore.connect(url)
    assert KEY not in str(caught.value)


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    """A key with control characters is refused without being shown."""
    with pytest.raises(SettingsError, match="QDRANT_API_KEY") as caught:
        ServerStore.connect("https://qdrant.example.org", api_key=f"{KEY}\n{KEY}")
    assert KEY not in str(caught.value)


def test_tls_that_cannot_work_is_not_tried_for_long(double: QdrantDouble) -> None:
    """https:// to a server without TLS fails at the first try and says what to check."""
    double.requests.clear()
    store = ServerStore.connect(double.url.replace("http:", "https:"), retry=RetryPolicy(tries=3, first_wait_s=30.0))
    with pytest.raises(StoreRejectedError, match="https://"):
        store.collections()
    store.close()


def test_a_malformed_answer_is_no_transport_error() -> None:
    """Only what a later try can change is tried again."""
    from pearl_qdrant.store.server.errors import is_transient

    assert is_transient(ResponseHandlingException(httpx.ReadTimeout("")))
    assert is_transient(ResponseHandlingException(httpx.RemoteProtocolError("closed")))
    assert not is_transient(ResponseHandlingException(ValueError("no JSON")))
    assert not is_transient(ResponseHandlingException(httpx.LocalProtocolError("bad header")))
