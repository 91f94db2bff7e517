"""Collections on a server: interrupted loads, the graph, foreign collections and other servers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from double_fixtures import connect
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from server_cases import ANY, NAME, load, points_of
from store_cases import DIM, manifest_of

from pearl_qdrant.errors import (
    CollectionNotFoundError,
    ManifestError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
)
from pearl_qdrant.store import Collection, Store, verify_collection
from pearl_qdrant.store.search import EF_CONSTRUCT, M
from pearl_qdrant.store.server.collection import LOAD_KEY
from pearl_qdrant.store.server.versions import MANIFEST_KEY

IN_MEMORY = {"always_ram": True}


def test_a_load_that_died_is_noticed_and_repaired(double: QdrantDouble, collection: Collection) -> None:
    """After a crash between load and finalize, a new process notices it, and finalize restores the setting."""
    double.config[NAME]["indexing_threshold"] = 12_345
    double.client.update_collection(NAME, metadata={"theirs": 1})
    for _ in range(2):  # a second load over the first one's remains must not forget the setting
        load(collection, 10)
    assert double.config[NAME]["indexing_threshold"] == 0

    reopened = connect(double.url).open(NAME)
    assert not reopened.status().is_finalized
    assert reopened.search(points_of(1)[1], limit=1)[0][0].point.name == "n0"
    reopened.finalize()

    assert reopened.status().is_finalized
    assert double.config[NAME]["indexing_threshold"] == 12_345
    metadata = double.client.get_collection(NAME).config.metadata or {}
    assert metadata["theirs"] == 1
    assert LOAD_KEY not in metadata
    assert reopened.manifest == manifest_of().as_created()


def test_a_collection_that_lost_its_sparse_vectors_is_an_error(double: QdrantDouble, store: Store) -> None:
    """It is not searched by dense vector alone, which would be a worse answer without a word."""
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    metadata = {MANIFEST_KEY: manifest_of().model_dump(mode="json")}
    double.client.create_collection(NAME, vectors_config={"dense": size}, metadata=metadata)

    with pytest.raises(ManifestError, match="sparse vectors 'lexical'"):
        store.open(NAME)


def test_finalize_waits_for_the_optimizer(double: QdrantDouble, collection: Collection) -> None:
    """Finalize returns when the graph is built, and reports its progress."""
    double.optimizer_polls = 6
    double.requests.clear()
    progress: list[tuple[int, int]] = []
    load(collection, 20)

    collection.finalize(lambda done, total: progress.append((done, total)))

    assert sum(one.endswith("/points/count") for one in double.requests) == 2, "exact counts take what the graph needs"
    assert progress[0] == (0, 20)
    assert progress[-1] == (20, 20)
    assert collection.status().indexed_vectors == 20


def test_finalize_gives_up_only_without_progress(
    double: QdrantDouble, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An optimizer without progress for a long time is an error that says how to continue."""
    load(collection, 20)
    monkeypatch.setattr("pearl_qdrant.store.server.collection.STALL_S", 0.1)
    double.faults = [Fault("status", match="GET .*/optimizations", status=404)] * 10_000
    double.optimizer_polls = 10_000

    with pytest.raises(StoreError, match=r"0 of 20 vectors.*collections finalize toy"):
        collection.finalize()


def test_an_optimizer_that_failed_is_reported(double: QdrantDouble, collection: Collection) -> None:
    """The error of the server's optimizer is raised."""
    double.optimizer_error = "segment is corrupt"
    with pytest.raises(StoreRejectedError, match="segment is corrupt"):
        collection.finalize()
    double.optimizer_error = "No space left on device"
    with pytest.raises(StoreFullError):
        collection.finalize()


def test_missing_payload_indexes_are_explained_and_repaired(
    double: QdrantDouble, store: Store, collection: Collection
) -> None:
    """Strict mode's refusal and `verify` name the command that creates the indexes, and that command works."""
    collection.upsert(*points_of(3))
    double.schema[NAME].pop("filter_types")

    with pytest.raises(StoreRejectedError, match="collections finalize toy"):
        collection.search(points_of(1)[1], limit=1, types=("ORG",))
    (problem,) = (one for one in verify_collection(NAME, store=store).problems if one.kind == "missing_indexes")
    assert "no payload index on filter_types" in problem.message
    assert "pearl-qdrant collections finalize toy" in problem.message
    collection.finalize()

    assert collection.search(points_of(1)[1], limit=1, types=("ORG",)) == [[]]


def test_another_kind_of_server_is_recognised(double: QdrantDouble, store: Store) -> None:
    """A web server that is not Qdrant is recognised at the first try."""
    double.faults = [Fault("status", match=ANY, status=200), Fault("status", match=ANY, status=404, error="nope")]

    for _ in range(2):
        with pytest.raises(StoreRejectedError, match="Is this the URL of a Qdrant server"):
            store.collections()
    assert len(double.requests) == 2


def test_a_collection_that_was_deleted_or_changed_is_a_clear_error(double: QdrantDouble, store: Store) -> None:
    """A collection that was deleted, or made again by another program, is an error that says so."""
    collection = store.create(manifest_of())
    store.delete(NAME)
    for act in (collection.count, collection.status, lambda: collection.upsert(*points_of(1))):
        with pytest.raises(CollectionNotFoundError, match=NAME):
            act()
    store.create(manifest_of("other"))
    with pytest.raises(CollectionNotFoundError, match="there are: other"):
        collection.search(points_of(1)[1], limit=1)

    wide = {"dense": models.VectorParams(size=DIM + 1, distance=models.Distance.COSINE)}
    double.client.create_collection(NAME, vectors_config=wide, metadata={MANIFEST_KEY: manifest_of().model_dump()})
    double.schema[NAME], double.config[NAME] = {}, {}
    with pytest.raises(StoreRejectedError):
        collection.upsert(*points_of(1))
    with pytest.raises(StoreRejectedError):
        collection.search(points_of(1)[1], limit=1)
    with pytest.raises(ManifestError, match="should be 8 dim"):
        store.open(NAME)
    with pytest.raises(StoreRejectedError):
        store.create(manifest_of("no/slash"))


def test_a_closed_store_says_so(double: QdrantDouble) -> None:
    """After its end a store asks for nothing."""
    store = connect(double.url)
    store.close()

    with pytest.raises(StoreClosedError, match="was closed"):
        store.collections()


def test_a_collection_without_a_manifest_is_refused_but_can_be_deleted(double: QdrantDouble, store: Store) -> None:
    """A collection of another program is listed and can be deleted, but not opened."""
    double.client.create_collection(NAME, vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT))
    double.schema[NAME], double.config[NAME] = {}, {}

    with pytest.raises(ManifestError, match=r"toy.*another program made it.*use another collection"):
        store.open(NAME)
    assert store.collections() == [NAME]
    store.delete(NAME)
    assert store.collections() == []


def test_many_queries_go_in_few_requests(double: QdrantDouble, collection: Collection) -> None:
    """There is one request for each 64 queries; a query without a vector is not sent."""
    collection.upsert(*points_of(5))
    double.requests.clear()

    collection.search(np.zeros((3, DIM), dtype=np.float32), limit=2)
    assert double.requests == []
    collection.search(points_of(64)[1], limit=2)
    assert len(double.requests) == 1
    collection.search(points_of(65)[1], limit=2)
    assert len(double.requests) == 3


@pytest.mark.parametrize(
    "version, kept, vectors",
    [
        ("1.19.0", "turbo4", {"datatype": "float16", "quantization_config": {"turbo": {"bits": "bits4", **IN_MEMORY}}}),
        ("1.18.2", "int8", {"quantization_config": {"scalar": {"type": "int8", **IN_MEMORY}}}),
    ],
)
def test_a_new_collection_has_one_kind_of_dense_vectors(
    double: QdrantDouble, store: Store, version: str, kept: str, vectors: dict[str, object]
) -> None:
    """They are float16, with 4 bits a number in memory; on a server before 1.19 whole, with 8 bits beside them. The
    graph has the parameters of the embedded store.
    """
    double.version = version
    store.create(manifest_of(quantization=store.quantization))

    assert store.quantization == kept
    assert double.created[NAME]["vectors"] == {"dense": {"size": DIM, "distance": "Cosine", **vectors}}
    config = double.created[NAME]["hnsw_config"]
    assert (config["m"], config["ef_construct"]) == (M, EF_CONSTRUCT)


def test_connections_are_kept(double: QdrantDouble, collection: Collection) -> None:
    """Requests one after the other share a connection."""
    collection.count()
    before = double.n_connections

    for _ in range(20):
        collection.count()

    assert double.n_connections == before


def test_the_error_names_the_limit(double: QdrantDouble) -> None:
    """A search for more than a limit of strict mode is an error with its name and both numbers, and is not sent."""
    double.limits = {"max_query_limit": 10}
    collection = connect(double.url).create(manifest_of())
    n_before = len(double.requests)
    with pytest.raises(StoreRejectedError, match=r"allows 10 points.*max_query_limit.*11 are needed"):
        collection.search(points_of(1)[1], limit=11)

    assert len(double.requests) == n_before


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
    assert double.n_refused == 0
