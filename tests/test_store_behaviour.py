"""What every store does, whichever it is: the embedded one, qdrant-client's local mode, and a server over HTTP.

With QDRANT_URL set (and QDRANT_API_KEY), a real server is tested too; only collections that a test made are touched.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pearl_qdrant.encoder.ngrams import ngram_rows
from pearl_qdrant.encoder.protocol import BoolArray, FloatArray, ModelInfo
from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    InvalidPointError,
    ModelMismatchError,
)
from pearl_qdrant.store.protocol import Collection, ScoredName, Store
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest, NamePoint

DIM = 8

KINDS: list[Any] = ["edge", "server-local", "server-http"]
if os.environ.get("QDRANT_URL"):
    KINDS.append(pytest.param("server-real", marks=pytest.mark.server))


@pytest.fixture
def name() -> str:
    """A collection name that nobody else uses."""
    return f"pearl-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def local() -> Iterator[Store]:
    """qdrant-client's local mode, shared: collections are told apart by name."""
    from qdrant_client import QdrantClient

    from pearl_qdrant.store.server import ServerStore

    client = QdrantClient(":memory:")
    opened = ServerStore.from_client(client)
    yield opened
    opened.close()
    client.close()


@pytest.fixture(scope="module")
def http() -> Iterator[Store]:
    """A server over HTTP, as strict as a managed one, shared likewise."""
    from qdrant_double import QdrantDouble

    from pearl_qdrant.store.server import ServerStore
    from pearl_qdrant.store.server_indexing import Indexing

    with QdrantDouble() as double:
        double.strict = True
        double.optimizer_polls = 2
        opened = ServerStore.connect(double.url, indexing=Indexing(poll_s=0.01))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def real() -> Iterator[Store]:
    """The server at QDRANT_URL."""
    from pearl_qdrant.store.server import ServerStore

    opened = ServerStore.connect(os.environ["QDRANT_URL"], api_key=os.environ.get("QDRANT_API_KEY"))
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Store]:
    """A store of each kind; what a test creates in it is gone after the test."""
    if request.param == "edge":
        from pearl_qdrant.store.edge import EdgeStore

        embedded = EdgeStore(tmp_path / "store")
        yield embedded
        embedded.close()
        return
    shared: Store = request.getfixturevalue(request.param.removeprefix("server-"))
    yield shared
    for left in shared.collections():
        if left.startswith(name):
            shared.delete(left)


def manifest_of(name: str, *, dim: int = DIM, weights_hash: str = "sha256:" + "a" * 64) -> Manifest:
    """A manifest for tests."""
    return Manifest(
        collection=name, kb="test", model="toy", weights_hash=weights_hash, dim=dim, has_head=True, created_by="tests"
    )


@pytest.fixture
def collection(store: Store, name: str) -> Iterator[Collection]:
    """An empty collection in each store."""
    created = store.create(manifest_of(name))
    yield created
    created.close()


def point(entity_id: str, name: str, *, canonical: bool = True, **fields: Any) -> NamePoint:
    """A point of an organisation, unless told otherwise."""
    fields = {"canonical_name": name, "types": ("ORG",), "kb_types": ("company",), **fields}
    return NamePoint(kb="test", entity_id=entity_id, name=name, is_canonical=canonical, **fields)


def unit(*rows: list[float]) -> FloatArray:
    """Rows padded to DIM and normalised."""
    vectors = np.zeros((len(rows), DIM), dtype=np.float32)
    for i, row in enumerate(rows):
        vectors[i, : len(row)] = row
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms), dtype=np.float32)


def yes(n: int) -> BoolArray:
    """All encodable."""
    return np.ones(n, dtype=np.bool_)


def put(collection: Collection, *pairs: tuple[NamePoint, list[float]]) -> None:
    """Write points with their vectors."""
    collection.upsert([p for p, _ in pairs], unit(*[v for _, v in pairs]), yes(len(pairs)))


def found(collection: Collection, vector: list[float], *, limit: int = 10, types: tuple[str, ...] = ()) -> list[str]:
    """Names found, best first."""
    return [hit.point.name for hit in collection.search(unit(vector), limit=limit, types=types)[0]]


def many(n: int, *, seed: int = 0) -> tuple[list[NamePoint], FloatArray]:
    """Points of two names an entity, with random unit vectors."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [point(f"E{i // 2}", f"name {i}", canonical=i % 2 == 0) for i in range(n)], vectors


def test_what_is_written_comes_back_whole(collection: Collection) -> None:
    """A point read back has all that was stored with it."""
    full = point(
        "Q9684",
        "NYTimes — ニューヨーク\u0000",
        canonical=False,
        canonical_name="The New York Times",
        kb_types=("newspaper", "publication"),
        description="American daily",
        phrase_type="NP-ORG",
        lexical_class="NP",
        predicted_type="ORG",
        type_probability=0.97,
        extra={"language": "en"},
    )
    put(collection, (full, [1.0]))

    assert collection.search(unit([1.0]), limit=1)[0][0].point == full
    assert collection.find(entity_ids=["Q9684"], limit=1) == [full]
    assert list(collection.scroll()) == [full]


def test_scores_are_cosines_best_first(collection: Collection) -> None:
    """The nearest name comes first, with its cosine."""
    put(collection, (point("1", "near"), [1.0, 0.1]), (point("2", "far"), [0.0, 1.0]), (point("3", "anti"), [-1.0]))

    hits = collection.search(unit([1.0]), limit=10)[0]

    assert [hit.point.name for hit in hits] == ["near", "far", "anti"]
    assert [hit.score for hit in hits] == pytest.approx([1 / np.sqrt(1.01), 0.0, -1.0], abs=1e-5)
    assert found(collection, [1.0], limit=2) == ["near", "far"]


def test_writing_twice_changes_nothing(collection: Collection) -> None:
    """The same names written again make no second points."""
    points, vectors = many(20)
    collection.upsert(points, vectors, yes(20))
    collection.upsert(points, vectors, yes(20))

    assert collection.count() == 20
    assert len(list(collection.scroll())) == 20


def test_a_later_write_replaces_an_earlier_one(collection: Collection) -> None:
    """Writing a name of an entity again changes its payload and vector."""
    put(collection, (point("1", "a", description="old"), [1.0]))
    put(collection, (point("1", "a", description="new"), [0.0, 1.0]))

    hits = collection.search(unit([0.0, 1.0]), limit=5)[0]
    assert [hit.point.description for hit in hits] == ["new"]
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)


def test_of_one_name_twice_in_a_batch_the_last_stays(collection: Collection) -> None:
    """Two rows of one name in one write leave the later one."""
    put(collection, (point("1", "a", description="old"), [1.0]), (point("1", "a", description="new"), [1.0]))

    assert [p.description for p in collection.scroll()] == ["new"]


def test_unencodable_names_are_kept_and_never_found_by_vector(collection: Collection) -> None:
    """A name without a vector is counted and found exactly, but no search by vector returns it."""
    points = [point("1", "word"), point("2", "\U0001f600"), point("3", "\U0001f601")]
    collection.upsert(points, unit([1.0], [], []), np.array([True, False, False]))

    assert collection.count() == 3
    assert collection.status().vectors == 1
    assert found(collection, [1.0]) == ["word"]
    assert found(collection, [1.0], types=("ORG",)) == ["word"]
    assert [p.entity_id for p in collection.find(names=["\U0001f600"], limit=5)] == ["2"]


def test_a_name_that_becomes_unencodable_is_no_longer_found_by_vector(collection: Collection) -> None:
    """Writing a name again without a vector takes its old vector away."""
    put(collection, (point("1", "a"), [1.0]))
    collection.upsert([point("1", "a")], unit([]), np.array([False]))

    assert collection.count() == 1
    assert found(collection, [1.0]) == []


def test_a_query_without_a_vector_finds_nothing(collection: Collection) -> None:
    """A mention that cannot be encoded finds nothing, and the others of the batch are not disturbed."""
    put(collection, (point("1", "a"), [1.0]))

    hits = collection.search(unit([], [1.0], []), limit=5)

    assert [[h.point.name for h in row] for row in hits] == [[], ["a"], []]
    assert collection.search(unit([]), limit=5) == [[]]
    assert collection.search(np.zeros((0, DIM), dtype=np.float32), limit=5) == []


def test_types_filter_native_and_coarse_types(collection: Collection) -> None:
    """A type filter keeps points with one of the types, native or coarse."""
    put(
        collection,
        (point("1", "paper", types=("ORG",), kb_types=("newspaper",)), [1.0]),
        (point("2", "city", types=("GPE",), kb_types=("city", "place")), [1.0, 0.1]),
        (point("3", "man", types=("PERSON",), kb_types=("human",)), [1.0, 0.2]),
    )

    assert found(collection, [1.0], types=("ORG",)) == ["paper"]
    assert found(collection, [1.0], types=("place",)) == ["city"]
    assert found(collection, [1.0], types=("newspaper", "PERSON")) == ["paper", "man"]
    assert found(collection, [1.0], types=("org",)) == []
    assert found(collection, [1.0]) == ["paper", "city", "man"]


def test_the_predicted_type_counts_only_where_the_base_has_no_coarse_type(collection: Collection) -> None:
    """What the head predicted stands in for a missing type, and never overrules the base."""
    head: dict[str, Any] = {
        "phrase_type": "NP-ORG",
        "lexical_class": "NP",
        "predicted_type": "ORG",
        "type_probability": 0.9,
    }
    put(
        collection,
        (point("1", "untyped", types=(), kb_types=(), **head), [1.0]),
        (point("2", "native only", types=(), kb_types=("place",), **head), [1.0, 0.1]),
        (point("3", "typed otherwise", types=("GPE",), kb_types=(), **head), [1.0, 0.2]),
        (point("4", "nothing known", types=(), kb_types=()), [1.0, 0.3]),
    )

    assert found(collection, [1.0], types=("ORG",)) == ["untyped", "native only"]
    assert found(collection, [1.0], types=("GPE",)) == ["typed otherwise"]


def test_equal_scores_are_ordered_by_point_id(collection: Collection) -> None:
    """Names that nothing separates come in one fixed order, also where the limit cuts through them."""
    points = [point(f"E{i}", "Springfield") for i in range(40)]
    collection.upsert(points, np.repeat(unit([1.0, 2.0, 3.0]), 40, axis=0), yes(40))
    ordered = sorted(p.id for p in points)

    for limit in (1, 5, 39, 40, 100):
        hits = collection.search(unit([1.0, 2.0, 2.5]), limit=limit)[0]
        assert [hit.point.id for hit in hits] == ordered[:limit]


def test_a_batch_gives_what_single_queries_give(collection: Collection) -> None:
    """Searching many vectors at once, more than one request holds, changes no answer."""
    points, vectors = many(60)
    collection.upsert(points, vectors, yes(60))
    _, queries = many(70, seed=1)

    batch = collection.search(queries, limit=3, types=("ORG",))

    assert len(batch) == 70
    for i in (0, 63, 64, 69):
        single = collection.search(queries[i : i + 1], limit=3, types=("ORG",))[0]
        assert [h.point.id for h in batch[i]] == [h.point.id for h in single]
        assert [h.score for h in batch[i]] == pytest.approx([h.score for h in single], abs=1e-6)


def test_search_refuses_what_makes_no_sense(collection: Collection) -> None:
    """A query of the wrong width, a NaN or a limit of 0 is an error and no empty answer."""
    with pytest.raises(ValueError, match=str(DIM)):
        collection.search(np.ones((1, DIM + 1), dtype=np.float32), limit=1)
    with pytest.raises(ValueError, match="finite"):
        collection.search(np.full((1, DIM), np.nan, dtype=np.float32), limit=1)
    with pytest.raises(ValueError, match="limit"):
        collection.search(unit([1.0]), limit=0)


def test_find_by_exact_id_and_name(collection: Collection) -> None:
    """Points are found by exact entity id or name, ordered by point id."""
    points = [point("1", "a"), point("1", "b", canonical=False), point("2", "a"), point("2", "A")]
    put(collection, *[(p, [1.0]) for p in points])
    by_id = sorted(points, key=lambda p: p.id)

    assert collection.find(entity_ids=["1"], limit=10) == [p for p in by_id if p.entity_id == "1"]
    assert collection.find(entity_ids=["1", "2", "2"], limit=10) == by_id
    assert collection.find(names=["a"], limit=10) == [p for p in by_id if p.name == "a"]
    assert collection.find(names=["a"], limit=1) == [p for p in by_id if p.name == "a"][:1]
    assert collection.find(names=["absent"], limit=10) == []
    assert collection.find(names=["a"], types=("ORG",), limit=10) == [p for p in by_id if p.name == "a"]
    assert collection.find(names=["a"], types=("GPE",), limit=10) == []
    with pytest.raises(ValueError, match="entity_ids"):
        collection.find(limit=10)


def test_text_that_is_no_unicode_finds_nothing(collection: Collection) -> None:
    """A lone surrogate in a name to be found matches nothing, rather than break the request."""
    put(collection, (point("1", "a"), [1.0]))

    assert collection.find(names=["\ud800"], limit=5) == []
    assert [p.name for p in collection.find(names=["\ud800", "a"], limit=5)] == ["a"]
    assert collection.delete_entities(["\ud800"]) == 0


def test_scroll_gives_every_point_once_by_id(collection: Collection) -> None:
    """Scrolling goes through all points, page after page, in the order of their ids."""
    points, vectors = many(1100)
    with collection.writer() as writer:
        writer.write(points, vectors, yes(1100))

    assert [p.id for p in collection.scroll()] == sorted(p.id for p in points)


def test_counts_are_exact(collection: Collection) -> None:
    """Points, entities and types are counted exactly."""
    assert (collection.count(), collection.count_entities()) == (0, 0)
    points, vectors = many(31)
    collection.upsert(points, vectors, yes(31))
    put(
        collection,
        (
            point(
                "X",
                "x",
                types=("GPE", "LOC"),
                kb_types=(),
                predicted_type="GPE",
                phrase_type="NP-GPE",
                lexical_class="NP",
                type_probability=0.5,
            ),
            [1.0],
        ),
    )

    assert collection.count() == 32
    assert collection.count_entities() == 17
    assert collection.type_counts() == {
        "types": {"ORG": 31, "GPE": 1, "LOC": 1},
        "kb_types": {"company": 31},
        "predicted_type": {"GPE": 1},
    }
    assert collection.type_counts(limit=1)["types"] == {"ORG": 31}


def test_deleting_an_entity_takes_all_its_names(collection: Collection) -> None:
    """Deleting says how many points went, and they are gone at once."""
    points, vectors = many(20)
    collection.upsert(points, vectors, yes(20))

    assert collection.delete_entities(["E3", "E3", "E5", "absent"]) == 4
    assert collection.delete_entities(["E3"]) == 0
    assert collection.delete_entities([]) == 0
    assert collection.count() == 16
    assert collection.find(entity_ids=["E3"], limit=5) == []
    assert not {"E3", "E5"} & {h.point.entity_id for h in collection.search(vectors[6:7], limit=20)[0]}

    collection.upsert(points[6:8], vectors[6:8], yes(2))
    assert collection.count() == 18


def test_points_are_deleted_by_id(collection: Collection) -> None:
    """Deleting points by id takes these and no others; ids that are not there do no harm."""
    points, vectors = many(20)
    collection.upsert(points, vectors, yes(20))

    collection.delete_points({points[3].id, points[4].id, point("absent", "absent").id})
    collection.delete_points(set())

    assert {p.name for p in points} - {p.name for p in collection.scroll()} == {"name 3", "name 4"}
    assert collection.count() == 18


def test_a_bulk_load_stores_everything(collection: Collection) -> None:
    """A load in uneven pieces, twice over, leaves each point once; after finalize nothing is left to do."""
    points, vectors = many(900)
    encodable = yes(900)
    encodable[::100] = False
    progress: list[tuple[int, int]] = []

    for _ in range(2):
        with collection.writer() as writer:
            for start, stop in ((0, 1), (1, 1), (1, 300), (300, 900)):
                writer.write(points[start:stop], vectors[start:stop], encodable[start:stop])
            writer.flush()
            assert collection.count() == 900
    collection.finalize(lambda done, total: progress.append((done, total)))

    status = collection.status()
    assert (status.points, status.vectors, status.is_finalized) == (900, 891, True)
    assert all(0 <= done <= total == 891 for done, total in progress)
    assert found(collection, vectors[1].tolist(), limit=1) == ["name 1"]
    assert found(collection, vectors[0].tolist(), limit=1) != ["name 0"]


def test_a_caller_may_reuse_its_arrays(collection: Collection) -> None:
    """What was handed to a writer is what is stored, whatever becomes of the array."""
    points, vectors = many(300)
    buffer = vectors.copy()
    with collection.writer() as writer:
        writer.write(points, buffer, yes(300))
        buffer[:] = 0

    assert collection.search(vectors[7:8], limit=1)[0][0].point.name == "name 7"


def test_an_error_in_a_load_keeps_what_was_acknowledged(collection: Collection) -> None:
    """A load that its caller breaks off keeps what was flushed."""
    points, vectors = many(20)

    def load() -> None:
        with collection.writer() as writer:
            writer.write(points, vectors, yes(20))
            writer.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load()

    assert collection.count() == 20


@pytest.mark.parametrize("through_writer", [False, True])
def test_bad_points_are_refused_with_their_name(collection: Collection, through_writer: bool) -> None:
    """NaN, zero or wrongly sized vectors and invalid Unicode are refused, naming the point; nothing is stored."""
    good, nan = unit([1.0], [1.0]), unit([1.0], [1.0])
    nan[1, 3] = np.nan
    cases = [
        (point("1", "bad one"), nan, "bad one"),
        (point("1", "bad one"), unit([1.0], []), "bad one"),
        (point("1", "bad one"), np.ones((2, DIM + 1), dtype=np.float32), str(DIM + 1)),
        (point("1", "lone \ud800"), good, "lone"),
        (point("1", "bad one", description="\udfff"), good, "bad one"),
    ]

    def store_both(bad: NamePoint, vectors: FloatArray) -> None:
        if not through_writer:
            collection.upsert([point("0", "good"), bad], vectors, yes(2))
            return
        with collection.writer() as writer:
            writer.write([point("0", "good"), bad], vectors, yes(2))

    for bad, vectors, shown in cases:
        with pytest.raises(InvalidPointError, match=shown) as caught:
            store_both(bad, vectors)
        str(caught.value).encode("utf-8")

    assert collection.count() == 0


def test_a_vector_of_an_unencodable_name_is_not_looked_at(collection: Collection) -> None:
    """Whatever stands in the row of a name without a vector, the name is stored."""
    collection.upsert([point("1", "\U0001f600")], np.full((1, DIM), np.nan, dtype=np.float32), np.array([False]))

    assert collection.count() == 1


def test_the_manifest_comes_back(store: Store, collection: Collection, name: str) -> None:
    """A manifest is what it was after reopening, and can be replaced, emptied fields included."""
    assert collection.manifest == manifest_of(name).as_created()
    assert collection.name == name
    first = collection.manifest.model_copy(update={"kb_version": "2024ab", "names": 3})
    collection.write_manifest(first)
    assert collection.manifest == first
    final = collection.manifest.model_copy(update={"kb_version": None, "state": "ready", "names": 2})
    collection.write_manifest(final)
    collection.close()

    reopened = store.open(name)
    assert reopened.manifest == final
    reopened.close()


def test_another_model_is_refused(collection: Collection) -> None:
    """A model of the same width but other weights is refused with both named."""
    info = ModelInfo(
        name="other",
        weights_hash="sha256:" + "b" * 64,
        dim=DIM,
        pooling="mean",
        prefix="",
        has_head=False,
        device="cpu",
        precision="fp32",
        runtime="onnx",
    )

    with pytest.raises(ModelMismatchError, match=r"toy.*other"):
        collection.manifest.check_model(info)


def test_creating_twice_is_refused_and_harms_nothing(store: Store, collection: Collection, name: str) -> None:
    """A second create of one name fails and leaves the first collection as it is."""
    put(collection, (point("1", "a"), [1.0]))

    with pytest.raises(CollectionExistsError, match=name):
        store.create(manifest_of(name, dim=4))

    assert collection.count() == 1


def test_opening_or_deleting_what_is_missing(store: Store, collection: Collection, name: str) -> None:
    """A missing collection is an error that lists those that are there."""
    with pytest.raises(CollectionNotFoundError, match=name) as caught:
        store.open("pearl-test-absent")
    assert caught.value.collection == "pearl-test-absent"
    assert name in caught.value.existing
    with pytest.raises(CollectionNotFoundError):
        store.delete("pearl-test-absent")


def test_a_deleted_collection_is_gone(store: Store, collection: Collection, name: str) -> None:
    """After deleting, the name is free again, and the new collection is empty."""
    put(collection, (point("1", "a"), [1.0]))
    collection.close()
    assert name in store.collections()

    store.delete(name)

    assert name not in store.collections()
    again = store.create(manifest_of(name))
    assert again.count() == 0
    again.close()


def test_several_collections_live_side_by_side(store: Store, collection: Collection, name: str) -> None:
    """Collections do not see each other's points and are listed by name."""
    other = store.create(manifest_of(f"{name}-b"))
    put(collection, (point("1", "a"), [1.0]))

    assert (collection.count(), other.count()) == (1, 0)
    assert [c for c in store.collections() if c.startswith(name)] == [name, f"{name}-b"]
    other.close()


def test_what_was_written_is_there_after_reopening(store: Store, collection: Collection, name: str) -> None:
    """Closing and opening a collection loses nothing."""
    points, vectors = many(50)
    with collection.writer() as writer:
        writer.write(points, vectors, yes(50))
    collection.finalize()
    collection.close()

    reopened = store.open(name)
    assert reopened.count() == 50
    assert reopened.status().is_finalized
    assert reopened.search(vectors[9:10], limit=1)[0][0].point.name == "name 9"
    reopened.close()


def test_payload_indexes_are_there_before_the_load(request: pytest.FixtureRequest, collection: Collection) -> None:
    """A new collection has the payload indexes that filters need."""
    if "server-local" in request.node.name:
        assert collection.status().payload_indexes == ()  # local mode has none, and needs none
    else:
        assert set(INDEXED_FIELDS) <= set(collection.status().payload_indexes)


def test_many_threads_may_search(collection: Collection) -> None:
    """Concurrent searches give what one search gives."""
    points, vectors = many(100)
    collection.upsert(points, vectors, yes(100))

    def best(i: int) -> str:
        return collection.search(vectors[i : i + 1], limit=1)[0][0].point.name

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(best, range(40))) == [p.name for p in points[:40]]


# Points by id


def test_points_are_read_by_id(collection: Collection) -> None:
    """Those that are there come back; the others are just not in the answer."""
    here, missing = point("1", "a", description="x"), point("2", "b")
    put(collection, (here, [1.0]))

    assert collection.get([here.id, missing.id]) == {here.id: here}
    assert collection.get([]) == {}


def test_a_payload_is_replaced_and_the_vector_stays(collection: Collection) -> None:
    """Fields that the new payload lacks are gone, and the type filter goes by the new types."""
    old = point("1", "a", description="x", extra={"source": "s"})
    new = point("1", "a", types=("GPE",), kb_types=())
    put(collection, (old, [1.0, 0.5]), (point("2", "b"), [0.0, 1.0]))

    collection.replace_payloads([new])

    assert collection.get([old.id]) == {new.id: new}
    assert found(collection, [1.0, 0.5], types=("GPE",)) == ["a"]
    assert found(collection, [1.0, 0.5], types=("ORG",)) == ["b"]
    assert collection.count() == 2


def test_a_payload_that_cannot_be_stored_is_refused(collection: Collection) -> None:
    """Nothing is written, and the point is named."""
    old = point("1", "a")
    put(collection, (old, [1.0]))

    with pytest.raises(InvalidPointError, match="lone surrogate"):
        collection.replace_payloads([point("1", "a", description="\udc80")])
    assert collection.get([old.id]) == {old.id: old}


# Search by dense vector and by n-grams


def hybrid(
    collection: Collection,
    vector: list[float],
    name: str,
    *,
    limit: int = 1,
    lexical_limit: int = 10,
    types: tuple[str, ...] = (),
) -> list[ScoredName]:
    """What one mention finds."""
    lexical = ngram_rows([name])
    (hits,) = collection.search_hybrid(unit(vector), lexical, limit=limit, lexical_limit=lexical_limit, types=types)
    return hits


def shown(hits: list[ScoredName]) -> list[tuple[str, float | None]]:
    """Names and rounded scores."""
    return [(hit.point.name, None if hit.score is None else round(hit.score, 3)) for hit in hits]


def cities() -> list[tuple[NamePoint, list[float]]]:
    """Cities, and a company, whose vectors lie on other ways than their spelling."""
    return [
        (point("1", "København", types=("GPE",)), [0.0, 1.0]),
        (point("2", "Danish capital", types=("GPE",)), [1.0, 0.1]),
        (point("3", "Aarhus", types=("GPE",)), [1.0, 1.0]),
        (point("4", "Kobenhavn Airport Ltd."), [0.6, 0.8]),
    ]


def test_spelling_finds_what_the_vector_misses(collection: Collection) -> None:
    """A name of like spelling is found although its vector is far, with its cosine; each name comes once."""
    put(collection, *cities())

    hits = hybrid(collection, [1.0], "kobenhavn")
    assert shown(hits) == [("Danish capital", 0.995), ("Kobenhavn Airport Ltd.", 0.6), ("København", 0.0)]
    assert hits[1].point == cities()[3][0]
    assert [name for name, _ in shown(hybrid(collection, [1.0], "the danish capital"))] == ["Danish capital"]
    assert shown(hybrid(collection, [1.0], "kobenhavn", limit=4))[1:] == [
        ("Aarhus", 0.707),
        ("Kobenhavn Airport Ltd.", 0.6),
        ("København", 0.0),
    ]


def test_both_searches_have_a_limit_of_their_own(collection: Collection) -> None:
    """By n-grams the nearest spelling comes first; by either no more are found than were asked for."""
    put(collection, *cities())

    assert [name for name, _ in shown(hybrid(collection, [1.0], "kobenhavn", lexical_limit=1))] == [
        "Danish capital",
        "København",
    ]
    assert len(hybrid(collection, [1.0], "kobenhavn", limit=3, lexical_limit=1)) == 4


def test_the_type_filter_holds_for_spelling_too(collection: Collection) -> None:
    """No name of another type is found, by either."""
    put(collection, *cities())

    assert [name for name, _ in shown(hybrid(collection, [1.0], "kobenhavn", types=("GPE",)))] == [
        "Danish capital",
        "København",
    ]
    assert [name for name, _ in shown(hybrid(collection, [1.0], "kobenhavn", types=("ORG",)))] == [
        "Kobenhavn Airport Ltd."
    ]
    assert hybrid(collection, [1.0], "kobenhavn", types=("\ud800",)) == []


def test_names_without_a_vector_are_found_by_spelling(collection: Collection) -> None:
    """A name that the tokenizer cannot see is found by its letters, without a score, after those that have one."""
    points = [point("1", "Токио"), point("2", "Токио 2"), point("3", "Tokyo"), point("4", "\U0001f600")]
    collection.upsert(points, unit([], [], [1.0], []), np.array([False, False, True, False]))
    unseen = sorted((p for p in points[:2]), key=lambda p: p.id)

    hits = hybrid(collection, [1.0], "ТОКИО")
    assert shown(hits) == [("Tokyo", 1.0), *[(p.name, None) for p in unseen]]
    assert [hit.point for hit in hits[1:]] == unseen
    assert shown(hybrid(collection, [1.0], "\U0001f600")) == [("Tokyo", 1.0)]


def test_a_mention_without_a_vector_is_searched_by_spelling(collection: Collection) -> None:
    """A zero vector finds by n-grams alone, without scores; no letters find by vector alone; neither finds nothing."""
    put(collection, *cities())

    assert dict(shown(hybrid(collection, [], "kobenhavn"))) == {
        "København": None,
        "Kobenhavn Airport Ltd.": None,
    }
    assert shown(hybrid(collection, [1.0], "!?")) == [("Danish capital", 0.995)]
    assert hybrid(collection, [], "") == []


def test_equal_dense_scores_are_ordered_by_point_id_whatever_found_them(collection: Collection) -> None:
    """Namesakes come in one fixed order, also where the limit of the dense search cuts through them."""
    points = [point(f"E{i}", "Springfield") for i in range(40)]
    collection.upsert(points, np.repeat(unit([1.0, 2.0, 3.0]), 40, axis=0), yes(40))
    ordered = sorted(p.id for p in points)

    for limit in (1, 5, 39, 40):
        hits = hybrid(collection, [1.0, 2.0, 2.5], "other words", limit=limit)
        assert [hit.point.id for hit in hits] == ordered[:limit]
        by_both = [hit.point.id for hit in hybrid(collection, [1.0, 2.0, 2.5], "springfield", limit=limit)]
        assert by_both == sorted(set(by_both))
        assert set(ordered[:limit]) <= set(by_both)


def test_a_batch_of_both_gives_what_single_queries_give(collection: Collection) -> None:
    """Many mentions at once, with and without vectors and letters, disturb each other in nothing."""
    points, vectors = many(60)
    collection.upsert(points, vectors, yes(60))
    _, queries = many(40, seed=1)
    names = [f"name {i}" for i in range(40)]
    queries[::7] = 0
    names[::5] = ["\U0001f600"] * 8
    lexical = ngram_rows(names)

    batch = collection.search_hybrid(queries, lexical, limit=3, lexical_limit=4, types=("ORG",))

    assert len(batch) == 40
    assert batch[0] == batch[35] == []
    for i in (1, 5, 7, 15, 16, 17, 39):
        (single,) = collection.search_hybrid(
            queries[i : i + 1], ngram_rows(names[i : i + 1]), limit=3, lexical_limit=4, types=("ORG",)
        )
        assert shown(batch[i]) == shown(single)


def test_a_near_name_can_settle_a_query(collection: Collection) -> None:
    """N-grams are not searched for where a name with the query's own vector settles it; other queries get theirs."""
    put(collection, *cities())
    vectors = np.concatenate([unit([0.0, 1.0]), unit([0.0, 1.0]), unit([1.0, 1.0])])
    asked: list[tuple[int, str]] = []

    def settles(number: int, point: NamePoint) -> bool:
        asked.append((number, point.name))
        return number == 0

    rows = ngram_rows(["København"] * 3)
    found = collection.search_hybrid(vectors, rows, limit=1, lexical_limit=4, settles=settles)

    assert [[hit.point.name for hit in hits] for hits in found] == [
        ["København"],
        ["København", "Kobenhavn Airport Ltd."],
        ["Aarhus", "Kobenhavn Airport Ltd.", "København"],
    ]
    assert asked == [(0, "København"), (1, "København"), (2, "Aarhus")]


def test_hybrid_search_refuses_what_makes_no_sense(collection: Collection) -> None:
    """Rows that do not pair up, NaN or a limit of 0 are errors and no empty answers."""
    one = ngram_rows(["a"])
    with pytest.raises(ValueError, match="2 rows, 1 vectors"):
        collection.search_hybrid(unit([1.0]), ngram_rows(["a", "b"]), limit=1, lexical_limit=1)
    with pytest.raises(ValueError, match="finite"):
        collection.search_hybrid(np.full((1, DIM), np.nan, dtype=np.float32), one, limit=1, lexical_limit=1)
    one.values[0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        collection.search_hybrid(unit([1.0]), one, limit=1, lexical_limit=1)
    for limits in ({"limit": 0, "lexical_limit": 1}, {"limit": 1, "lexical_limit": 0}):
        with pytest.raises(ValueError, match="limit must be positive"):
            collection.search_hybrid(unit([1.0]), ngram_rows(["a"]), **limits)


def test_rare_features_count_more(collection: Collection) -> None:
    """Of two names that share a word with the mention, the one that shares the rarer word is nearer."""
    points = [point(f"E{i}", f"Bank of {chr(65 + i)}") for i in range(20)] + [point("X", "Zimbra")]
    collection.upsert(points, np.repeat(unit([1.0]), 21, axis=0), yes(21))

    assert [name for name, _ in shown(hybrid(collection, [], "bank zimbra", lexical_limit=1))] == ["Zimbra"]


def test_spelling_follows_what_is_written(collection: Collection) -> None:
    """Deleted names are no longer found, written ones are; a replaced payload changes no vector; a load writes both."""
    put(collection, *cities())
    collection.delete_entities(["1"])
    collection.replace_payloads([point("4", "Kobenhavn Airport Ltd.", description="new")])
    points, vectors = many(300)
    with collection.writer() as writer:
        writer.write([*points, point("E9", "Kobenhavn Nord")], np.vstack([vectors, unit([0.0, 0.0, 1.0])]), yes(301))
    collection.finalize()

    hits = hybrid(collection, [], "kobenhavn")
    assert {(hit.point.name, hit.point.description) for hit in hits} == {
        ("Kobenhavn Airport Ltd.", "new"),
        ("Kobenhavn Nord", None),
    }
    collection.upsert([point("4", "Kobenhavn Airport Ltd.")], unit([]), np.array([False]))
    assert ("Kobenhavn Airport Ltd.", None) in shown(hybrid(collection, [0.0, 0.0, 1.0], "kobenhavn"))
    status = collection.status()
    assert (status.points, status.vectors) == (304, 303)
    assert status.is_finalized


def test_a_collection_of_another_version_is_searched_by_vector_alone(
    store: Store, collection: Collection, name: str
) -> None:
    """Where folding or hashing have changed, n-grams find nothing, rather than anything; writing goes on."""
    put(collection, *cities())
    collection.write_manifest(collection.manifest.model_copy(update={"lexical_version": 0}))
    collection.close()

    reopened = store.open(name)
    put(reopened, (point("5", "Kobenhavn Nord"), [0.0, 1.0]))
    assert shown(hybrid(reopened, [1.0], "kobenhavn")) == [("Danish capital", 0.995)]
    reopened.close()
