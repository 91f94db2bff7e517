"""Bulk loads to a server: batches of the right size, errors that stay, and writes in order."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from double_fixtures import connect
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault
from server_cases import NAME, ids_in, load, points_of
from store_cases import manifest_of

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.store import Collection, Store


def test_a_batch_too_large_is_halved_until_it_passes(double: QdrantDouble, collection: Collection) -> None:
    """A server that takes few points in a request gets them all; later requests keep to its limit."""
    double.max_points = 40

    load(collection, 600, step=300)

    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(600)[0])
    assert max(double.upsert_sizes) <= 40
    n_upserts = sum(request.startswith("PUT") and request.endswith("/points") for request in double.requests)
    assert n_upserts - len(double.upsert_sizes) <= 2 * 3  # refused: 256, 128 and 64, by either thread


def test_a_limit_of_bytes_is_kept_by_later_batches(double: QdrantDouble, collection: Collection) -> None:
    """A limit of bytes limits the bytes of later batches, not their points: many short names still go together."""
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


def test_a_batch_limit_of_strict_mode_halves_too(double: QdrantDouble, collection: Collection) -> None:
    """Strict mode's limit of points in a request does not make a load fail."""
    error = 'Bad request: Limit exceeded 100 > 60 for "upsert limit". Help: Reduce the "upsert limit" parameter.'
    double.faults = [Fault("status", status=400, error=error)]

    load(collection, 100)

    assert double.upsert_sizes == [50, 50]


def test_a_point_too_large_on_its_own_is_named(double: QdrantDouble, collection: Collection) -> None:
    """If a single point is too large, the error names it, and its neighbours are stored."""
    double.max_bytes = 2000
    points, vectors, encodable = points_of(3)
    points[1] = points_of(2, description="x" * 3000)[0][1]

    with pytest.raises(StoreRejectedError, match=r"'n1' \(entity E1\) alone is too large"):
        collection.upsert(points, vectors, encodable)

    assert collection.find(entity_ids=["E0"], limit=1) != []


def test_an_error_of_a_load_is_raised_by_all_later_writes(double: QdrantDouble, collection: Collection) -> None:
    """If a batch fails, the next write or flush raises the error, and so does each one after it; or the block's end."""
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
    double.faults = [Fault("status", status=422, error="poison")]
    with pytest.raises(StoreRejectedError, match="poison"):
        load(collection, 10)

    assert collection.count() == 0


def test_stopping_a_load_does_not_wait_for_a_dead_server(double: QdrantDouble, collection: Collection) -> None:
    """Ctrl-C while the server is down ends the program at once."""
    double.faults = [Fault("status")] * 100
    stubborn = connect(double.url, tries=50, first_wait_s=1e6, max_wait_s=1e6, budget_s=1e9).open(NAME)

    def broken_off() -> None:
        with stubborn.writer() as writer:
            writer.write(*points_of(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()


def test_two_writes_of_one_point_do_not_overtake_each_other(double: QdrantDouble, collection: Collection) -> None:
    """Although two threads upload, the later write of a name wins, even if the earlier one is retried."""
    slow = connect(double.url, tries=3, first_wait_s=0.4).open(NAME)
    double.faults = [Fault("drop")]
    old, vectors, encodable = points_of(5, description="old")
    new, _, _ = points_of(5, description="new")

    with slow.writer() as writer:
        writer.write(old, vectors, encodable)
        writer.write(new, vectors, encodable)

    assert {p.description for p in slow.scroll()} == {"new"}


def test_a_write_returns_while_the_server_works(
    double: QdrantDouble, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch can be encoded while the last one is stored."""
    store.create(manifest_of())
    collection = connect(double.url, timeout=300.0).open(NAME)
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
