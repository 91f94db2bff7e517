"""Answers that are not Qdrant's: each is a clear error, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from double_fixtures import connect
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from scored_names import ngram_rows
from store_cases import manifest_of, many

from pearl_qdrant.errors import PearlQdrantError, StoreError
from pearl_qdrant.store import Collection, Store

ANY = r".*"
NAMES = ["name 1", "name 2"]


@pytest.fixture(scope="module")
def store(running: QdrantDouble) -> Iterator[Store]:
    """A store on it that tries once."""
    opened = connect(running.url, tries=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pearl_qdrant.store.server.collection.STALL_S", 0.1)
        yield opened
    opened.close()


@pytest.fixture
def collection(running: QdrantDouble, store: Store) -> Collection:
    """A collection of 20 points."""
    running.reset()
    created = store.create(manifest_of())
    created.upsert(*many(20))
    return created


def search_hybrid(collection: Collection) -> object:
    """Two mentions, by vector and by n-grams."""
    return collection.search_hybrid(many(2)[1], ngram_rows(NAMES), limit=5, lexical_limit=5)


def load(collection: Collection) -> None:
    """A load of 20 points."""
    with collection.writer() as writer:
        writer.write(*many(20))


USES: dict[str, Callable[[Store, Collection], object]] = {
    "search": lambda store, collection: collection.search(many(2)[1], limit=5),
    "search_hybrid": lambda store, collection: search_hybrid(collection),
    "find": lambda store, collection: collection.find(names=NAMES, limit=5),
    "get": lambda store, collection: collection.get([many(1)[0][0].id]),
    "scroll": lambda store, collection: list(collection.scroll()),
    "scroll_rows": lambda store, collection: list(collection.scroll_rows()),
    "count": lambda store, collection: collection.count(),
    "type_counts": lambda store, collection: collection.type_counts(),
    "status": lambda store, collection: collection.status(),
    "finalize": lambda store, collection: collection.finalize(),
    "read_manifest": lambda store, collection: collection.read_manifest(),
    "write_manifest": lambda store, collection: collection.write_manifest(manifest_of()),
    "upsert": lambda store, collection: collection.upsert(*many(2)),
    "load": lambda store, collection: load(collection),
    "replace_payloads": lambda store, collection: collection.replace_payloads(many(2)[0]),
    "delete_entities": lambda store, collection: collection.delete_entities(["E1"]),
    "delete_points": lambda store, collection: collection.delete_points({many(1)[0][0].id}),
    "collections": lambda store, collection: store.collections(),
    "open": lambda store, collection: store.open("toy"),
    "create": lambda store, collection: store.create(manifest_of("other")),
    "delete": lambda store, collection: store.delete("toy"),
}

HIT = {"id": 1, "version": 1, "score": 0.5}
RESULTS: list[Any] = [
    None,
    [],
    {},
    0,
    "text",
    [{}, {}],
    [{"points": None}, {"points": None}],
    [{"points": [HIT]}],
    [{"points": [HIT]}] * 3,
    [{"id": 1, "vector": {"dense": [0.5]}}],
    [{"id": 1, "vector": {"dense": {"indices": [1], "values": [0.5]}}}],
    [{"points": [{**HIT, "score": "high"}]}] * 2,
    [{"points": [{**HIT, "score": None}]}] * 2,
    [{"points": [{**HIT, "id": None}]}] * 2,
    [{"points": [{**HIT, "payload": []}]}] * 2,
    [{"points": [{**HIT, "payload": {"name": 1}}]}] * 2,
    [{"points": [{**HIT, "payload": "text"}]}] * 2,
    {"points": [{"id": 1, "payload": {"name": [1]}}], "next_page_offset": None},
    {"points": [{"id": 1}], "next_page_offset": {}},
    {"collections": [None]},
    {"collections": [{"name": 7}]},
    {"count": "many"},
    {"hits": [{"value": {}, "count": 1}]},
    {"status": "purple", "config": {}},
]
BODIES = [json.dumps({"result": result, "status": "ok", "time": 0}) for result in RESULTS]
BODIES += ["", "{", "null", "[]", "\xff", "<html>", '{"result": NaN}', "[" * 100_000, '{"result": ' + "[" * 100_000]


@pytest.mark.parametrize("n_right", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("use", USES)
def test_every_odd_answer_is_a_clear_error_or_harmless(
    running: QdrantDouble, store: Store, collection: Collection, use: str, n_right: int
) -> None:
    """Each operation gets each odd answer, from its first request on or from a later one."""
    for body in BODIES:
        running.faults = [Fault("pass", ANY)] * n_right + [Fault("raw", ANY, status=200, error=body)] * 50
        with suppress(PearlQdrantError):
            USES[use](store, collection)
        running.faults = []
        if not running.client.collection_exists("toy"):
            store.create(manifest_of())


@pytest.mark.parametrize("n_answers", [0, 1, 3])
def test_a_batch_that_is_answered_in_part_is_refused(
    running: QdrantDouble, collection: Collection, n_answers: int
) -> None:
    """Answers belong to queries by their order, so too few or too many are an error."""
    result = [{"points": []}] * n_answers
    for search in (lambda: collection.search(many(2)[1], limit=5), lambda: search_hybrid(collection)):
        running.faults = [Fault("raw", ".*/query/batch", status=200, error=json.dumps({"result": result}))]
        with pytest.raises(StoreError, match=rf"{n_answers} answers for \d quer.*Is this the URL of a Qdrant server"):
            search()


def test_an_answer_of_another_shape_says_where_it_is_wrong(running: QdrantDouble, collection: Collection) -> None:
    """The error names the place in the answer, but not its content."""
    running.faults = [Fault("raw", ".*/points/count", status=200, error='{"result": {"count": "secret"}}')]

    with pytest.raises(StoreError, match=r"unexpected answer: .*result\.count: .*integer") as told:
        collection.count()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("score, identifier", [("NaN", "1"), ("-Infinity", "1"), ("0.5", "{}"), ("0.5", "[1]")])
def test_points_without_a_score_or_an_id_are_refused(
    running: QdrantDouble, collection: Collection, score: str, identifier: str
) -> None:
    """A score that is not finite has no place in the order, and an odd id cannot be distinguished."""
    payload = json.dumps(many(1)[0][0].to_payload())
    hit = f'{{"id": {identifier}, "score": {score}, "payload": {payload}}}'
    for search in (lambda: collection.search(many(1)[1], limit=1), lambda: search_hybrid(collection)):
        running.faults = [Fault("raw", ".*/query/batch", status=200, error=f'{{"result": [{{"points": [{hit}]}}]}}')]
        with pytest.raises(StoreError, match="unexpected answer"):
            search()
