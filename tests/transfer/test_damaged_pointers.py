"""The file, alias or mark that says which version is current: damaged is not absent, and nothing is lost by it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from qdrant_client import models
from qdrant_double import QdrantDouble
from transfer_cases import NAME, embedded, fill

from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError, StoreError
from pearl_qdrant.store.administration import summarize_collections
from pearl_qdrant.store.edge import versions as edge_versions
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.transfer import prune_collection, pull_collection


@pytest.fixture
def other(tmp_path: Path) -> EdgeStore:
    """Another store with a collection `toy` of ten names."""
    return embedded(tmp_path / "other", 10)


@pytest.fixture
def replaced(local: EdgeStore, other: EdgeStore) -> EdgeStore:
    """A store whose collection of 60 names was replaced by one of ten; the one before is kept, hidden."""
    pull_collection(NAME, source=other, store=local, replace=True)
    local.close()
    return local


def pointer_of(store: EdgeStore) -> Path:
    """The file that names the current version."""
    return Path(store.location) / NAME / "current.json"


def n_folders(store: EdgeStore) -> int:
    """How many versions have files."""
    return len(list((Path(store.location) / NAME).rglob("manifest.json")))


@pytest.mark.parametrize("content", [None, b"", b'{"vers', b"{}", b'{"version": "00ff"}', b'{"version": "../x"}'])
def test_a_damaged_pointer_is_an_error_and_nothing_is_lost(replaced: EdgeStore, content: bytes | None) -> None:
    """A torn, empty, missing or wrong pointer never opens or deletes a version; the error says how to mend it."""
    pointer = pointer_of(replaced)
    pointer.unlink()
    if content is not None:
        pointer.write_bytes(content)
    for call in (
        lambda: replaced.open(NAME),
        lambda: replaced.open(NAME, read_only=True),
        lambda: prune_collection(NAME, store=replaced),
        lambda: pull_collection(NAME, source=replaced, store=Path(replaced.location) / "third"),
        lambda: pull_collection(NAME, source=Path(replaced.location).parent / "other", store=replaced, replace=True),
    ):
        with pytest.raises(StoreError, match=r"(?s)'toy'.*current\.json.*Nothing is lost.*60 names.*echo ") as told:
            call()
    (summary,) = summarize_collections(replaced)
    version, written = re.findall(r"echo '(.*?)' > (\S+)", str(told.value))[0]

    assert n_folders(replaced) == 2
    assert "current.json" in (summary.problem or "")
    assert written == str(pointer)
    pointer.write_text(version)
    assert replaced.open(NAME, read_only=True).count() == 10, "the version that became current last is named first"
    assert prune_collection(NAME, store=replaced) == 1


def test_versions_are_seen_without_pointer_and_without_the_first_version(replaced: EdgeStore) -> None:
    """Where the version of the load was pruned, a collection without its pointer is still one."""
    prune_collection(NAME, store=replaced)
    pointer_of(replaced).unlink()

    assert replaced.collections() == [NAME]
    with pytest.raises(CollectionExistsError):
        fill(replaced)
    with pytest.raises(StoreError, match=r"current\.json, .* is missing"):
        replaced.open(NAME)
    replaced.delete(NAME)
    assert replaced.collections() == []


def test_pruning_keeps_what_is_newer_than_the_pointer(
    replaced: EdgeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pointer that came back from a copy names an older version: the newer ones stay."""
    before = pointer_of(replaced).read_bytes()
    pull_collection(NAME, source=embedded(tmp_path / "third", 20), store=replaced, replace=True)
    pointer_of(replaced).write_bytes(before)

    assert prune_collection(NAME, store=replaced) == 1, "the oldest one"
    assert n_folders(replaced) == 2
    assert "newer than the current one" in caplog.text


def test_pruning_keeps_what_it_cannot_judge(replaced: EdgeStore, caplog: pytest.LogCaptureFixture) -> None:
    """A version whose mark is damaged is neither the first version nor a leftover: it stays, and is said."""
    current = json.loads(pointer_of(replaced).read_text())["version"]
    versions = Path(replaced.location) / NAME / ".versions"
    (versions / current / "version.json").write_bytes(b'{"id": "')
    pointer_of(replaced).write_text('{"version": ""}')

    assert prune_collection(NAME, store=replaced) == 0
    assert (versions / current / "manifest.json").exists()
    assert "version.json" in caplog.text


def test_a_kill_between_the_steps_of_a_switch_leaves_a_pointer(
    local: EdgeStore, other: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed after the new version has its place and before it is current leaves the old one current."""
    real = edge_versions.write_current

    def die_at_last(root: Path, version: str) -> None:
        if version:
            raise KeyboardInterrupt
        real(root, version)

    with monkeypatch.context() as patch:
        patch.setattr(edge_versions, "write_current", die_at_last)
        patch.setattr(edge_versions.EdgeVersions, "delete", lambda *given: None)
        with pytest.raises(KeyboardInterrupt):
            pull_collection(NAME, source=other, store=local, replace=True)
    local.close()

    assert local.open(NAME, read_only=True).count() == 60
    pull_collection(NAME, source=other, store=local, replace=True)
    assert local.open(NAME, read_only=True).count() == 10


def test_a_reader_stays_with_its_version_if_the_pointer_is_damaged(replaced: EdgeStore) -> None:
    """An open reader goes on: what it has is not outdated by a file that nobody can read."""
    reader = replaced.open(NAME, read_only=True)
    pointer_of(replaced).write_bytes(b"")

    assert not reader.is_outdated
    assert reader.count() == 10


def test_a_lost_alias_is_said_and_nothing_is_pruned(
    other: EdgeStore, server: ServerStore, double: QdrantDouble
) -> None:
    """On a server the alias says which version is current: without it nothing is deleted, and the error names them."""
    pull_collection(NAME, source=other, store=server)
    remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=NAME))
    double.client.update_collection_aliases([remove])
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=r"alias 'toy' is missing.*toy\.pearl-qdrant-v\."):
            call()

    assert [one.mark.is_complete for one in server.versions.list(NAME)] == [True]


def test_a_version_that_somebody_deleted_on_a_server_is_said(
    other: EdgeStore, server: ServerStore, double: QdrantDouble
) -> None:
    """Where the current version was deleted by hand, the one before it is not opened in its place."""
    fill(server, 20)
    pull_collection(NAME, source=other, store=server, replace=True)
    (hidden,) = (one.name for one in double.client.get_collections().collections if one.name != NAME)
    double.client.delete_collection(hidden)
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=rf"names {hidden}, which is missing.*pearl_qdrant_current"):
            call()

    server.connection.client.update_collection(NAME, metadata={"pearl_qdrant_current": None})
    assert server.open(NAME).count() == 20
