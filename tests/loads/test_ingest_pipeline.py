"""The load as a whole: reading, encoding and writing into the embedded store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from qdrant_double import QdrantDouble
from tiny_models import make_pearl

from ingest.base.scan import hash_texts, scan
from ingest.io.report import ReadReport
from ingest.load.embedding_cache import RepeatedNames
from ingest.load.pipeline import IngestResult, ingest
from ingest.load.prefetch import overlap
from ingest.readers.tsv.reader import TsvReader
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import StoreUnavailableError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.server.store import ServerStore


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A tiny random model."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_pearl(folder)
    return load_encoder(str(folder), device="cpu")


class CountingEncoder:
    """Passes on to an encoder and remembers every name that it was given; may fail at one call."""

    def __init__(self, inner: Encoder, *, fail_at: int | None = None) -> None:
        self._inner = inner
        self._fail_at = fail_at
        self.calls = 0
        self.names: list[str] = []

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    def encode(self, names: Sequence[str]) -> Encoded:
        self.calls += 1
        if self.calls == self._fail_at:
            raise MemoryError("out of memory")
        self.names.extend(names)
        return self._inner.encode(names)


def manifest_for(encoder: Encoder, name: str = "base") -> Manifest:
    """The manifest of a new collection."""
    return Manifest.for_model(encoder.info, collection=name, kb=name)


def write_base(path: Path, n: int) -> Path:
    """`n` entities; every tenth shares its second name with the one before it."""
    lines = ["id\tname\ttype\taliases"]
    for i in range(n):
        shared = i if i % 10 else max(0, i - 1)
        lines.append(f"E{i}\tw{i} times\tORG\tw{shared} post")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load(path: Path, store: Store, encoder: Encoder, **options: Any) -> IngestResult:
    """Ingest a file into the collection `base`, which is made if it is not there."""
    with TsvReader([path]) as reader:
        scanned = scan(reader, ReadReport())
        name = "base"
        collection = store.open(name) if name in store.collections() else store.create(manifest_for(encoder))
        try:
            return ingest(reader, scanned, encoder, collection, max_errors=0, **options)
        finally:
            collection.close()


def contents(store: Store) -> dict[str, object]:
    """All points of the collection `base`, by id."""
    collection = store.open("base")
    try:
        return {point.id: point for point in collection.scroll()}
    finally:
        collection.close()


@pytest.fixture
def store(tmp_path: Path) -> EdgeStore:
    """An empty embedded store."""
    return EdgeStore(tmp_path / "store")


def test_every_name_becomes_a_point(tmp_path: Path, store: EdgeStore, encoder: Encoder) -> None:
    """What I ingest is all there, with its phrase types, and the report counts it exactly."""
    result = load(write_base(tmp_path / "base.tsv", 50), store, encoder)

    assert (result.entities, result.names, result.points) == (50, 100, 100)
    assert result.distinct_names == 100 - 4
    points = contents(store)
    assert len(points) == 100
    assert all(point.phrase_type and point.types == ("ORG",) for point in points.values())  # type: ignore[attr-defined]


def test_ingesting_twice_changes_nothing(tmp_path: Path, store: EdgeStore, encoder: Encoder) -> None:
    """Running the same command again leaves the same points."""
    path = write_base(tmp_path / "base.tsv", 30)
    load(path, store, encoder)
    before = contents(store)
    again = load(path, store, encoder)

    assert again.points == 60
    assert contents(store) == before


def test_the_manifest_says_loading_until_the_last_point_is_stored(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that failed half way can be told from one that is complete, and goes on where it stopped."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    monkeypatch.setattr("ingest.load.pipeline.CHECKPOINT_EVERY", 20)
    path = write_base(tmp_path / "base.tsv", 100)
    failing = CountingEncoder(encoder, fail_at=6)
    with pytest.raises(MemoryError):
        load(path, store, failing)
    collection = store.open("base")
    manifest = collection.manifest
    collection.close()
    assert manifest.state == "loading"
    (checkpoint,) = manifest.checkpoints
    assert 0 < checkpoint.entities < 100

    counting = CountingEncoder(encoder)
    result = load(path, store, counting)

    assert result.resumed_at == checkpoint.entities
    assert len(counting.names) < 200, "what was stored is not encoded again"
    assert result.points == 200
    collection = store.open("base")
    assert (collection.manifest.state, collection.manifest.checkpoints) == ("ready", ())
    collection.close()
    resumed = contents(store)
    fresh = EdgeStore(tmp_path / "fresh")
    load(path, fresh, encoder)
    assert resumed == contents(fresh)


def test_a_changed_input_is_not_resumed(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If I change the file after an interrupted load, it is read from the start."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    monkeypatch.setattr("ingest.load.pipeline.CHECKPOINT_EVERY", 20)
    with pytest.raises(MemoryError):
        load(write_base(tmp_path / "base.tsv", 100), store, CountingEncoder(encoder, fail_at=6))

    result = load(write_base(tmp_path / "base.tsv", 101), store, encoder)

    assert result.resumed_at == 0
    assert result.points == 202


def test_an_input_that_changed_far_from_its_start_is_not_resumed(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one name in the middle of a large file changed, size and head being equal, no old name is left unread."""
    monkeypatch.setattr("ingest.load.pipeline.CHECKPOINT_EVERY", 2000)
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 2000)
    path = tmp_path / "base.tsv"
    padding = "x" * 1000  # so that what changes lies beyond the first MiB
    rows = [f"E{i}\tw{i} times\t{padding}\n" for i in range(4000)]
    path.write_text("".join(rows), encoding="utf-8")
    with pytest.raises(MemoryError):
        load(path, store, CountingEncoder(encoder, fail_at=2))
    rows[1500] = rows[1500].replace("times", "posts")
    path.write_text("".join(rows), encoding="utf-8")
    result = load(path, store, encoder)

    assert result.resumed_at == 0
    assert "w1500 posts" in {point.name for point in contents(store).values()}  # type: ignore[attr-defined]


class NeverFinalized(Exception):
    """The process dies while the graph is built."""


def load_until_the_graph(path: Path, store: Store, encoder: Encoder) -> None:
    """A load that is killed when all names are stored."""

    def die(done: int, total: int) -> None:
        raise NeverFinalized

    with pytest.raises(NeverFinalized):
        load(path, store, encoder, on_finalize=die)


def test_a_load_resumes_after_an_entity_was_deleted(tmp_path: Path, store: EdgeStore, encoder: Encoder) -> None:
    """After a kill, deleting an entity is no dead end: the same ingest writes what is missing and ends."""
    path = write_base(tmp_path / "base.tsv", 30)
    load_until_the_graph(path, store, encoder)
    collection = store.open("base")
    collection.delete_entities(["E3"])
    collection.close()
    result = load(path, store, encoder)

    assert (result.resumed_at, result.points, result.rewritten) == (30, 60, 2)
    fresh = EdgeStore(tmp_path / "fresh")
    load(path, fresh, encoder)
    assert contents(store) == contents(fresh)


def test_a_load_resumes_after_one_entity_was_added_and_another_deleted(
    tmp_path: Path, store: EdgeStore, encoder: Encoder
) -> None:
    """What I add by hand to an unfinished collection stays, and hides no name of the base that is gone."""
    path = write_base(tmp_path / "base.tsv", 30)
    load_until_the_graph(path, store, encoder)
    linker = EntityLinker(store, [store.open("base")], encoder)
    linker.add([Entity("mine", "my times", ("my post", "my city"))])
    linker.delete(["E3"])
    linker.close()
    result = load(path, store, encoder)

    assert (result.points, result.rewritten) == (63, 2)
    assert {"E3", "mine"} <= {point.entity_id for point in contents(store).values()}  # type: ignore[attr-defined]
    assert load(path, store, encoder).points == 63


def test_points_that_a_server_lost_are_written_again(tmp_path: Path, encoder: Encoder) -> None:
    """If a server came back without some points, the same ingest restores them."""
    path = write_base(tmp_path / "base.tsv", 30)
    with QdrantDouble() as double:
        load_until_the_graph(path, ServerStore.connect(double.url), encoder)
        store = ServerStore.connect(double.url)
        collection = store.open("base")
        lost = {point.id for point in collection.scroll() if point.entity_id in ("E1", "E2")}
        collection.delete_points(lost)
        result = load(path, store, encoder)

        assert (result.points, result.rewritten) == (60, 4)
        store.close()


def test_the_seconds_of_the_graph_are_those_of_the_graph(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """index_seconds counts building the graph, and not what is counted or tidied around it."""
    clock = [0.0]
    monkeypatch.setattr("ingest.load.pipeline.time.perf_counter", lambda: clock[0])

    class Slow:
        """A collection that takes 5 s for its graph, and 100 s for reading its points."""

        def __init__(self, inner: Collection) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def finalize(self, on_progress: Any = None) -> None:
            clock[0] += 5.0
            self._inner.finalize(on_progress)

        def scroll(self) -> Any:
            clock[0] += 100.0
            return self._inner.scroll()

    with TsvReader([write_base(tmp_path / "base.tsv", 10)]) as reader:
        collection: Any = Slow(store.create(manifest_for(encoder)))
        result = ingest(reader, scan(reader, ReadReport()), encoder, collection, max_errors=0)
        collection.close()

    assert result.index_seconds == 5.0


def load_shard(url: str, path: Path, encoder: Encoder) -> IngestResult:
    """Load one of several inputs into the collection `base` of a server."""
    store = ServerStore.connect(url)
    with TsvReader([path]) as reader:
        scanned = scan(reader, ReadReport())
        try:
            return ingest(reader, scanned, encoder, store.open("base"), max_errors=0, input_name=path.name)
        finally:
            store.close()


def test_several_inputs_are_loaded_at_once(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a base go into one collection on a server in parallel; one that is interrupted resumes on its own."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    monkeypatch.setattr("ingest.load.pipeline.CHECKPOINT_EVERY", 20)
    rows = write_base(tmp_path / "all.tsv", 300).read_text("utf-8").splitlines()
    shards = [tmp_path / f"shard{i}.tsv" for i in range(3)]
    for i, shard in enumerate(shards):
        shard.write_text("\n".join([rows[0], *rows[1 + i :: 3]]) + "\n", encoding="utf-8")
    with QdrantDouble() as double:
        store = ServerStore.connect(double.url)
        collection = store.create(manifest_for(encoder))
        with pytest.raises(MemoryError):
            load_shard(double.url, shards[0], CountingEncoder(encoder, fail_at=4))

        with ThreadPoolExecutor(2) as threads:
            others = list(threads.map(lambda shard: load_shard(double.url, shard, encoder), shards[1:]))
        assert all(shards[0].name in other.unfinished for other in others)
        manifest = collection.read_manifest()
        assert manifest.state == "loading"
        assert [one.is_done for one in manifest.checkpoints] == [False, True, True]
        assert not collection.status().is_finalized

        last = load_shard(double.url, shards[0], encoder)
        assert last.resumed_at > 0
        assert (last.unfinished, last.points) == ((), 600)
        manifest = collection.read_manifest()
        assert manifest.checkpoints == ()
        assert (manifest.state, manifest.entities, manifest.names) == ("ready", 300, 600)
        assert collection.status().is_finalized
        stored = {point.id: point for point in collection.scroll()}
        store.close()
    whole = EdgeStore(tmp_path / "whole")
    load(tmp_path / "all.tsv", whole, encoder)
    assert stored == contents(whole)


def test_each_distinct_name_is_encoded_once(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that many entities share costs one encoding, however far apart they stand."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 16)
    path = tmp_path / "base.tsv"
    rows = "".join(f"E{i}\tw{i}\tORG\tthe times|post {i % 7}\n" for i in range(120))
    path.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")
    counting = CountingEncoder(encoder)

    result = load(path, store, counting)

    assert sorted(counting.names) == sorted(set(counting.names))
    assert len(counting.names) == result.distinct_names == 120 + 1 + 7


def test_remembered_vectors_are_the_encoders_own(encoder: Encoder) -> None:
    """A name that comes again has the vector and the types that it had the first time."""
    names = ["the times", "post", "city", "the times", "heart"]
    again = RepeatedNames(encoder, hash_texts(sorted(["the times", "post"])).copy())
    again._repeated.sort()
    again.encode(names)
    second = again.encode(["post", "aspirin", "the times"])

    plain = encoder.encode(["post", "aspirin", "the times"])
    assert second.vectors == pytest.approx(plain.vectors, abs=1e-6)
    assert second.type_probabilities == pytest.approx(plain.type_probabilities, abs=1e-6)
    assert second.encodable.all()


def test_the_memory_of_repeated_names_is_bounded(encoder: Encoder) -> None:
    """However many names repeat, only so many vectors are kept."""
    names = [f"w{i}" for i in range(50)]
    hashes = hash_texts(names).copy()
    hashes.sort()
    repeated = RepeatedNames(encoder, hashes, capacity=8)
    repeated.encode(names)

    assert len(repeated._kept) == 8


def test_unencodable_names_are_stored_and_counted(tmp_path: Path, store: EdgeStore, encoder: Encoder) -> None:
    """An emoji as a name is kept, without a vector, and the report says how many there are."""
    path = tmp_path / "base.tsv"
    path.write_text("id\tname\ttype\taliases\nE1\tthe times\tORG\t\U0001f5de\nE2\t\U0001f984\tOTHER\t\n", "utf-8")
    result = load(path, store, encoder)

    assert result.points == 3
    assert result.unencodable == 2
    assert result.to_json()["skipped"] == {"unencodable": 2}


def test_a_store_that_loses_points_is_noticed(tmp_path: Path, store: EdgeStore, encoder: Encoder) -> None:
    """If the store holds fewer points than were written, I am told instead of being left with a hole."""
    from pearl_qdrant.errors import StoreError

    class Forgetful:
        """A collection that counts one point too few."""

        def __init__(self, inner: Collection) -> None:
            self._inner = inner
            self.counted = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def count(self) -> int:
            self.counted += 1
            return self._inner.count() - (self.counted > 1)

    with TsvReader([write_base(tmp_path / "base.tsv", 10)]) as reader:
        scanned = scan(reader, ReadReport())
        collection: Any = Forgetful(store.create(manifest_for(encoder)))
        with pytest.raises(StoreError, match="holds 19 points after a load of 20"):
            ingest(reader, scanned, encoder, collection, max_errors=0)
        collection.close()


def test_overlap_hands_over_everything_in_order() -> None:
    """A stage in its own thread changes neither the items nor their order."""
    assert list(overlap(iter(range(1000)), 2)) == list(range(1000))
    assert list(overlap(iter(()), 2)) == []


def test_overlap_raises_where_the_producer_failed() -> None:
    """What fails in another thread fails here, after the items that came before."""

    def produce() -> Any:
        yield 1
        raise StoreUnavailableError("http://x", tries=1, seconds=0, last="gone")

    items = overlap(produce(), 2)
    assert next(items) == 1
    with pytest.raises(StoreUnavailableError):
        next(items)


def test_overlap_stops_its_producer_when_the_consumer_stops() -> None:
    """Leaving a load early leaves no thread behind, and closes what the producer held open."""
    closed = []

    def produce() -> Any:
        try:
            yield from range(10**9)
        finally:
            closed.append(True)

    items = overlap(produce(), 2)
    assert next(items) == 0
    items.close()
    assert closed == [True]
