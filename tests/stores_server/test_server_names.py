"""What is behind the name of a collection on a server changes under an open linker: aliases, other models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from double_fixtures import connect
from linker_base import ENTITIES, fill, fill_server
from qdrant_client import models as qdrant
from qdrant_double import QdrantDouble

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import CollectionMovedError, CollectionNotFoundError, ModelMismatchError
from pearl_qdrant.store import Store
from pearl_qdrant.store.server import collection as server_collection
from pearl_qdrant.transfer import push_collection

ALIAS = "production"
OTHERS = [Entity(f"X{i}", name) for i, name in enumerate(("post times", "city of york", "new post"))]


@pytest.fixture(autouse=True)
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The server is asked what is behind a name when a test says so, and not by the clock."""
    monkeypatch.setattr(server_collection, "LOOK_S", float("inf"))

    def soon() -> None:
        monkeypatch.setattr(server_collection, "LOOK_S", 0.0)

    return soon


@pytest.fixture
def server(double: QdrantDouble, models: tuple[str, str]) -> Store:
    """A store with `old` and `same` of the first model and `new` of the second; the alias leads to `old`."""
    for name, model, entities in (("old", 0, ENTITIES), ("same", 0, OTHERS), ("new", 1, ENTITIES)):
        fill_server(double.url, name, models[model], entities)
    switch(double, "old")
    return connect(double.url)


def switch(double: QdrantDouble, collection: str) -> None:
    """Let the alias lead to another collection, in one change, as its owner would."""
    remove = qdrant.DeleteAliasOperation(delete_alias=qdrant.DeleteAlias(alias_name=ALIAS))
    create = qdrant.CreateAlias(collection_name=collection, alias_name=ALIAS)
    known = [one.alias_name for one in double.client.get_aliases().aliases]
    double.client.update_collection_aliases(
        [*([remove] if ALIAS in known else []), qdrant.CreateAliasOperation(create_alias=create)]
    )


def test_a_switched_alias_is_followed_with_its_model(
    server: Store, double: QdrantDouble, models: tuple[str, str], look: Callable[[], None]
) -> None:
    """A linker that is open on an alias searches what it opened until it looks, and then the other collection with the
    other collection's model: vectors of two models are never compared.
    """
    with EntityLinker.open(ALIAS, store=double.url) as linker, EntityLinker.open("new", store=double.url) as fresh:
        name = ENTITIES[0].canonical_name
        before = linker.link(name, threshold=0)
        switch(double, "new")
        assert linker.link(name, threshold=0) == before
        look()
        after = linker.link(name, threshold=0)
        assert linker.encoder.info.weights_hash == fresh.encoder.info.weights_hash
        assert after == fresh.link(name, threshold=0)
        assert not linker.is_outdated


def test_a_switch_to_another_base_of_the_model_is_followed(
    server: Store, double: QdrantDouble, look: Callable[[], None]
) -> None:
    """Another base of the same model is linked after a moment, alone, in batches and in texts."""
    look()
    with EntityLinker.open(ALIAS, store=double.url) as linker:
        assert linker.link("post times").entity_id is None
        switch(double, "same")
        assert linker.link("post times").entity_id == "X0"
        assert [one.entity_id for one in linker.link_batch(["post times", "new post"])] == ["X0", "X2"]
        assert linker.entity("X1").canonical_name == "city of york"


def test_a_switch_to_another_model_is_an_error_where_the_model_was_given(
    server: Store, double: QdrantDouble, models: tuple[str, str], look: Callable[[], None]
) -> None:
    """Whoever named a model gets no answers with vectors of another one."""
    look()
    with EntityLinker.open(ALIAS, store=double.url, model=models[0]) as linker:
        switch(double, "new")
        with pytest.raises(ModelMismatchError, match="encode its names again"):
            linker.link(ENTITIES[0].canonical_name)
        switch(double, "old")
        assert linker.link(ENTITIES[0].canonical_name).entity_id == ENTITIES[0].entity_id


def test_a_collection_that_is_deleted_after_the_switch_is_not_missed(server: Store, double: QdrantDouble) -> None:
    """If the old collection is gone before the linker looks, the first answer is of the new one."""
    with EntityLinker.open(ALIAS, store=double.url) as linker:
        switch(double, "same")
        server.delete("old")
        assert linker.link("post times").entity_id == "X0"
        server.delete("same")
        with pytest.raises(CollectionNotFoundError):
            linker.link("post times")


def test_what_is_added_goes_where_the_alias_leads(
    server: Store, double: QdrantDouble, look: Callable[[], None]
) -> None:
    """An entity that is added after the switch is in the collection behind the alias, and found there."""
    with EntityLinker.open(ALIAS, store=double.url) as linker:
        n_old = server.open("old").count()
        switch(double, "same")
        linker.add([Entity("X9", "late post")])
        look()
        assert linker.link("late post").entity_id == "X9"
    with closing(server.open("same")) as same:
        assert same.count() == len(OTHERS) + 1
        assert [point.entity_id for point in same.find(entity_ids=["X9"], limit=9)] == ["X9"]
    assert n_old <= server.open("old").count() <= n_old + 1


def test_a_collection_made_again_with_another_model_is_noticed(
    double: QdrantDouble, models: tuple[str, str], look: Callable[[], None]
) -> None:
    """A collection that is deleted and made again with another model is an error of the collection that is open, and a
    linker loads the model.
    """
    fill_server(double.url, "base", models[0], ENTITIES)
    store = connect(double.url)
    handle = store.open("base")
    with EntityLinker.open("base", store=double.url) as linker:
        store.delete("base")
        fill_server(double.url, "base", models[1], ENTITIES)
        look()
        vectors = linker.encoder.encode(["New York"]).vectors
        with pytest.raises(CollectionMovedError, match="Open it again"):
            handle.search(vectors, limit=1)
        with EntityLinker.open("base", store=double.url) as fresh:
            assert linker.link("New York", threshold=0) == fresh.link("New York", threshold=0)
            assert linker.encoder.info.weights_hash == fresh.encoder.info.weights_hash


def test_an_alias_that_leads_to_a_version_is_read(
    double: QdrantDouble, models: tuple[str, str], tmp_path: Path
) -> None:
    """An alias may lead to a collection that was pushed, by the server's own name of its version."""
    fill(tmp_path / "store", "base", models[0], ENTITIES, is_loaded=True)
    store = connect(double.url)
    push_collection("base", to=store, store=str(tmp_path / "store"))
    switch(double, f"base.pearl-qdrant-v.{store.versions('base')[0].id}")
    with EntityLinker.open(ALIAS, store=double.url) as linker:
        assert linker.link("New York Post").entity_id == "nyp"
        assert not linker.is_outdated
