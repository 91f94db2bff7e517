"""`push_collection` and `pull_collection`, streamed and as the snapshot of a shard, over the double."""

from __future__ import annotations

import math
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from store_cases import many
from transfer_cases import NAME, check_same, embedded, fill, ready

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    IncompleteError,
    OptionError,
    StoreError,
    StoreUnavailableError,
)
from pearl_qdrant.store import Placement, Store, open_store
from pearl_qdrant.store.schema import is_same_point
from pearl_qdrant.store.server import upload
from pearl_qdrant.store.server.upload import Uploader
from pearl_qdrant.transfer import prune_collection, pull_collection, push_collection
from pearl_qdrant.transfer.names import catch_up, digest_of


def physical(double: QdrantDouble) -> list[str]:
    """The server's own names of all collections."""
    return sorted(one.name for one in double.client.get_collections().collections)


def test_a_pushed_collection_has_the_same_points_and_answers(local: Store, server: Store) -> None:
    """A push brings points, vectors, manifest and what was learned to the server under the same name."""
    with local.open(NAME).editing():
        local.open(NAME).append_ledger([b'{"a": 1}', b'{"b": 2}'])
    result = push_collection(NAME, to=server, store=local)
    ours, theirs = local.open(NAME), server.open(NAME)

    assert (result.names, result.way, result.replaced, result.checked) == (60, "stream", False, 60)
    assert server.collections() == [NAME]
    check_same(theirs, ours)
    assert theirs.manifest == ours.manifest
    assert list(theirs.read_ledger()) == [b'{"a": 1}', b'{"b": 2}']
    assert theirs.status().is_finalized


@pytest.mark.parametrize("release, kept", [("1.19.0", "turbo4"), ("1.18.2", "int8")])
def test_an_older_collection_arrives_in_the_form_of_new_ones(
    tmp_path: Path, server: Store, double: QdrantDouble, release: str, kept: str
) -> None:
    """What an older release wrote is pushed and pulled in the form that the target has for new collections."""
    double.version = release
    local = open_store(tmp_path / "older")
    fill(local, quantization="int8")

    push_collection(NAME, to=server, store=local)
    assert server.open(NAME).manifest.quantization == kept
    assert local.open(NAME).manifest.quantization == "int8"
    check_same(server.open(NAME), local.open(NAME))
    pulled = open_store(tmp_path / "pulled")
    pull_collection(NAME, source=server, store=pulled, way="stream")
    assert pulled.open(NAME).manifest.quantization == "turbo4"


def test_a_server_may_change_the_last_digit_of_a_number(
    local: Store, server: Store, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qdrant reads numbers of 17 digits with a small error; what arrives is the same for all that."""
    points, vectors, flags = many(1, start=500)
    long = replace(points[0], predicted_type="ORG", phrase_type="NP-ORG", type_probability=0.98322033882141113)
    with local.open(NAME).editing():
        local.open(NAME).upsert([replace(long, lexical_class="NP", popularity=0.1 + 0.2)], vectors, flags)
        ready(local.open(NAME))
    upsert = double.client.upsert

    def read_badly(name: str, points: list[Any], **options: Any) -> Any:
        for one in points:
            for key in ("type_probability", "popularity"):
                if key in one.payload:
                    one.payload[key] = math.nextafter(one.payload[key], 1.0)
        return upsert(name, points, **options)

    monkeypatch.setattr(double.client, "upsert", read_badly)
    result = push_collection(NAME, to=server, store=local)
    (ours,), (theirs,) = (store.open(NAME).find(names=["name 500"], limit=1) for store in (local, server))

    assert result.checked == 61
    assert ours != theirs
    assert is_same_point(ours, theirs)
    assert digest_of(ours) == digest_of(theirs)
    assert not is_same_point(ours, replace(theirs, popularity=0.31))
    assert not is_same_point(ours, replace(theirs, popularity=None))


def test_nothing_is_overwritten_unless_told(kept: Store, server: Store, double: QdrantDouble) -> None:
    """A collection of that name is refused; with `replace` it is replaced at once, and pruned later."""
    fill(server, 10, start=1000)
    with pytest.raises(CollectionExistsError) as error:
        push_collection(NAME, to=server, store=kept)
    assert error.value.option == "replace"
    assert server.open(NAME).count() == 10

    before = server.open(NAME)
    result = push_collection(NAME, to=server, store=kept, replace=True)

    assert result.replaced
    assert before.count() == 10, "a reader keeps what it opened"
    assert server.open(NAME).count() == 60
    assert server.collections() == [NAME]
    assert prune_collection(NAME, store=server) == 1
    assert len(physical(double)) == 1
    assert server.open(NAME).count() == 60
    server.delete(NAME)
    assert physical(double) == []


def test_a_push_goes_on_where_it_ended(
    local: Store, server: Store, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a push is hidden; the same push sends only what is not there, or has changed since."""
    send, calls = Uploader.send, count()

    def send_some(self: Uploader, batch: Any) -> None:
        if next(calls) == 2:
            raise StoreUnavailableError("url", tries=1, seconds=1.0, last="gone")
        send(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Uploader, "send", send_some)
        patch.setattr(upload, "MAX_BATCH_POINTS", 20)
        with pytest.raises(StoreUnavailableError):
            push_collection(NAME, to=server, store=local)
    (left,) = physical(double)
    assert left.startswith(f"{NAME}.pearl-qdrant-v.")
    assert server.collections() == []
    before = double.client.count(left, exact=True).count
    collection = local.open(NAME)
    points, vectors, flags = many(2, start=700)
    collection.upsert(points, vectors, flags)
    first = next(iter(collection.scroll()))
    collection.delete_entities([first.entity_id])
    collection.close()
    result = push_collection(NAME, to=server, store=local)

    assert before in (20, 40)
    assert result.names == 60
    assert result.sent <= 60 - before + 2
    assert physical(double) == [left]
    check_same(server.open(NAME), local.open(NAME, read_only=True))


def test_a_push_of_something_else_begins_anew(
    local: Store, server: Store, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left of another state of the collection, or has other shards and replicas, is removed."""

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    left = []
    for version, replicas in (("1", 1), ("2", 1), ("2", 2)):
        collection = local.open(NAME)
        collection.write_manifest(collection.manifest.model_copy(update={"kb_version": version}))
        collection.close()
        with monkeypatch.context() as patch:
            patch.setattr(Uploader, "send", die)
            with pytest.raises(KeyboardInterrupt):
                push_collection(NAME, to=server, store=local, placement=Placement(3, replicas))
        left += physical(double)
    push_collection(NAME, to=server, store=local, placement=Placement(3, 2))

    assert len({*left}) == 3
    assert physical(double) == [left[-1]]
    assert double.created[left[-1]]["replication_factor"] == 2


def test_a_refused_push_leaves_nothing(kept: Store, server: Store, double: QdrantDouble) -> None:
    """If the server refuses a batch, the hidden collection is deleted again."""
    double.faults = [Fault("status", status=400, error="no")]
    with pytest.raises(StoreError):
        push_collection(NAME, to=server, store=kept)

    assert physical(double) == []


@pytest.mark.slow
def test_a_lost_name_is_noticed(
    kept: Store, server: Store, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that loses a point gets no alias."""
    send = Uploader.send
    monkeypatch.setattr(Uploader, "send", lambda self, batch: send(self, batch[1:]))
    with pytest.raises(StoreError, match="60 names were read and 59 arrived"):
        push_collection(NAME, to=server, store=kept)

    assert physical(double) == []


def test_an_unfinished_collection_is_refused(local: Store, server: Store) -> None:
    """A collection whose load did not finish is not pushed."""
    collection = local.open(NAME)
    collection.write_manifest(collection.manifest.model_copy(update={"state": "loading"}))
    with pytest.raises(IncompleteError):
        push_collection(NAME, to=server, store=local)
    with pytest.raises(CollectionNotFoundError):
        push_collection("none", to=server, store=local)
    assert server.collections() == []


@pytest.mark.slow
def test_a_pull_replaces_a_folder_at_once(local: Store, server: Store) -> None:
    """`replace` changes one file of the embedded store; an open reader keeps its state, and notices."""
    fill(server, 10, start=1000)
    reader = local.open(NAME, read_only=True)
    pull_collection(NAME, source=server, store=local, way="stream", replace=True)

    assert reader.count() == 60
    assert reader.is_outdated
    assert local.open(NAME, read_only=True).count() == 10
    assert local.collections() == [NAME]
    reader.close()
    assert prune_collection(NAME, store=local) == 1
    assert local.open(NAME, read_only=True).count() == 10
    local.close()
    local.delete(NAME)
    assert local.collections() == []


def test_what_both_collections_learned_is_kept(local: Store, tmp_path: Path) -> None:
    """A pull in the place of a collection adds what the source had learned to what was learned there, once."""
    other = embedded(tmp_path / "other", 10)
    for store, lines in ((local, [b"both", b"here"]), (other, [b"both", b"there"])):
        with closing(store.open(NAME)) as collection:
            collection.append_ledger(lines)
    pull_collection(NAME, source=other, store=local, replace=True)

    with closing(local.open(NAME, read_only=True)) as pulled:
        assert (pulled.count(), list(pulled.read_ledger())) == (10, [b"both", b"here", b"there"])


def test_a_shard_is_pulled_with_its_graph(server: Store, double: QdrantDouble, tmp_path: Path) -> None:
    """Points, vectors and answers are the server's, and it can be edited."""
    fill(server)
    back = open_store(tmp_path / "back")
    result = pull_collection(NAME, source=server, store=back)
    pulled = back.open(NAME)

    assert (result.way, result.reason, result.names) == ("snapshot", "", 60)
    check_same(pulled, server.open(NAME))
    assert pulled.type_counts() == server.open(NAME).type_counts()
    assert double.shard_snapshots == {}
    more, vectors, flags = many(2, start=3000)
    pulled.upsert(more, vectors, flags)
    ready(pulled)
    back.close()
    again = open_store(tmp_path / "back").open(NAME, read_only=True)
    assert again.count() == 62
    assert again.find(entity_ids=["E1500"], limit=5) == sorted(more, key=lambda point: point.id)
    again.close()


def test_a_snapshot_that_arrived_otherwise_is_streamed(
    server: Store, double: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum that the server gives is compared; a wrong byte never reaches the engine. A pull that ended early
    while names travelled goes on there, though it tries the snapshot first.
    """
    fill(server)
    double.spoils_snapshots = True
    with pytest.raises(OptionError, match="SHA-256"):
        pull_collection(NAME, source=server, store=tmp_path / "none", way="snapshot")

    def end_early(*given: Any, **named: Any) -> None:
        catch_up(*given, **named)
        raise StoreUnavailableError("url", tries=1, seconds=1.0, last="gone")

    with monkeypatch.context() as patch:
        patch.setattr("pearl_qdrant.transfer.moving.catch_up", end_early)
        with pytest.raises(StoreUnavailableError):
            pull_collection(NAME, source=server, store=tmp_path / "back", way="stream")
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.sent, result.names) == ("stream", 0, 60)
    assert "SHA-256" in result.reason
    back = open_store(tmp_path / "back")
    check_same(back.open(NAME), server.open(NAME))
    assert back.open(NAME).manifest == server.open(NAME).manifest
    back.close()
    assert open_store(tmp_path / "none").collections() == []


NO_SNAPSHOT = [Fault("status", match="POST .*/snapshots$", status=500, error="no room") for _ in range(20)]


def test_what_cannot_be_a_snapshot_is_streamed(
    server: Store, double: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of another version, several shards, or an error that all retries meet: the server sends names."""
    fill(server)
    for setting, value, reason in (
        ("segment_version", "0.7.1", "0.7.1 is newer"),
        ("replica_states", ["Active", "Active"], "2 shards or replicas"),
        ("faults", NO_SNAPSHOT, "no room"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(double, setting, value)
            result = pull_collection(NAME, source=server, store=tmp_path / setting)

        assert (result.way, result.sent, result.names) == ("stream", 60, 60)
        assert reason in result.reason


def test_a_server_that_fails_at_everything_is_unavailable(server: Store, double: QdrantDouble, tmp_path: Path) -> None:
    """Then nothing is streamed either, and nothing is left."""
    fill(server)

    def fail_from_now_on() -> None:
        double.before_fault = None
        double.faults += [Fault("status", match=".", status=500) for _ in range(40)]

    double.faults, double.before_fault = [Fault("status", match="POST .*/snapshots$", status=500)], fail_from_now_on
    with pytest.raises(StoreUnavailableError):
        pull_collection(NAME, source=server, store=tmp_path / "back")
    assert open_store(tmp_path / "back").collections() == []
