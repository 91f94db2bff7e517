"""The file, alias or mark that says which version is current: damaged is not absent, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from qdrant_client import models
from qdrant_double import QdrantDouble
from transfer_cases import NAME, embedded, fill

from pearl_qdrant.errors import CollectionNotFoundError, ManifestError
from pearl_qdrant.store import Store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.transfer import prune_collection, pull_collection


@pytest.fixture
def other(tmp_path: Path) -> EdgeStore:
    """Another store with a collection `toy` of ten names."""
    return embedded(tmp_path / "other", 10)


@pytest.mark.parametrize("step", ["share_files", "write_content", "remove_other_files"])
def test_a_kill_between_the_steps_of_a_switch_leaves_one_version_current(
    local: EdgeStore, other: EdgeStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whoever is killed in a switch leaves the old version or the new one current, and the other one hidden."""

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    def switch_and_die(store: EdgeStore, name: str, version: str) -> None:
        patch.setattr(edge_content, step, die)
        switch(store, name, version)

    switch = EdgeStore.switch
    with monkeypatch.context() as patch:
        patch.setattr(EdgeStore, "switch", switch_and_die)
        patch.setattr(EdgeStore, "delete", lambda *given, **named: None)
        with pytest.raises(KeyboardInterrupt):
            pull_collection(NAME, source=other, store=local, replace=True)
    local.close()

    is_done = step == "remove_other_files"
    assert local.open(NAME, read_only=True).count() == (10 if is_done else 60)
    assert [one.is_current for one in local.versions(NAME)].count(True) == 1
    pull_collection(NAME, source=other, store=local, replace=True)
    assert local.open(NAME, read_only=True).count() == 10
    rollback = [one for one in local.versions(NAME) if one.mark.is_complete and not one.is_current]
    assert rollback
    local.close()
    prune_collection(NAME, store=local)
    assert [one.is_current for one in local.versions(NAME)] == [True]


def test_a_damaged_manifest_is_an_error_and_nothing_is_pruned(local: EdgeStore, other: EdgeStore) -> None:
    """What is current is not known: no version is deleted, and the collection is not replaced."""
    pull_collection(NAME, source=other, store=local, replace=True)
    local.close()
    manifest = Path(local.location) / NAME / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(b'{"format')
    for call in (
        lambda: local.open(NAME),
        lambda: prune_collection(NAME, store=local),
        lambda: pull_collection(NAME, source=other, store=local, replace=True),
    ):
        with pytest.raises(ManifestError, match="Restore it from a copy"):
            call()
    manifest.write_bytes(content)
    assert [one.is_current for one in local.versions(NAME)] == [True, False]
    assert prune_collection(NAME, store=local) == 1
    assert local.open(NAME, read_only=True).count() == 10


@pytest.mark.slow
def test_a_lost_alias_is_said_and_nothing_is_pruned(other: EdgeStore, server: Store, double: QdrantDouble) -> None:
    """On a server the alias says which version is current: without it nothing is deleted, and the error names them."""
    pull_collection(NAME, source=other, store=server)
    remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=NAME))
    double.client.update_collection_aliases([remove])
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=r"alias 'toy' is missing.*toy\.pearl-qdrant-v\."):
            call()

    assert [one.mark.is_complete for one in server.versions(NAME)] == [True]


def test_a_version_that_somebody_deleted_on_a_server_is_said(
    other: EdgeStore, server: Store, double: QdrantDouble
) -> None:
    """Where the current version was deleted by hand, the one before it is not opened in its place."""
    fill(server, 20)
    pull_collection(NAME, source=other, store=server, replace=True)
    (hidden,) = (one.name for one in double.client.get_collections().collections if one.name != NAME)
    double.client.delete_collection(hidden)
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=rf"names {hidden}, which is missing.*pearl_qdrant_current"):
            call()

    server._client.update_collection(NAME, metadata={"pearl_qdrant_current": None})
    assert server.open(NAME).count() == 20
