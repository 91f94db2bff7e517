"""Limits of a server's strict mode: read, kept, and named if a request is impossible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble
from store_cases import manifest_of, many, point, unit, yes

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.lexical.keys import slip_features
from pearl_qdrant.lexical.ngrams import ngram_rows
from pearl_qdrant.store import open_store
from pearl_qdrant.store.search import OwnNames, SlipQuery
from pearl_qdrant.store.server.collection import ServerCollection


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    """A server whose strict mode allows ten points in a query."""
    with QdrantDouble() as double:
        double.strict = True
        double.limits = {"max_query_limit": 10}
        yield double


@pytest.fixture
def collection(double: QdrantDouble) -> Iterator[ServerCollection]:
    """A collection of 60 names."""
    store = open_store(double.url)
    made = store.create(manifest_of("base"))
    made.upsert(*many(60))
    yield made
    store.close()


def refused(double: QdrantDouble) -> int:
    """Requests that the server refused for a limit."""
    return double.n_refused


def test_pages_follow_the_limit(double: QdrantDouble, collection: ServerCollection) -> None:
    """Reading all points, some by id, or types, requests no more at a time than the server allows."""
    points = list(collection.scroll())
    collection.get([p.id for p in points])
    collection.type_counts()
    collection.find(entity_ids=[p.entity_id for p in points[:5]], limit=1000)
    collection.read_manifest()

    assert len(points) == 60
    assert refused(double) == 0


def test_a_search_follows_the_limit(double: QdrantDouble, collection: ServerCollection) -> None:
    """A search for the allowed number of names works, although ties would need one more."""
    found = collection.search(unit([1.0]), limit=10)[0]

    assert len(found) == 10
    assert refused(double) == 0


@pytest.mark.parametrize("limits", [{"max_query_limit": 10}, {"condition_max_size": 4}, {}])
@pytest.mark.parametrize("n_mentions", [1, 3])
def test_a_hybrid_search_follows_the_limits(
    double: QdrantDouble, collection: ServerCollection, limits: dict[str, int], n_mentions: int
) -> None:
    """Points that were found by spelling are scored in several queries where one may not name so many."""
    double.limits = limits
    collection.read_manifest()
    names = [*(f"Winter{chr(97 + i) * 6}" for i in range(20)), "Wintergarden"]
    points = [point(f"W{i}", name) for i, name in enumerate(names)]
    collection.upsert(points, np.repeat(unit([0.0, 1.0]), len(points), axis=0), yes(len(points)))
    found = collection.search_hybrid(
        np.repeat(unit([1.0]), n_mentions, axis=0),
        ngram_rows(["wintergxrdxn"] * n_mentions),
        limit=5,
        lexical_limit=5,
        own=OwnNames(
            lambda number, point: point.name == "Wintergarden",
            slips=lambda number: SlipQuery(*slip_features("wintergxrdxn"), lambda point: False),
        ),
    )

    assert all("Wintergarden" in [hit.point.name for hit in hits] for hits in found)
    assert refused(double) == 0


def test_the_error_names_the_limit(double: QdrantDouble, collection: ServerCollection) -> None:
    """A search for more than the limit is an error with its name and both numbers, and is not sent."""
    n_before = len(double.requests)
    with pytest.raises(StoreRejectedError, match=r"allows 10 points.*max_query_limit.*11 are needed"):
        collection.search(unit([1.0]), limit=11)

    assert len(double.requests) == n_before


def test_upserts_and_deletions_follow_the_limits(double: QdrantDouble, collection: ServerCollection) -> None:
    """All batches and conditions keep to the limits, the first one included."""
    double.limits = {"upsert_max_batchsize": 8, "condition_max_size": 4}
    collection.read_manifest()
    points = [point(f"N{i}", f"new {i}") for i in range(50)]
    with collection.writer() as writer:
        writer.write(points, np.repeat(unit([1.0]), 50, axis=0), yes(50))
    collection.upsert(points[:20], np.repeat(unit([1.0]), 20, axis=0), yes(20))
    removed = collection.delete_entities([p.entity_id for p in points])
    found = collection.find(entity_ids=[f"E{i}" for i in range(30)], limit=1000)

    assert removed == 50
    assert max(double.upsert_sizes[-9:]) == 8
    assert len(found) == 60
    assert [p.id for p in found] == sorted(p.id for p in found)
    assert refused(double) == 0


def test_linking_works_under_narrow_limits(double: QdrantDouble, run: Run, tmp_path: Path, model: Path) -> None:
    """Ingest, link with a type, and show work under low limits."""
    double.limits = {"max_query_limit": 12, "upsert_max_batchsize": 16, "search_max_batchsize": 2}
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\ttype\n" + "".join(f"E{i}\tw{i} times\tkind{i}\n" for i in range(40)), encoding="utf-8")
    common = ("--store", double.url)

    assert run("ingest", str(base), "--model", str(model), *common).status == 0
    linked = run("link", "w7 times", "--type", "kind39", "--threshold", "0", "--json", *common)
    assert linked.status == 0, linked.err
    assert [link["entity_id"] for link in linked.lines()] == ["E39"]
    assert run("collections", "show", "base", *common).status == 0
    too_many = run("link", "w7 times", "--limit", "13", *common)
    assert too_many.status == 1
    assert "max_query_limit" in too_many.err
    assert refused(double) == 0
